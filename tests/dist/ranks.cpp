// Training on several ranks: the same steps as one rank makes, to rounding, and the same bits on
// each.
#include <fmt/format.h>

#include "data/files.h"
#include "dist/training.h"
#include "firn/memory.h"
#include "firn/runtime/kernel_support.h"
#include "support/thread_check.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

TEST_CASE("[S40][S41] ranks: every optimizer trains as one rank does, with uneven shares and none",
          "[host]") {
  const std::vector<std::int64_t> sizes = {13, 16, 2, 9};  // of 2, two ranks of four have none
  for (const OptimizerKind& k : all_kinds())
    for (const DType dtype : {f64, f32}) {
      CAPTURE(k.name, dtype);
      const TrainedRun one = train_unevenly(Group(), k, dtype, sizes);
      for (const int ranks : {1, 2, 3, 4}) {
        CAPTURE(ranks);
        const auto runs = on_ranks<TrainedRun>(
            ranks, [&](const Group& g) { return train_unevenly(g, k, dtype, sizes); });
        CHECK(relative_distance(runs[0].weights, one.weights) <= (dtype == f64 ? 1e-12 : 1e-5));
        for (const TrainedRun& r : runs) {
          CHECK(r.bits == runs[0].bits);
          CHECK(r.reports == runs[0].reports);
        }
      }
    }
}

TEST_CASE("[S40] ranks: accumulation by hand, with no_samples() and flush()", "[host]") {
  const auto train_by_hand = [](const Group& group) {
    manual_seed(5);
    SmallMlp net(f64);
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.accumulate = 2});
    distribute(opt, group);
    const Rows rows(24, 7, 3, 77, f64);
    // Micro-batch i of 8 is rank i % ranks' own. Five of them: the last cycle is shorter.
    const auto mine = [&](std::int64_t i) { return i % group.size() == group.rank(); };
    for (std::int64_t cycle = 0; cycle < 2; ++cycle)
      for (std::int64_t half = 0; half < 2; ++half) {
        for (std::int64_t i = 0; i < 4; ++i) {
          if (!mine(i)) continue;
          const std::int64_t first = 6 * i;
          opt.backward(cross_entropy(net(rows.x.slice(0, first, first + 1 + half)),
                                     rows.y.slice(0, first, first + 1 + half)));
        }
        opt.step();
      }
    if (group.rank() == 0)
      opt.backward(cross_entropy(net(rows.x), rows.y));
    else
      opt.no_samples();
    opt.step();  // the first of two
    const auto report = opt.flush();
    if (!report.applied() || report.applied_steps() != 3 || report.weight() != 24)
      throw std::runtime_error("the last cycle was not applied");
    return weights_of(opt);
  };
  const auto one = train_by_hand(Group());
  for (const int ranks : {2, 4}) {
    const auto runs = on_ranks<std::vector<double>>(ranks, train_by_hand);
    for (const auto& w : runs) CHECK(w == runs[0]);
    CHECK(relative_distance(runs[0], one) <= 1e-12);
  }
}

TEST_CASE("[S37][S40][S42] ranks: a batch that fails on one rank ends on all, who go on together",
          "[host]") {
  struct Case {
    std::string how;
    optim::StepOptions step = {};
    dist::DistributeOptions over = {};
  };
  const std::vector<Case> cases{{"plain"},
                                {"exact", {.exact = {.chunk = 2}}},
                                {"ZeRO 1", {}, {.zero = 1}},
                                {"ZeRO 2", {}, {.zero = 2}},
                                {"ZeRO 3", {}, {.zero = 3}},
                                {"overlap", {}, {.overlap = true}},
                                {"run_cycle"}};
  struct Limit {
    explicit Limit(std::size_t bytes) { set_memory_limit(bytes); }
    ~Limit() { set_memory_limit(before); }
    std::size_t before = memory_stats().limit;
  };
  enum class Fails { by_error, without_memory, within_a_limit };
  for (const Case& c : cases)
    for (const Fails fails_by : {Fails::by_error, Fails::without_memory, Fails::within_a_limit}) {
      const bool memory = fails_by != Fails::by_error;
      const bool plans = fails_by == Fails::within_a_limit;
      CAPTURE(c.how, memory, plans);
      // With a limit the rank plans what would fit before it tells the others of its failure.
      const Limit limit(plans ? std::size_t{1} << 40 : 0);
      struct End {
        std::string error;
        std::vector<double> weights;
      };
      const auto train = [&](bool fails) {
        return on_ranks<End>(3, [&](const Group& group) {
          manual_seed(5);
          SmallMlp net(f64);
          optim::AdamW opt(net.parameters(), {.lr = 0.1}, c.step);
          distribute(opt, group, c.over);
          const Rows rows(12, 7, 3, 77, f64);
          const auto run = [&](bool fit) {
            int calls = 0;
            const auto loss = [&](std::int64_t first, std::int64_t last) {
              if (!fit && group.rank() == 1 && !runtime::dry_run() && (memory || ++calls == 2)) {
                if (memory) throw OutOfMemory("none", 1);
                throw std::runtime_error("no more disk");
              }
              return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
            };
            if (c.how == "run_cycle")
              return opt.run_cycle(2, [&](std::int64_t i) {
                const std::int64_t first = 4 * group.rank() + 2 * i;
                return loss(first, first + 2);
              });
            return opt.run_batch(12, {.size = 2}, loss);
          };
          run(true);
          End end;
          if (fails) {
            try {
              run(false);
            } catch (const std::exception& e) {
              end.error = e.what();
            }
          }
          THREAD_CHECK(opt.last_report().applied_steps() == 1);
          run(true);
          const optim::GatheredWeights whole(opt);
          for (const Tensor& p : net.parameters())
            for (const double v : values_of(p)) end.weights.push_back(v);
          return end;
        });
      };
      const auto ends = train(true), wanted = train(false);
      for (std::size_t r = 0; r < 3; ++r) {
        CHECK(ends[r].weights == wanted[r].weights);
        const char* const expected = r != 1 ? "rank 1" : memory ? "none" : "no more disk";
        CHECK(mentions(ends[r].error, {expected}));
      }
      if (plans && c.how != "exact" && c.how != "run_cycle")
        CHECK(mentions(ends[1].error, {"micro-batches of ", "would fit"}));
    }
}

TEST_CASE("[S37][S43] ranks: memory that runs out for samples of others ends the batch on all",
          "[host]") {
  // Of nine samples in micro-batches of two, rank 0 has one turn more than the others, which then
  // compute samples of their own again.
  for (const std::int64_t chunk : {0, 1}) {
    CAPTURE(chunk);
    const auto train = [&](bool fails) {
      return on_ranks<std::vector<double>>(4, [&](const Group& group) {
        manual_seed(5);
        SmallMlp net(f64);
        optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = chunk}});
        distribute(opt, group, {.zero = 3});
        const Rows rows(9, 7, 3, 77, f64);
        const auto run = [&](bool fit) {
          int calls = 0;
          // Rank 2 has two of the nine: one micro-batch, or two chunks.
          const int own = chunk > 0 ? 2 : 1;
          opt.run_batch(9, {.size = 2, .halve_on_out_of_memory = false},
                        [&](std::int64_t first, std::int64_t last) {
                          if (!fit && group.rank() == 2 && ++calls > own)
                            throw OutOfMemory("none", 1);
                          return cross_entropy(net(rows.x.slice(0, first, last)),
                                               rows.y.slice(0, first, last));
                        });
        };
        run(true);
        if (fails) THREAD_CHECK_THROWS_AS(run(false), Error);
        run(true);
        const optim::GatheredWeights whole(opt);
        std::vector<double> out;
        for (const Tensor& p : net.parameters())
          for (const double v : values_of(p)) out.push_back(v);
        return out;
      });
    };
    CHECK(train(true) == train(false));
  }
}

TEST_CASE("[S40] ranks: a gradient that is not finite on one rank skips the step on all",
          "[host]") {
  struct End {
    bool skipped = false, applied_then = false;
    double scale = 0;
    std::int64_t culprit = 0;
    std::string before, after;
  };
  for (const int bad : {0, 2}) {
    const auto ends = on_ranks<End>(3, [&](const Group& group) {
      manual_seed(6);
      SmallMlp net(f32);
      net.to(f16);
      optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.loss_scale = optim::LossScale::dynamic()});
      distribute(opt, group);
      const Rows rows(6, 7, 3, 8);
      const auto loss = [&](std::int64_t first, std::int64_t last) {
        const Loss fine =
            cross_entropy(net(rows.x.slice(0, first, last).to(f16)), rows.y.slice(0, first, last));
        return group.rank() == bad ? 1e4 * fine : fine;  // its gradient overflows in f16
      };
      End e;
      e.before = bits_of_training(opt).bytes;
      const auto report = opt.run_batch(6, 2, loss);
      e.skipped = !report.applied();
      e.after = bits_of_training(opt).bytes;
      e.scale = opt.loss_scale();
      e.applied_then =
          opt.run_batch(6, 2,
                        [&](std::int64_t first, std::int64_t last) {
                          return cross_entropy(net(rows.x.slice(0, first, last).to(f16)),
                                               rows.y.slice(0, first, last));
                        })
              .applied();
      return e;
    });
    for (const End& e : ends) {
      CHECK(e.skipped);
      CHECK(e.before == e.after);
      CHECK(e.scale == 32768);
      CHECK(e.applied_then);
    }
  }
}

TEST_CASE("[S17] ranks: a parameter with a gradient on one rank is updated on all, others stay",
          "[host]") {
  const auto ends = on_ranks<std::vector<double>>(3, [](const Group& group) {
    Tensor a = parameter({1}, {1}, f64), b = parameter({1}, {1}, f64), c = parameter({1}, {1}, f64);
    optim::AdamW opt({a, b, c}, {.lr = 0.5, .weight_decay = 0.1});
    distribute(opt, group);
    for (int step = 0; step < 2; ++step) {
      opt.backward(objective(group.rank() == 1 ? b : a, {1 + double(step)}), 1);
      if (!opt.step()) throw std::runtime_error("no step");
    }
    return weights_of(opt);
  });
  for (const auto& w : ends) {
    CHECK(w == ends[0]);
    CHECK(w[0] < 0.6);
    CHECK(w[1] < 0.6);
    CHECK(w[2] == 1);
  }
}

TEST_CASE("[S05] ranks: accumulators in other units come together", "[host]") {
  // The unit follows the first loss's weight, which differs between the ranks.
  const auto train_scaled = [](const Group& group) {
    manual_seed(9);
    SmallMlp net(f32);
    optim::SGD opt(net.parameters(), {.lr = 0.1}, {.loss_scale = optim::LossScale::fixed(1024)});
    distribute(opt, group);
    const Rows rows(66, 7, 3, 12);
    const std::int64_t cuts[] = {0, 64, 65, 66};
    for (int i = 0; i < 3; ++i)
      if (i % group.size() == group.rank())
        opt.backward(cross_entropy(net(rows.x.slice(0, cuts[i], cuts[i + 1])),
                                   rows.y.slice(0, cuts[i], cuts[i + 1])));
    opt.step();
    return weights_of(opt);
  };
  const auto one = train_scaled(Group());
  for (const int ranks : {2, 3}) {
    const auto runs = on_ranks<std::vector<double>>(ranks, train_scaled);
    for (const auto& w : runs) CHECK(w == runs[0]);
    CHECK(relative_distance(runs[0], one) <= 1e-6);
  }
}

TEST_CASE("[S19] ranks: running statistics that are pooled are those of all ranks' samples",
          "[host]") {
  const auto statistics = [](const Group& group) {
    manual_seed(11);
    nn::BatchNorm1d norm(3, {.accumulation = nn::BatchNormMode::per_step, .dtype = f64});
    optim::SGD opt(norm.parameters(), {.lr = 0.1});
    distribute(opt, group);
    const Rows rows(16, 3, 2, 21, f64);
    for (int step = 0; step < 2; ++step)
      opt.run_batch(16, 4, [&](std::int64_t first, std::int64_t last) {
        const Tensor y = norm(rows.x.slice(0, first, last));
        return mse_loss(y, rows.x.slice(0, first, last));
      });
    auto out = values_of(norm.running_mean);
    for (const double v : values_of(norm.running_var)) out.push_back(v);
    out.push_back(norm.num_batches_tracked.item());
    return out;
  };
  const auto one = statistics(Group());
  for (const int ranks : {2, 4, 5}) {  // with 5, cuts differ: the moments over all do not
    CAPTURE(ranks);
    const auto runs = on_ranks<std::vector<double>>(ranks, statistics);
    for (const auto& s : runs) CHECK(s == runs[0]);
    CHECK(relative_distance(runs[0], one) <= (ranks == 5 ? 1e-12 : 1e-14));
  }
}

TEST_CASE("ranks: what is not alike is refused on every rank, or taken from rank 0", "[host]") {
  const auto both = [](const std::vector<std::string>& errors,
                       std::initializer_list<const char*> parts) {
    for (const auto& e : errors) CHECK(mentions(e, parts));
  };
  both(errors_on_ranks(2,
                       [](const Group& g) {
                         manual_seed(static_cast<std::uint64_t>(g.rank()));
                         SmallMlp net(f32);
                         optim::AdamW opt(net.parameters());
                         distribute(opt, g);
                       }),
       {"distribute", "parameters.0.weight of rank 1", ".broadcast = true"});
  both(errors_on_ranks(3,
                       [](const Group& g) {
                         manual_seed(1);
                         SmallMlp net(f32);
                         optim::AdamW opt(net.parameters(), {},
                                          {.clip_norm = g.rank() == 2 ? 1. : 0.});
                         distribute(opt, g);
                       }),
       {"the optimizer of rank 2 is not like that of rank 0"});
  both(errors_on_ranks(3,
                       [](const Group& g) {
                         manual_seed(1);
                         SmallMlp net(f32);
                         optim::AdamW opt(net.parameters());
                         if (g.rank() == 1) opt.no_samples();
                         distribute(opt, g);
                       }),
       {"a cycle of rank 1 is under way: it has 1 micro-steps", "zero_grad()"});
  const auto weights = on_ranks<std::vector<double>>(3, [](const Group& g) {
    manual_seed(static_cast<std::uint64_t>(g.rank()) + 1);
    SmallMlp net(f32);
    net.to(f16);
    optim::AdamW opt(net.parameters());
    distribute(opt, g, {.broadcast = true});
    const Rows rows(6, 7, 3, 8);
    opt.run_batch(6, 2, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(rows.x.slice(0, first, last).to(f16)), rows.y.slice(0, first, last));
    });
    return weights_of(opt);
  });
  for (const auto& w : weights) CHECK(w == weights[0]);
}

TEST_CASE("[S42] ranks: a rank that ends is an error on the others, and no weight moves",
          "[host]") {
  struct End {
    std::string error, before, after;
    int peer = -2;
    bool goes_on = false;
  };
  const auto ends = on_ranks<End>(3,
                                  [](const Group& group) {
                                    manual_seed(2);
                                    SmallMlp net(f32);
                                    optim::AdamW opt(net.parameters());
                                    distribute(opt, group);
                                    const Rows rows(6, 7, 3, 8);
                                    const auto loss = [&](std::int64_t first, std::int64_t last) {
                                      return cross_entropy(net(rows.x.slice(0, first, last)),
                                                           rows.y.slice(0, first, last));
                                    };
                                    opt.run_batch(6, 2, loss);
                                    End e;
                                    if (group.rank() == 1) return e;
                                    e.before = bits_of_training(opt).bytes;
                                    try {
                                      opt.run_batch(6, 2, loss);
                                    } catch (const dist::RankError& r) {
                                      e.error = r.what();
                                      e.peer = r.peer();
                                    }
                                    e.after = bits_of_training(opt).bytes;
                                    return e;
                                  },
                                  {.deadline = 20});
  for (const int r : {0, 2}) {
    const End& e = ends[static_cast<std::size_t>(r)];
    CHECK_FALSE(e.error.empty());
    CHECK(e.peer == 1);
    CHECK(e.before == e.after);
  }
}

TEST_CASE("ranks: steps out of order are refused on every rank", "[host]") {
  const auto errors = errors_on_ranks(2, [](const Group& group) {
    Tensor w = parameter({1}, {1}, f64);
    optim::SGD opt({w}, {.lr = 0.5});
    if (group.rank() == 1) {  // has made a step before
      opt.backward(objective(w, {1}), 1);
      opt.step();
      opt.backward(objective(w, {1}), 1);
    }
    if (group.rank() == 1) opt.zero_grad();
    distribute(opt, group, {.broadcast = true});
    opt.backward(objective(w, {1}), 1);
    opt.step();
  });
  for (const auto& e : errors) CHECK(e.empty());  // the state of rank 0 has its count too
  const auto refused = [](const std::function<void(const Group&, optim::SGD&, optim::SGD&)>& work,
                          std::initializer_list<const char*> parts) {
    const auto late = errors_on_ranks(2, [&](const Group& group) {
      Tensor w = parameter({1}, {1}, f64), v = parameter({1}, {1}, f64);
      const optim::StepOptions scaled{.loss_scale = optim::LossScale::fixed(64)};
      optim::SGD opt({w}, {.lr = 0.5}, scaled), other({v}, {.lr = 0.5}, scaled);
      distribute(opt, group);
      distribute(other, group);
      work(group, opt, other);
    });
    for (const auto& e : late) CHECK(mentions(e, parts));
  };
  const auto step = [](optim::Optimizer& opt) {
    opt.no_samples();
    opt.step();
  };
  refused([&](const Group& g, auto& opt, auto& other) { step(g.rank() == 0 ? opt : other); },
          {"is at its optimizer number", "in the same order"});
  refused(
      [&](const Group& g, auto& opt, auto&) {
        if (g.rank() == 1) opt.no_samples(), opt.zero_grad();
        step(opt);
      },
      {"rank 1 has dropped 1 cycles since the last step, and rank 0 0"});
  refused(
      [&](const Group& g, auto& opt, auto&) {
        if (g.rank() == 1) opt.set_lr(0.25);
        step(opt);
      },
      {"the learning rate of rank 1 is 0.25, and that of rank 0 0.5"});
  refused(
      [&](const Group& g, auto& opt, auto&) {
        if (g.rank() == 1) opt.set_loss_scale(32);
        step(opt);
      },
      {"the loss scale of rank 1 is 32, and that of rank 0 64"});
  refused(
      [&](const Group& g, auto& opt, auto&) {
        const Tensor w = opt.parameters()[0];
        opt.run_batch(4 + g.rank(), 2, [&](std::int64_t first, std::int64_t last) -> Loss {
          return {objective(w, {1}), make({double(last - first)}, {}, f64)};
        });
      },
      {"rank 1 is at a batch of 5 samples, and rank 0 at one of 4"});
}

TEST_CASE("[S20] ranks: losses that couple samples are refused", "[host]") {
  const auto errors = errors_on_ranks(2, [](const Group& group) {
    manual_seed(1);
    SmallMlp net(f32);
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    distribute(opt, group);
    const Rows rows(8, 7, 3, 40);
    const auto whole = error_of([&] {
      opt.run_batch(8, 8, [&](std::int64_t first, std::int64_t last) {
        const Tensor y = net(rows.x.slice(0, first, last));
        return info_nce(y, y);
      });
    });
    const auto two_pass = error_of([&] {
      opt.step_two_pass(
          2, [&](std::int64_t i) { return net(rows.x.slice(0, 4 * i, 4 * i + 4)); },
          [](const Tensor& all) { return info_nce(all, all); });
    });
    throw Error("both", whole + "\n" + two_pass);
  });
  for (const auto& e : errors)
    CHECK(mentions(e, {"[SGD] the loss couples the samples of its batch, and 2 ranks"}));
}

TEST_CASE("[S40] ranks: optimizers with one loss scale have ranks together", "[host]") {
  const auto errors = errors_on_ranks(2, [](const Group& group) {
    Tensor w = parameter({1}, {1}), v = parameter({1}, {1});
    const optim::LossScaler scaler(optim::LossScale::dynamic());
    optim::SGD a({w}, {.lr = 0.5}, {.scaler = scaler}), b({v}, {.lr = 0.5}, {.scaler = scaler});
    distribute(a, group);
    a.backward(objective(w, {1}), 1);
    b.backward(objective(v, {1}), 1);
    optim::step_all({&a, &b});
  });
  for (const auto& e : errors) CHECK(mentions(e, {"[step_all]", "optimizer 1 has no other ranks"}));
}

TEST_CASE("[S40][S42] ranks: after a cycle that was dropped the state is the same on all",
          "[host]") {
  for (const std::int64_t chunk : {0, 2}) {
    const auto ends = on_ranks<std::string>(3, [&](const Group& group) {
      manual_seed(1);
      SmallMlp net(f32);
      optim::AdamW opt(net.parameters(), {}, {.exact = {.chunk = chunk}});
      distribute(opt, group);
      const Rows rows(12, 7, 3, 41);
      const auto loss = [&](std::int64_t first, std::int64_t last) {
        return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
      };
      opt.run_batch(12, 2, loss);
      error_of([&] {
        opt.run_batch(12, 2, [&](std::int64_t first, std::int64_t last) {
          if (first % 4 == 2) throw Error("loader", "no more");
          return loss(first, last);
        });
      });
      distribute(opt, group);  // compares all state
      opt.run_batch(12, 2, loss);
      return fmt::format("{:a} {}", opt.loss_totals().loss, opt.loss_totals().weight);
    });
    for (const auto& e : ends) {
      CHECK(e == ends[0]);
      CHECK(e.ends_with(" 24"));
    }
  }
}

TEST_CASE("[S34][S40] ranks: load_run() warns of running statistics that were each rank's own",
          "[host]") {
  const test::TempFolder folder;
  const auto warnings_of = [&](int ranks, nn::BatchNormMode mode) {
    const Warnings warnings;
    const auto means = on_ranks<double>(ranks, [&](const Group& group) {
      manual_seed(1);
      nn::Sequential net{nn::Linear(7, 3), nn::BatchNorm1d(3, {.accumulation = mode})};
      optim::SGD opt(net.parameters(), {.lr = 0.1});
      distribute(opt, group);
      const Rows rows(12, 7, 3, 41);
      opt.run_batch(12, 12, [&](std::int64_t first, std::int64_t last) {
        return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
      });
      io::save_run(folder.file("run"), {net, opt});
      io::load_run(folder.file("run"), {net, opt});
      return net.named_buffers()[0].tensor.sum().item();
    });
    for (const double mean : means) CHECK(mean == means[0]);
    return warnings.texts;
  };
  const auto own = warnings_of(2, nn::BatchNormMode::per_micro_batch);
  REQUIRE(own.size() == 1);
  CHECK(mentions(own[0], {"[load_run]", "all 2 ranks", "running statistics of 1 ", "per_step"}));
  CHECK(warnings_of(2, nn::BatchNormMode::per_step).empty());
  CHECK(warnings_of(1, nn::BatchNormMode::per_micro_batch).empty());
}

}  // namespace
}  // namespace firn::testing
