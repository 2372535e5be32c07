// Failures with sharded gradients reach all ranks, and no rank waits for one that has failed.
#include <chrono>

#include "dist/failing_ranks.h"
#include "dist/zero/zero.h"
#include "firn/optim/health.h"
#include "firn/runtime/rollback.h"
#include "support/thread_check.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

/// Two layers, an optimizer, and batches of 24 samples, which ranks share.
struct Training {
  SmallMlp net;
  optim::AdamW opt;
  const Rows rows{24, 7, 3, 77};

  explicit Training(const Group& group, const optim::StepOptions& step = {}, int zero = 2)
      : net(made()), opt(net.parameters(), {.lr = 1e-2}, step) {
    distribute(opt, group, {.zero = zero});
  }
  static SmallMlp made() {
    manual_seed(2);
    return SmallMlp();
  }
  Loss loss(std::int64_t first, std::int64_t last) {
    return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
  }
  optim::StepReport batch() {
    return opt.run_batch(24, 2, [&](auto first, auto last) { return loss(first, last); });
  }
};

/// Of run(group, fails): ranks end with the weights of a run in which nothing fails.
void check_no_trace(const std::function<std::vector<double>(const Group&, bool)>& run) {
  using Weights = std::vector<double>;
  const auto plain = on_ranks<Weights>(3, [&](const Group& g) { return run(g, false); });
  for (const auto& w :
       on_ranks<Weights>(3, [&](const Group& g) { return run(g, true); }, {.deadline = 20}))
    CHECK(w == plain[0]);
}

TEST_CASE(
    "[S40][S42][S43] zero 2: a loss that throws on one rank fails on all, and no trace is left",
    "[host]") {
  const SmallBuckets buckets(200);
  for (const std::int64_t chunk : {0, 2})
    for (const int zero : {2, 3}) {
      const auto run = [&](const Group& group, bool fails) {
        Training t(group, {.exact = {.chunk = chunk}}, zero);
        t.batch();
        const RandomKey stream = default_generator().get();
        for (const int at : {0, 1, 3}) {
          if (!fails) continue;
          int turn = 0;
          const std::string error = error_of([&] {
            t.opt.run_batch(24, 2, [&](auto first, auto last) {
              if (group.rank() == 1 && turn++ == at) throw Error("loader", "no more");
              return t.loss(first, last);
            });
          });
          THREAD_CHECK(mentions(error, {group.rank() == 1 ? "no more" : "rank 1 has failed"}));
        }
        default_generator().set(stream);
        THREAD_CHECK(t.batch().weight() == 24);
        return weights_of(t.opt);
      };
      check_no_trace(run);
    }
}

TEST_CASE("[S40][S42][S43] zero 3: a rank that fails between two layers leaves no weights behind",
          "[host]") {
  const SmallBuckets buckets(4);  // one for each parameter
  for (const std::int64_t chunk : {0, 2})
    for (const bool whole : {false, true}) {
      const auto run = [&](const Group& group, bool fails) {
        Training t(group, {.exact = {.chunk = chunk}}, 3);
        t.batch();
        const RandomKey stream = default_generator().get();
        const auto totals = t.opt.loss_totals();
        if (fails) {
          const std::string error = error_of([&] {
            t.opt.run_batch(24, 2, [&](auto first, auto last) -> Loss {
              const Tensor h = gelu(t.net.a(t.rows.x.slice(0, first, last)));
              if (group.rank() == 1) throw Error("loader", "no more");
              return cross_entropy(t.net.b(h), t.rows.y.slice(0, first, last));
            });
          });
          THREAD_CHECK(mentions(error, {group.rank() == 1 ? "no more" : "rank 1 has failed"}));
        }
        THREAD_CHECK(t.opt.loss_totals().weight == totals.weight);
        if (whole) const optim::GatheredWeights weights(t.opt);
        default_generator().set(stream);
        THREAD_CHECK(t.batch().weight() == 24);
        return weights_of(t.opt);
      };
      check_no_trace(run);
    }
}

TEST_CASE("[S40] ranks: a batch that fails at its first sample leaves the totals of the loss",
          "[host]") {
  for (const std::int64_t chunk : {0, 2}) {
    Training t(Group(), {.exact = {.chunk = chunk}}, 0);
    t.batch();
    t.batch();
    const auto before = t.opt.loss_totals();
    CHECK_THROWS_AS(t.opt.run_batch(24, 2, [](auto, auto) -> Loss { throw Error("loader", "no"); }),
                    Error);
    CHECK(t.opt.loss_totals().weight == before.weight);
    CHECK(t.opt.loss_totals().loss == before.loss);
  }
}

TEST_CASE("[S40][S42][S43] zero 2: a backward pass that throws on one rank fails on all",
          "[host]") {
  for (const std::int64_t bytes : {4, 1 << 20})
    for (const int zero : {2, 3}) {
      const SmallBuckets buckets(bytes);
      const auto run = [&](const Group& group, bool fails) {
        Training t(group, {.accumulate = 2}, zero);
        const auto cycle = [&] {
          for (int micro = 0; micro < 2; ++micro) {
            t.opt.backward(t.loss(8 * group.rank(), 8 * group.rank() + 8));
            t.opt.step();
          }
        };
        cycle();
        if (fails) {
          t.opt.backward(t.loss(0, 2));
          const Tensor hidden = t.net.a(t.rows.x);  // between the two layers
          if (group.rank() == 1)
            add_hook(hidden, [](const Tensor&) -> Tensor { throw Error("hook", "no"); });
          const std::string error =
              error_of([&] { t.opt.backward(cross_entropy(t.net.b(gelu(hidden)), t.rows.y)); });
          THREAD_CHECK(mentions(error, {group.rank() == 1 ? "no" : "rank 1 has failed"}));
          THREAD_CHECK(mentions(error_of([&] { t.opt.backward(t.loss(0, 2)); }), {"zero_grad()"}));
          t.opt.zero_grad();
        }
        cycle();
        return weights_of(t.opt);
      };
      check_no_trace(run);
    }
}

TEST_CASE("[S22][S37][S43] zero 2: if memory runs out on one rank, all halve their micro-batches",
          "[host]") {
  const int zero = GENERATE(2, 3);
  const bool of_the_heap = GENERATE(false, true);
  CAPTURE(zero, of_the_heap);
  const auto weights = on_ranks<std::vector<double>>(
      3,
      [&](const Group& group) {
        Training t(group, {}, zero);
        const auto report =
            t.opt.run_batch(24, {.size = 8}, [&](std::int64_t first, std::int64_t last) {
              if (group.rank() == 1 && last - first > 4) {
                if (of_the_heap) throw std::bad_alloc();
                throw OutOfMemory("none", 1);
              }
              return t.loss(first, last);
            });
        THREAD_CHECK(report.weight() == 24);
        THREAD_CHECK(report.micro_steps() == 6);
        THREAD_CHECK(report.micro_batch() == 4);
        return weights_of(t.opt);
      },
      {.deadline = 20});
  for (const auto& w : weights) CHECK(w == weights[0]);
}

TEST_CASE("[S37][S43] zero 2: with keep_accumulator a cycle is as before if memory runs out",
          "[host]") {
  for (const int zero : {2, 3}) {
    const auto run = [zero](const Group& group, bool fails) {
      Training t(group, {.accumulate = 2, .keep_accumulator = true}, zero);
      for (int micro = 0; micro < 2; ++micro) {
        if (fails) {
          const Tensor hidden = t.net.a(t.rows.x);
          if (group.rank() == 1)
            add_hook(hidden, [](const Tensor&) -> Tensor { throw OutOfMemory("none", 1); });
          THREAD_CHECK_THROWS_AS(t.opt.backward(cross_entropy(t.net.b(gelu(hidden)), t.rows.y)),
                                 OutOfMemory);
        }
        t.opt.backward(t.loss(8 * group.rank(), 8 * group.rank() + 8 - micro));
        t.opt.step();
      }
      return weights_of(t.opt);
    };
    using Weights = std::vector<double>;
    const auto plain = on_ranks<Weights>(3, [&](const Group& g) { return run(g, false); });
    for (const auto& w :
         on_ranks<Weights>(3, [&](const Group& g) { return run(g, true); }, {.deadline = 20}))
      CHECK(w == plain[0]);
  }
}

TEST_CASE("[S37][S43] zero 2: a cycle is rolled back on all ranks", "[host]") {
  const auto run = [](const Group& group, bool back) {
    Training t(group, {.accumulate = 3});
    t.opt.backward(t.loss(8 * group.rank(), 8 * group.rank() + 4));
    t.opt.step();
    if (back) {
      RollbackPoint point;
      t.opt.backward(t.loss(0, 24));
      t.opt.step();
      point.roll_back();
    }
    t.opt.backward(t.loss(8 * group.rank() + 4, 8 * group.rank() + 8));
    t.opt.step();
    t.opt.no_samples();
    THREAD_CHECK(t.opt.step().weight() == 24);
    return weights_of(t.opt);
  };
  using Weights = std::vector<double>;
  const auto plain = on_ranks<Weights>(3, [&](const Group& g) { return run(g, false); });
  for (const auto& w : on_ranks<Weights>(3, [&](const Group& g) { return run(g, true); }))
    CHECK(w == plain[0]);
}

TEST_CASE("[S40][S43] zero 2: ranks that make other micro-steps are refused on every rank",
          "[host]") {
  const auto refused = [](const std::function<void(const Group&, Training&)>& work,
                          std::initializer_list<const char*> parts) {
    for (const auto& e : errors_on_ranks(
             2,
             [&](const Group& group) {
               Training t(group, {.accumulate = 2});
               work(group, t);
             },
             20))
      CHECK(mentions(e, parts));
  };
  refused(
      [](const Group& g, Training& t) {
        if (g.rank() == 1) t.opt.backward(t.loss(0, 2));
        t.opt.backward(t.loss(0, 2));
        t.opt.flush();
      },
      {"rank 1 makes a micro-step, and rank 0 ends a cycle", "no_samples()"});
  refused(
      [](const Group& g, Training& t) {
        t.opt.backward(t.loss(0, 2));
        if (g.rank() == 1) t.opt.step();
        t.opt.backward(t.loss(0, 2));
      },
      {"step() was called 1 times in this cycle on rank 1"});
}

TEST_CASE("[S40][S42] ranks: a cycle that one rank alone drops is named on every rank", "[host]") {
  const Warnings quiet;  // zero_grad() warns in mid-cycle
  const SmallBuckets buckets(200);
  struct End {
    std::string error, then;
    double seconds = 0;
  };
  enum class At { first_backward, first_step, last_backward };
  for (const bool overlap : {false, true})
    for (int zero = 0; zero <= 3; ++zero)
      for (const bool by_flush : {false, true})
        for (const At at : {At::first_backward, At::first_step, At::last_backward}) {
          if (overlap && zero == 2) continue;
          CAPTURE(overlap, zero, by_flush, int(at));
          const auto ends = on_ranks<End>(
              2,
              [&](const Group& group) {
                SmallMlp net = Training::made();
                optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.accumulate = 2});
                distribute(opt, group, {.zero = zero, .overlap = overlap});
                const Rows rows(8, 7, 3, 77);
                const auto drops = [&](At here) {
                  if (here != at || group.rank() != 1) return false;
                  by_flush ? void(opt.flush(optim::Partial::drop)) : opt.zero_grad();
                  return true;
                };
                const auto cycle = [&](bool may_drop) {
                  for (std::int64_t i = 0; i < 2; ++i) {
                    const std::int64_t first = 4 * group.rank() + 2 * i;
                    opt.backward(cross_entropy(net(rows.x.slice(0, first, first + 2)),
                                               rows.y.slice(0, first, first + 2)));
                    if (may_drop && drops(i == 0 ? At::first_backward : At::last_backward)) return;
                    opt.step();
                    if (may_drop && i == 0 && drops(At::first_step)) return;
                  }
                };
                cycle(false);
                End end;
                const auto begin = std::chrono::steady_clock::now();
                end.error = thrown_by([&] {
                  cycle(true);
                  cycle(false);
                });
                opt.zero_grad();
                end.seconds =
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
                end.then = thrown_by([&] { cycle(false); });
                return end;
              },
              {.deadline = 5});
          for (const End& end : ends) {
            CHECK(mentions(end.error, {"rank 1 has dropped 1 cycles"}));
            CHECK(end.seconds < 4);
            CHECK(end.then == "");
          }
        }
}

TEST_CASE("[S43] zero 2: what asks for a whole gradient is refused", "[host]") {
  const auto errors = errors_on_ranks(2, [](const Group& group) {
    Training t(group);
    const std::string plain =
        error_of([&] { cross_entropy(t.net(t.rows.x), t.rows.y).sum.backward(); });
    t.opt.backward(t.loss(0, 4));
    const std::string grad = error_of([&] { (void)t.net.a.weight.grad(); });
    const std::string set = error_of([&] { t.net.a.weight.set_grad(Tensor()); });
    const std::string health = error_of([&] { (void)optim::gradient_health(t.opt, f16); });
    t.opt.step();
    THREAD_CHECK(!t.net.a.weight.grad().defined());
    const dist::Mesh mesh(group, {.pp = 2});
    SmallMlp stage;
    optim::SGD second(stage.parameters());
    const std::string stages = error_of([&] { distribute(second, mesh, {.zero = 2}); });
    throw Error("all", plain + grad + set + health + stages);
  });
  for (const auto& e : errors)
    CHECK(mentions(
        e, {"not the optimizer's", "call opt.backward(loss)", "[grad]", "[set_grad]",
            "is sharded over ranks", "each rank has its shard alone", "a pipeline of 2 stages"}));
}

TEST_CASE("[S43] zero 2: a parameter leaves its optimizer as it was", "[host]") {
  on_ranks<int>(2, [](const Group& group) {
    SmallMlp net = Training::made();
    {
      optim::AdamW opt(net.parameters());
      distribute(opt, group, {.zero = 2});
      const Rows rows(8, 7, 3, 5);
      opt.run_batch(8, 2, [&](std::int64_t first, std::int64_t last) {
        return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
      });
    }
    const Rows rows(8, 7, 3, 5);
    cross_entropy(net(rows.x), rows.y).sum.backward();
    THREAD_CHECK(net.a.weight.grad().defined());
    return 0;
  });
}

TEST_CASE("[S38][S43] zero 2: memory of gradients beside a backward pass is that of buckets",
          "[host]") {
  // Twelve layers of 64 KiB; a bucket has one of them.
  constexpr int kRanks = 4, kLayers = 12;
  constexpr std::int64_t kWidth = 128;
  const SmallBuckets buckets(kWidth * kWidth * 4);
  std::size_t held[3], peak[3];
  for (const int zero : {0, 2})
    dist::run_local(kRanks, [&](const Group& group) {
      manual_seed(1);
      nn::Sequential net;
      for (int i = 0; i < kLayers; ++i) net.push_back(nn::Linear(kWidth, kWidth, {.bias = false}));
      optim::SGD opt(net.parameters(), {.lr = 0.1});
      distribute(opt, group, {.zero = zero});
      const Tensor x = ones({4, kWidth});
      const auto step = [&] {
        opt.run_batch(4, 1, [&](std::int64_t first, std::int64_t last) -> Loss {
          return {net(x.slice(0, first, last)).square().sum(), ones({})};
        });
      };
      step();
      group.barrier();
      if (group.rank() == 0) {
        reset_peak_memory();
        held[zero] = memory_stats().of(Owner::gradients).current;
      }
      group.barrier();
      step();
      group.barrier();
      if (group.rank() == 0) peak[zero] = memory_stats().of(Owner::gradients).peak;
      group.barrier();
    });
  const std::size_t layer = kWidth * kWidth * 4;
  CHECK(held[0] == kRanks * kLayers * layer);
  CHECK(held[2] == kLayers * layer);
  // Each rank has at most the bucket that is being collected, and the one that is on its way.
  CHECK(peak[2] <= held[2] + 2 * kRanks * layer);
}

}  // namespace
}  // namespace firn::testing
