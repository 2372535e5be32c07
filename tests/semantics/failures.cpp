// A training step on a device in which one allocation, or one call of the CUDA runtime, fails: the
// error is reported, the model is as it was, and training goes on.
#include <functional>
#include <string>

#include "firn/train/graph_step.h"
#include "runtime/memory/fail_allocation.h"
#include "semantics/mlp.h"
#include "support/device/simulator.h"

namespace firn::testing {
namespace {

#ifdef FIRN_HAS_CUSIM

struct Training {
  Mlp net{8, 16, 4, f16};
  optim::AdamW opt;
  Tensor x, y;

  explicit Training(std::int64_t accumulate)
      : opt(net.parameters(), {.lr = 0.01},
            {.accumulate = accumulate,
             .clip_norm = 1,
             .loss_scale = optim::LossScale::dynamic({.init = 64}),
             .ema = 0.9}) {
    Rng rng(3);
    x = make(rng.uniforms(4 * 8, -1, 1), {4, 8}, f16);
    y = make({0, 1, 2, 3}, {4}, i64);
  }
  void micro_step() {
    opt.backward(cross_entropy(net(x), y));
    opt.step();
  }
  std::int64_t applied() const { return opt.last_report().applied_steps(); }
};

// Runs `work` under Failure(k) for k = 0, 1, ... until it is not reached any more. Where `work`
// throws, nothing must have changed; afterwards `again` must make a step. Returns how often it
// threw.
template <class Failure>
int fail_everywhere(Training& t, const std::function<void()>& prepare,
                    const std::function<void()>& work, const std::function<void()>& again) {
  int failures = 0;
  for (std::uint64_t k = 0; k < 5000; ++k) {
    prepare();
    const Bits before = bits_of_training(t.opt);
    const std::int64_t applied = t.applied();
    bool threw = false, reached = false;
    {
      const Failure failure(k);
      try {
        work();
      } catch (const Error& e) {
        threw = true;
        CAPTURE(k, e.what());
        CHECK(std::string(e.what()).size() > 20);
      }
      reached = threw || failure.happened();
    }
    if (!reached) return failures;
    CAPTURE(k);
    if (!threw) continue;  // nothing that mattered, as when memory is given back
    ++failures;
    t.opt.zero_grad();
    CHECK(bits_of_training(t.opt) == before);
    CHECK(t.applied() == applied);
    again();
    CHECK(t.applied() == applied + 1);
  }
  FAIL("the work never ran to its end");
  return failures;
}

struct FailOneAllocation {
  explicit FailOneAllocation(std::uint64_t k) : fail(k) {}
  bool happened() const { return false; }  // a refused allocation is an error, always
  FailAllocation fail;
};

TEST_CASE("a call that fails in a step on a device leaves the model as it was", "[gpu]") {
  if (!default_device().is_cuda()) return;
  Training t(2);
  const auto cycle = [&] {
    t.micro_step();
    t.micro_step();
  };
  cycle();
  CHECK(fail_everywhere<FailCall>(
            t, [] {}, cycle, cycle) > 30);
  CHECK(fail_everywhere<FailOneAllocation>(
            t, [] {}, cycle, cycle) > 10);
}

TEST_CASE("a call that fails while a step is recorded or replayed leaves the model as it was",
          "[gpu]") {
  if (!default_device().is_cuda()) return;
  Training t(1);
  graph::Step step(t.opt, [&] { t.micro_step(); });
  const auto call = [&] { step(); };
  const auto begin_anew = [&] {
    step.reset();
    step();  // runs; the next call records
  };
  CHECK(fail_everywhere<FailCall>(t, begin_anew, call, call) > 30);
  CHECK(fail_everywhere<FailOneAllocation>(t, begin_anew, call, call) > 10);
  const auto record = [&] {
    begin_anew();
    step();
  };
  CHECK(fail_everywhere<FailCall>(t, record, call, call) > 0);  // of a replay
}

#endif

}  // namespace
}  // namespace firn::testing
