// Runs of several ranks in files, and state that ranks divide among them (ZeRO).
#include <fmt/format.h>
#include "data/files.h"
#include "dist/training.h"
#include "firn/io/checkpoints.h"
#include "optim/impl.h"
#include "support/thread_check.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

/// Steps [first, last) of a training over a batch that ranks divide.
void train(nn::Module& net, optim::Optimizer& opt, int first, int last) {
  for (int step = first; step < last; ++step) {
    const Rows rows(12, 7, 3, 100 + static_cast<std::uint64_t>(step), f64);
    opt.run_batch(12, 4, [&](std::int64_t from, std::int64_t to) {
      const DType dtype = net.parameters()[0].dtype();
      return cross_entropy(net(rows.x.slice(0, from, to).to(dtype)), rows.y.slice(0, from, to));
    });
  }
}

// ---- Saved runs ----

TEST_CASE("[S33][S40] ranks: a run saved between steps goes on with any number of ranks",
          "[host]") {
  const test::TempFolder folder;
  const std::string file = folder.file("run");
  const auto part = [&](const Group& group, int first, int last, bool load) {
    manual_seed(2);
    SmallMlp net(f64);
    optim::AdamW opt(net.parameters(), {.lr = 1e-2});
    distribute(opt, group);
    if (load) io::load_run(file, {net, opt});
    train(net, opt, first, last);
    if (last < 4) io::save_run(file, {net, opt});
    return weights_of(opt);
  };
  const auto whole = part(Group(), 0, 4, false);
  on_ranks<std::vector<double>>(4, [&](const Group& g) { return part(g, 0, 2, false); });
  for (const int ranks : {1, 2, 3}) {
    const auto ends =
        on_ranks<std::vector<double>>(ranks, [&](const Group& g) { return part(g, 2, 4, true); });
    for (const auto& w : ends) CHECK(w == ends[0]);
    CHECK(relative_distance(ends[0], whole) <= 1e-12);
  }
}

TEST_CASE("[S33][S40] ranks: each goes on with its own random numbers", "[host]") {
  const test::TempFolder folder;
  const std::string file = folder.file("run");
  const auto part = [&](const Group& group, int first, int last, bool load) {
    manual_seed(2);
    nn::Sequential net(nn::Linear(7, 8), nn::Dropout(0.5), nn::Linear(8, 3));
    optim::AdamW opt(net.parameters(), {.lr = 1e-2});
    distribute(opt, group, {.broadcast = true});
    seed_thread(static_cast<std::uint64_t>(group.rank()));
    if (load) manual_seed(77);
    if (load) io::load_run(file, {net, opt});
    train(net, opt, first, last);
    if (last < 4) io::save_run(file, {net, opt});
    return weights_of(opt);
  };
  const auto whole =
      on_ranks<std::vector<double>>(3, [&](const Group& g) { return part(g, 0, 4, false); });
  on_ranks<std::vector<double>>(3, [&](const Group& g) { return part(g, 0, 2, false); });
  CHECK(on_ranks<std::vector<double>>(3, [&](const Group& g) { return part(g, 2, 4, true); }) ==
        whole);

  // Where the streams are after loading, on any number of ranks.
  std::int64_t step = 2;
  const auto streams = [&](int ranks) {
    return on_ranks<std::pair<std::uint64_t, std::uint64_t>>(ranks, [&](const Group& group) {
      SmallMlp net(f64);
      optim::AdamW opt(net.parameters(), {.lr = 1e-2});
      distribute(opt, group);
      if (ranks == 3) {
        const auto rank = static_cast<std::uint64_t>(group.rank());
        default_generator().set(Generator::of_thread(5, rank).get());
        static_cast<void>(default_generator().reserve(4 * (rank + 1)));
        io::save_run(file, {net, opt, {"step", step}});
      }
      manual_seed(6);
      io::load_run(file, {net, opt, {"step", step}});
      const RandomKey key = default_generator().get();
      return std::pair(key.seed, key.offset);
    });
  };
  const auto of = [](std::uint64_t rank) { return Generator::of_thread(5, rank).get().seed; };
  using Streams = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  const Streams all{{of(0), 1}, {of(1), 2}, {of(2), 3}};
  CHECK(streams(3) == all);
  CHECK(streams(2) == Streams(all.begin(), all.begin() + 2));
  CHECK(streams(1) == Streams{all[0]});
  CHECK(streams(5) == Streams{all[0], all[1], all[2], {of(3), 1}, {of(4), 1}});
}

TEST_CASE("[S33][S40] ranks that draw the same numbers save one stream", "[host]") {
  const test::TempFolder folder;
  const auto saved = [&](int ranks) {
    const std::string file = folder.file(fmt::format("run{}", ranks));
    on_ranks<int>(ranks, [&](const Group& group) {
      manual_seed(3);
      SmallMlp net(f64);
      optim::AdamW opt(net.parameters(), {.lr = 1e-2});
      distribute(opt, group);
      io::save_run(file, {net, opt});
      return 0;
    });
    return test::read_file(file);
  };
  CHECK(saved(3) == saved(1));
}

/// Six micro-batches of four samples make a cycle; each is the next rank's.
struct ByHand {
  SmallMlp net{f64};
  optim::AdamW opt{net.parameters(), {.lr = 1e-2}, {.accumulate = 6}};
  const Rows rows{24, 7, 3, 77, f64};

  void micro_steps(const Group& group, int first, int last) {
    for (int i = first; i < last; ++i) {
      if (i % group.size() == group.rank())
        opt.backward(cross_entropy(net(rows.x.slice(0, 4 * i, 4 * i + 4)),
                                   rows.y.slice(0, 4 * i, 4 * i + 4)));
      else
        opt.no_samples();
      opt.step();
    }
  }
};

TEST_CASE("[S23][S33][S40] ranks: a run saved in mid-cycle goes on with any number of ranks",
          "[host]") {
  const test::TempFolder folder;
  const auto whole = on_ranks<std::vector<double>>(1, [&](const Group& group) {
    manual_seed(2);
    ByHand run;
    run.micro_steps(group, 0, 6);
    run.micro_steps(group, 0, 6);
    return weights_of(run.opt);
  })[0];
  for (const int saved_by : {1, 2, 4})
    for (const int zero : {0, 1, 2}) {
      const std::string file = folder.file(fmt::format("{}-{}", saved_by, zero));
      on_ranks<int>(saved_by, [&](const Group& group) {
        manual_seed(2);
        ByHand run;
        distribute(run.opt, group, {.zero = zero});
        run.micro_steps(group, 0, 6);
        run.micro_steps(group, 0, 3);
        io::save_run(file, {run.net, run.opt});
        return 0;
      });
      for (const int ranks : {1, 2, 3}) {
        CAPTURE(saved_by, zero, ranks);
        struct End {
          std::vector<double> weights;
          double loss, weight;
          std::int64_t micro_steps;
        };
        const auto ends = on_ranks<End>(ranks, [&](const Group& group) {
          manual_seed(9);  // other weights: those of the file count
          ByHand run;
          distribute(run.opt, group, {.zero = (zero + 1) % 3});
          io::load_run(file, {run.net, run.opt});
          THREAD_CHECK(run.opt.cycle_position() == 3);
          run.micro_steps(group, 3, 5);
          // Once more on the way.
          io::save_run(file + "-again", {run.net, run.opt});
          run.micro_steps(group, 5, 6);
          const auto report = run.opt.last_report();
          const auto totals = run.opt.loss_totals();
          THREAD_CHECK(report.weight() == 24);
          return End{weights_of(run.opt), totals.loss, totals.weight, report.micro_steps()};
        });
        for (const End& e : ends) {
          CHECK(e.weights == ends[0].weights);
          CHECK(e.loss == ends[0].loss);
          CHECK(e.weight == 48);
        }
        CHECK(relative_distance(ends[0].weights, whole) <= 1e-12);
        manual_seed(9);
        ByHand alone;
        io::load_run(file + "-again", {alone.net, alone.opt});
        alone.micro_steps(Group(), 5, 6);
        CHECK(relative_distance(weights_of(alone.opt), whole) <= 1e-12);
      }
    }
}

TEST_CASE("[S23][S40] ranks: a save between backward() and step() goes on with that step()",
          "[host]") {
  const test::TempFolder folder;
  const std::string file = folder.file("run");
  const auto whole = on_ranks<std::vector<double>>(3, [&](const Group& group) {
    manual_seed(2);
    ByHand run;
    distribute(run.opt, group);
    run.micro_steps(group, 0, 3);
    run.opt.backward(cross_entropy(run.net(run.rows.x), run.rows.y));
    io::save_run(file, {run.net, run.opt});
    run.opt.step();
    run.micro_steps(group, 4, 6);
    return weights_of(run.opt);
  })[0];
  for (const int ranks : {1, 2}) {
    const auto ends = on_ranks<std::vector<double>>(ranks, [&](const Group& group) {
      manual_seed(9);
      ByHand run;
      distribute(run.opt, group);
      io::load_run(file, {run.net, run.opt});
      run.opt.step();
      run.micro_steps(group, 4, 6);
      THREAD_CHECK(run.opt.cycle_position() == 0);
      return weights_of(run.opt);
    });
    for (const auto& w : ends) CHECK(relative_distance(w, whole) <= 1e-12);
  }
}

TEST_CASE("ranks: calls of step() that differ are named", "[host]") {
  const auto errors = errors_on_ranks(2, [&](const Group& group) {
    manual_seed(2);
    ByHand run;
    distribute(run.opt, group);
    for (int i = 0; i < 2; ++i) {
      run.opt.no_samples();
      if (i == 0 || group.rank() == 0) run.opt.step();
    }
    run.opt.flush();
  });
  for (const auto& e : errors)
    CHECK(
        mentions(e, {"step() was called 1 times in this cycle on rank 1, and 2 times on rank 0"}));
}

TEST_CASE("ranks: a cycle with statistics of layers is saved between steps alone", "[host]") {
  const test::TempFolder folder;
  const auto errors = errors_on_ranks(2, [&](const Group& group) {
    manual_seed(2);
    nn::Sequential net{nn::Linear(7, 4),
                       nn::BatchNorm1d(4, {.accumulation = nn::BatchNormMode::per_step}),
                       nn::Linear(4, 3)};
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    distribute(opt, group);
    const Rows rows(8, 7, 3, 5);
    opt.backward(cross_entropy(net(rows.x), rows.y));
    io::save_run(folder.file("no"), {net, opt});
  });
  for (const auto& e : errors) CHECK(mentions(e, {"save between two steps", "1 layers"}));
}

TEST_CASE("ranks: checkpoints are those of rank 0, and a failure is one of all ranks", "[host]") {
  const test::TempFolder folder;
  const std::string path = folder.file("checkpoints");
  for (const bool async : {false, true}) {
    on_ranks<int>(3, [&](const Group& group) {
      manual_seed(2);
      SmallMlp net;
      optim::AdamW opt(net.parameters());
      distribute(opt, group, {.zero = 1});
      io::Checkpoints checkpoints(path, {.keep = 2, .async = async});
      const auto found = checkpoints.resume({net, opt});
      THREAD_CHECK(found.has_value() == async);
      for (int step = 0; step < 3; ++step) {
        train(net, opt, step, step + 1);
        checkpoints.save((async ? 10 : 0) + step, {net, opt});
      }
      checkpoints.wait();
      return 0;
    });
    CHECK(io::Checkpoints(path).list().size() == 2);
  }
  const auto errors = errors_on_ranks(2, [&](const Group& group) {
    manual_seed(2);
    SmallMlp net;
    optim::AdamW opt(net.parameters());
    distribute(opt, group);
    const std::string file = error_of([&] { io::save_run(path + "/no/such/folder", {net, opt}); });
    const std::string twice = error_of([&] {
      const std::vector<io::RunPart> parts = group.rank() == 1
                                                 ? std::vector<io::RunPart>{net, opt, opt}
                                                 : std::vector<io::RunPart>{net, opt};
      io::save_run(path + "/twice", parts);
    });
    THREAD_CHECK(mentions(twice, {group.rank() == 1 ? "is given twice" : "rank 1 has failed"}));
    io::Checkpoints elsewhere(folder.file("steps"));
    const std::string steps = error_of([&] { elsewhere.save(5 + group.rank(), {net, opt}); });
    THREAD_CHECK(
        mentions(steps, {group.rank() == 1 ? "rank 0 saves step 5" : "rank 1 has failed"}));
    const std::string within = error_of([&] {
      opt.run_batch(12, 4, [&](std::int64_t, std::int64_t) -> Loss {
        io::save_run(path + "/within", {net, opt});
        throw Error("test", "it was saved");
      });
    });
    THREAD_CHECK(mentions(within, {"a run_batch() is under way"}));
    const std::string other = error_of([&] { io::Checkpoints(path).save(99, {net, opt}); });
    train(net, opt, 0, 1);  // the group is whole
    throw Error("both", file + other);
  });
  CHECK(mentions(errors[0], {"no/such/folder", "of another run"}));
  CHECK(mentions(errors[1], {"save_run", "Checkpoints", "rank 0 has failed"}));
}

// ---- Divided state ----

TEST_CASE("[S40][S43] zero: the bits of undivided training, for every optimizer", "[host]") {
  const test::TempFolder folder;
  for (const OptimizerKind& kind : all_kinds())
    for (const DType dtype : {f32, bf16})
      for (const int ranks : {2, 3, 5}) {
        CAPTURE(kind.name, dtype, ranks);
        if (std::string(kind.name).starts_with("ScheduleFree")) continue;
        std::string files[2], averages[2];
        for (const int zero : {0, 1}) {
          const std::string file = folder.file("run");
          const auto ends = on_ranks<std::string>(ranks, [&](const Group& group) {
            manual_seed(2);
            SmallMlp net;
            net.to(dtype);
            const OptimizerPtr opt = kind.make(net, {.clip_norm = 0.5, .ema = 0.9});
            distribute(*opt, group, {.zero = zero});
            train(net, *opt, 0, 3);
            Bits bits;
            for (const Tensor& t : optim::ema(*opt)) bits = bits + bits_of(t);
            {
              const optim::AveragedWeights scope(*opt);
              for (const Tensor& t : opt->parameters()) bits = bits + bits_of(t);
            }
            io::save_run(file, {net, *opt});
            return bits.bytes;
          });
          files[zero] = test::read_file(file);
          for (const auto& e : ends) CHECK(e == ends[0]);
          averages[zero] = ends[0];
        }
        CHECK(!files[0].empty());
        CHECK(files[0] == files[1]);
        CHECK(averages[0] == averages[1]);
      }
}

TEST_CASE("[S39][S43] zero: exact mode has one set of bits, over saves on other numbers of ranks",
          "[host]") {
  const test::TempFolder folder;
  const std::string file = folder.file("run");
  const auto part = [&](const Group& group, int zero, int first, int last, bool load) {
    manual_seed(2);
    SmallMlp net;
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.clip_norm = 0.5, .exact = {.chunk = 2}});
    distribute(opt, group, {.zero = zero});
    if (load) io::load_run(file, {net, opt});
    train(net, opt, first, last);
    if (last < 4) io::save_run(file, {net, opt});
    Bits bits;
    for (const Tensor& t : opt.parameters()) bits = bits + bits_of(t);
    return bits.bytes;
  };
  const std::string whole = part(Group(), 0, 0, 4, false);
  for (const int saved_by : {1, 4}) {
    on_ranks<std::string>(saved_by, [&](const Group& g) { return part(g, 1, 0, 2, false); });
    for (const int ranks : {1, 2, 3})
      for (const int zero : {0, 1, 2})
        for (const auto& end : on_ranks<std::string>(
                 ranks, [&](const Group& g) { return part(g, zero, 2, 4, true); }))
          CHECK(end == whole);
  }
}

TEST_CASE("[S05][S40][S43] zero: weights without masters round as they do undivided", "[host]") {
  std::string bits[3];
  for (const int zero : {0, 1, 2})
    bits[zero] = on_ranks<std::string>(3, [&](const Group& group) {
      manual_seed(2);
      nn::Sequential net{nn::Linear(7, 300), nn::GELU(), nn::Linear(300, 3)};
      net.to(bf16);
      optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.stochastic_rounding = true});
      distribute(opt, group, {.zero = zero});
      train(net, opt, 0, 3);
      Bits all;
      for (const Tensor& t : opt.parameters()) all = all + bits_of(t);
      return all.bytes;
    })[2];
  CHECK(bits[0] == bits[1]);
  CHECK(bits[0] == bits[2]);  // a micro-step of each rank
}

TEST_CASE("[S28][S43] zero: weights that are written reach the masters of all parts", "[host]") {
  const auto ends = on_ranks<std::vector<double>>(3, [&](const Group& group) {
    manual_seed(2);
    SmallMlp net;
    net.to(bf16);
    optim::SGD opt(net.parameters(), {.lr = 0});
    distribute(opt, group, {.zero = 2});
    {
      const NoGrad guard;
      for (const Tensor& t : opt.parameters()) t.fill_(0.25);
    }
    train(net, opt, 0, 1);
    return weights_of(opt);
  });
  for (const auto& weights : ends)
    for (const double w : weights) CHECK(w == 0.25);
}

TEST_CASE("[S43] zero: ranks together keep one state", "[host]") {
  struct Case {
    const char* name;
    optim::StatePrecision precision;
    DType dtype;
    double bytes;  ///< a parameter: masters, moments and average
    double gradient = 4;
  };
  for (const Case& c : {Case{"f32", optim::StatePrecision::full, f32, 12},
                        Case{"bf16", optim::StatePrecision::full, bf16, 16},
                        Case{"8 bits", optim::StatePrecision::bits8, f32, 6}}) {
    CAPTURE(c.name);
    std::size_t kept[3], gradients[3];
    std::int64_t elements = 0;
    constexpr int kRanks = 4;
    for (const int zero : {0, 1, 2}) {
      on_ranks<int>(kRanks, [&](const Group& group) {
        nn::Sequential net{nn::Linear(100, 200), nn::GELU(), nn::Linear(200, 50)};
        net.to(c.dtype);
        optim::AdamW opt(net.parameters(), {.state = c.precision}, {.ema = 0.9});
        distribute(opt, group, {.broadcast = true, .zero = zero});
        group.barrier();
        if (group.rank() == 0) {
          elements = 0;
          for (const Tensor& t : opt.parameters()) elements += t.numel();
          const auto stats = memory_stats(Device::cpu());
          gradients[zero] = stats.of(Owner::gradients).current;
          kept[zero] = stats.of(Owner::optimizer).current + stats.of(Owner::masters).current;
        }
        group.barrier();
        return 0;
      });
    }
    // Without it each rank has all: three states too many.
    const auto saved = static_cast<double>(kept[0]) - static_cast<double>(kept[1]);
    const double expected = (kRanks - 1) * c.bytes * static_cast<double>(elements);
    CHECK(saved >= 0.99 * expected);
    CHECK(saved <= 1.04 * expected);  // blocks of 256 elements end with a parameter
    CHECK(kept[2] <= kept[1] + kept[1] / 50);
    CHECK(gradients[1] == gradients[0]);
    CHECK(static_cast<double>(gradients[0] - gradients[2]) >=
          0.99 * (kRanks - 1) * c.gradient * static_cast<double>(elements));
  }
}

/// SGD as a rule of the user's, which fails for one of four parameters at the second step.
optim::CustomOptions failing(const bool& fails) {
  return {.lr = 0.1, .update = [&fails](const optim::CustomInput& in) -> optim::CustomUpdate {
            if (fails && in.parameter == 3) throw Error("rule", "the last one fails");
            return {in.weight - in.lr * in.gradient};
          }};
}

TEST_CASE("[S21][S43] zero: a rule that fails on one rank fails on all, and step() can be repeated",
          "[host]") {
  struct End {
    std::string error;
    std::vector<double> weights;
    double weight, loss;
  };
  const Rows rows(24, 7, 3, 77, f64);
  const auto run = [&](int zero, bool failure) {
    return on_ranks<End>(2, [&](const Group& group) {
      manual_seed(2);
      SmallMlp net(f64);
      bool fails = false;
      optim::Custom opt(net.parameters(), failing(fails));
      distribute(opt, group, {.zero = zero});
      End end;
      for (int step = 0; step < 3; ++step) {
        opt.backward(cross_entropy(net(rows.x), rows.y));
        if (failure && step == 1) {
          fails = group.rank() == 1;
          const auto before = weights_of(opt);
          end.error = error_of([&] { opt.step(); });
          THREAD_CHECK(weights_of(opt) == before);
          THREAD_CHECK(mentions(error_of([&] { opt.no_samples(); }), {"call step() again"}));
          fails = false;
        }
        end.weight = opt.step().weight();
      }
      end.weights = weights_of(opt);
      end.loss = opt.loss_totals().loss;
      return end;
    });
  };
  const auto plain = run(0, false);
  CHECK(plain[0].weight == 48);
  for (const int zero : {0, 1, 2}) {
    CAPTURE(zero);
    const auto ends = run(zero, true);
    CHECK(mentions(ends[0].error, {"rank 1 has failed"}));
    CHECK(mentions(ends[1].error, {"the last one fails"}));
    for (const End& e : ends) {
      CHECK(e.weights == plain[0].weights);
      CHECK(e.weight == plain[0].weight);
      CHECK(e.loss == plain[0].loss);
    }
  }
}

TEST_CASE("[S40][S43] zero: ranks agree on whether a failed rule drops the cycle", "[host]") {
  const auto spoils = on_ranks<int>(3, [](const Group& group) {
    manual_seed(2);
    SmallMlp net;
    optim::Muon opt(net.parameters());  // two matrices for three ranks
    distribute(opt, group, {.zero = 1});
    return optim::OptimizerAccess::impl(opt).store.non_elementwise().spoils_gradients() ? 1 : 0;
  });
  CHECK(spoils == std::vector<int>{1, 1, 1});
}

TEST_CASE("ranks: run_local() throws the cause, not what follows from it", "[host]") {
  const test::TempFolder folder;
  const std::string error = error_of([&] {
    dist::run_local(2, [&](const Group& group) {
      manual_seed(2);
      SmallMlp net;
      optim::SGD opt(net.parameters());
      distribute(opt, group);
      const std::vector<io::RunPart> twice{net, opt, opt}, once{net, opt};
      io::save_run(folder.file("run"), group.rank() == 1 ? twice : once);
    });
  });
  CHECK(mentions(error, {"is given twice"}));
}

TEST_CASE("[S32] ranks: a cycle that has failed on one rank is saved by none", "[host]") {
  const test::TempFolder folder;
  const auto errors = errors_on_ranks(2, [&](const Group& group) {
    manual_seed(2);
    ByHand run;
    distribute(run.opt, group);
    add_hook(run.net.a.weight, [&](const Tensor& g) -> Tensor {
      if (group.rank() == 1) throw Error("hook", "no");
      return g;
    });
    const auto pass = [&] { run.opt.backward(cross_entropy(run.net(run.rows.x), run.rows.y)); };
    if (group.rank() == 1)
      THREAD_CHECK(mentions(error_of(pass), {"no"}));
    else
      pass();
    const std::string error = error_of([&] {
      io::save_run(folder.file("run"), {run.net, run.opt});
    });
    group.barrier();  // it is whole
    throw Error("save", error);
  });
  CHECK(mentions(errors[0], {"rank 1 has failed"}));
  CHECK(mentions(errors[1], {"has failed half-way"}));
}

TEST_CASE("zero: rules of parameters without elements", "[host]") {
  const test::TempFolder folder;
  for (const int ranks : {1, 3})
    on_ranks<int>(ranks, [&](const Group& group) {
      const Tensor a = parameter({}, {0, 3}), b = parameter({}, {0});
      const std::vector<Tensor> both{a, b};
      optim::Muon opt(both);
      distribute(opt, group, {.zero = ranks > 1 ? 1 : 0});
      io::save_run(folder.file("empty"), {opt});
      io::load_run(folder.file("empty"), {opt});
      return 0;
    });
}

TEST_CASE("zero: what cannot be is refused, and changes nothing", "[host]") {
  const auto errors = errors_on_ranks(2, [&](const Group& group) {
    manual_seed(2);
    SmallMlp net, second;
    optim::AdamW opt(net.parameters());
    const std::string stage = error_of([&] { distribute(opt, group, {.zero = 4}); });
    const std::string other = error_of([&] { distribute(opt, group, {.zero = group.rank()}); });
    distribute(opt, group, {.zero = 1});
    const std::string state = error_of([&] { (void)opt.state(); });
    const std::string twice = error_of([&] { distribute(opt, group); });
    train(net, opt, 0, 1);
    optim::ScheduleFreeAdamW free(second.parameters());
    const std::string whole = error_of([&] { distribute(free, group, {.zero = 1}); });
    distribute(free, group);
    train(second, free, 0, 1);
    throw Error("all", stage + "\n" + other + "\n" + state + "\n" + twice + "\n" + whole);
  });
  for (const auto& e : errors)
    CHECK(mentions(e, {"ZeRO stage 4", "\"AdamW", "ZeRO stage 1", "each rank has a part",
                       "sharded over 2 ranks already", "schedule-free weights"}));
}

}  // namespace
}  // namespace firn::testing
