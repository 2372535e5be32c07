// RollbackPoints: what they keep and in which order they put it back, and cycles of optimizers.
#include "firn/runtime/rollback.h"

#include <cmath>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "optim/problem.h"
#include "runtime/memory/fail_allocation.h"

namespace firn::testing {
namespace {

/// A number that points put back.
struct Number {
  std::shared_ptr<int> value = std::make_shared<int>(0);
  int saved = 0;  ///< how often it was copied

  void set(int v, Rollback kind = Rollback::data) {
    runtime::before_change(kind, value.get(), [this]() -> std::function<void()> {
      ++saved;
      return [p = value, old = *value] { *p = old; };
    });
    *value = v;
  }
  int get() const { return *value; }
};

TEST_CASE("rollback: without a point nothing is copied, and a point that ends leaves no trace",
          "[host]") {
  CHECK_FALSE(runtime::rollback_wanted());
  Number n;
  n.set(1);
  CHECK(n.saved == 0);
  {
    const RollbackPoint point;
    CHECK(runtime::rollback_wanted());
    CHECK(n.saved == 0);
    n.set(2);
    n.set(3);
    CHECK(n.saved == 1);
  }
  CHECK_FALSE(runtime::rollback_wanted());
  CHECK(n.get() == 3);
  n.set(4);
  CHECK(n.saved == 1);
  CHECK(n.value.use_count() == 1);
}

TEST_CASE("rollback: points share a copy, and each goes back to its own beginning", "[host]") {
  Number n, late;
  n.set(1);
  RollbackPoint outer;
  {
    RollbackPoint inner;
    n.set(2);
    CHECK(n.saved == 1);  // for both
    inner.roll_back();
    CHECK(n.get() == 1);
    n.set(3);
    CHECK(n.saved == 2);  // for the inner one, which stands as new
    inner.roll_back();
    inner.roll_back();
    CHECK(n.get() == 1);
    n.set(4);
  }
  n.set(5);
  {
    RollbackPoint inner;
    n.set(6);
    late.set(7);
    outer.roll_back();
    CHECK(n.get() == 1);
    CHECK(late.get() == 0);
    inner.roll_back();  // stands as new with the outer one
    CHECK(n.get() == 1);
    late.set(8);
    inner.roll_back();
    CHECK(late.get() == 0);
  }
  n.set(9);
  outer.roll_back();
  CHECK(n.get() == 1);
}

TEST_CASE("rollback: one kind alone, and points that cover some kinds", "[host]") {
  Number position, statistic;
  default_generator().set({1, 10});
  RollbackPoint all;
  RollbackPoint some({Rollback::data, Rollback::random});
  const auto change = [&] {
    position.set(5);
    statistic.set(6, Rollback::statistics);
    default_generator().reserve(4);
  };
  change();
  CHECK(statistic.saved == 1);
  some.roll_back();
  CHECK(position.get() == 0);
  CHECK(statistic.get() == 6);
  CHECK(default_generator().get().offset == 10);
  change();
  CHECK(statistic.saved == 1);
  some.roll_back(Rollback::statistics);  // which it does not cover
  CHECK(statistic.get() == 6);
  all.roll_back(Rollback::statistics);
  CHECK(statistic.get() == 0);
  CHECK(position.get() == 5);
  CHECK(default_generator().get().offset == 11);
  some.roll_back(Rollback::data);  // the random stream of `some` was not touched by `all`
  CHECK(position.get() == 0);
  CHECK(default_generator().get().offset == 11);
  some.roll_back();
  CHECK(default_generator().get().offset == 10);
}

TEST_CASE("rollback: the latest change is put back first, and one that fails can be repeated",
          "[host]") {
  std::vector<int> order;
  bool refuses = true;
  const int things[3] = {};
  const auto change = [&](int i, bool may_fail) {
    runtime::before_change(Rollback::data, &things[i], [&order, &refuses, i, may_fail] {
      return std::function<void()>([&order, &refuses, i, may_fail] {
        if (may_fail && refuses) throw Error("device", "it refuses the work");
        order.push_back(i);
      });
    });
  };
  RollbackPoint point;
  change(0, false);
  change(1, true);
  change(2, false);
  CHECK(error_of([&] { point.roll_back(); }).find("refuses the work") != std::string::npos);
  CHECK(order == std::vector<int>{2, 0});
  refuses = false;
  point.roll_back();
  CHECK(order == std::vector<int>{2, 0, 1});
  point.roll_back();
  CHECK(order == std::vector<int>{2, 0, 1});
}

TEST_CASE("rollback: a copy that cannot be made is no change", "[host]") {
  Number n;
  RollbackPoint point;
  CHECK_THROWS_AS(runtime::before_change(Rollback::data, n.value.get(),
                                         []() -> std::function<void()> { throw std::bad_alloc(); }),
                  OutOfMemory);
  n.set(2);
  CHECK(n.saved == 1);
  point.roll_back();
  CHECK(n.get() == 0);
}

TEST_CASE("rollback: points of another thread are not concerned", "[host]") {
  Number n;
  RollbackPoint point;
  bool wanted = true;
  const auto state = default_generator().get();
  std::thread([&] {
    wanted = runtime::rollback_wanted();
    n.set(1);
  }).join();
  CHECK_FALSE(wanted);
  CHECK(n.saved == 0);
  default_generator().reserve(8);
  point.roll_back();
  CHECK(default_generator().get().offset == state.offset);
}

TEST_CASE("rollback: a point that another thread destroys is forgotten, and none goes back there",
          "[host]") {
  auto taken = std::make_unique<RollbackPoint>();
  auto outer = std::make_unique<RollbackPoint>();
  RollbackPoint inner;
  const RandomKey start = default_generator().get();
  std::string message;
  std::thread([&] {
    try {
      inner.roll_back();
    } catch (const Error& e) {
      message = e.what();
    }
    outer.reset();
  }).join();
  CHECK(message.find("use it in the thread that made it") != std::string::npos);
  // Its thread goes on, with points before and after the one that is gone.
  for (int i = 0; i < 3; ++i) {
    const RollbackPoint later;
    randn({2});
    nn::Linear net(2, 1);
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    opt.backward(mse_loss(net(ones({2, 2})), zeros({2, 1})));
    opt.step();
  }
  inner.roll_back();
  CHECK(default_generator().get().offset == start.offset);
  randn({2});
  taken->roll_back();
  CHECK(default_generator().get().offset == start.offset);
  CHECK(runtime::rollback_wanted());
  std::thread([&] { taken.reset(); }).join();
  CHECK(runtime::rollback_wanted());  // `inner`
}

TEST_CASE("rollback: a point goes back to the stream that was the default when it was made",
          "[host]") {
  Generator mine(5);
  const std::uint64_t outside = default_generator().get().offset;
  {
    const GeneratorScope scope(mine);
    RollbackPoint point;
    rand({10}, {.device = Device::cpu()});
    {
      Generator other(6);
      const GeneratorScope inner(other);
      rand({10}, {.device = Device::cpu()});
    }
    CHECK(mine.get().offset > 0);
    point.roll_back();
    CHECK(mine.get().offset == 0);
  }
  CHECK(default_generator().get().offset == outside);
}

TEST_CASE("rollback: points in a place that is not the end of the stack can go too", "[host]") {
  Number n;
  auto first = std::make_unique<RollbackPoint>();
  auto second = std::make_unique<RollbackPoint>();
  first.reset();
  n.set(3);
  second->roll_back();
  CHECK(n.get() == 0);
  second.reset();
  CHECK_FALSE(runtime::rollback_wanted());
}

// ---- Cycles ----

Bits bits_of_state(const optim::Optimizer& opt) {
  Bits out;
  for (const optim::NamedState& s : opt.state()) out = out + bits_of(s.tensor);
  return out;
}

TEST_CASE("rollback: a step is never taken back, and what was collected after it is dropped") {
  Tensor w = parameter({1, 2}, {2});
  optim::SGD opt({w}, {.lr = 1, .momentum = 0.5}, {.accumulate = 2});
  const auto micro_step = [&](double g) {
    opt.backward(objective(w, {g}));
    return opt.step();
  };
  micro_step(2);
  RollbackPoint point;
  micro_step(4);  // ends the cycle
  const std::vector<double> weights = values_of(w);
  const Bits training = bits_of_training(opt);
  CHECK(weights == std::vector<double>{-2, -1});
  micro_step(100);
  point.roll_back();
  CHECK(values_of(w) == weights);
  CHECK(bits_of_training(opt) == training);
  CHECK(opt.cycle_position() == 0);
  CHECK_FALSE(w.grad().defined());
  micro_step(1);
  micro_step(1);
  CHECK(opt.last_report().weight() == 2);
  CHECK(opt.last_report().norm() == Approx(std::sqrt(2.0)));

  // If the work ended with the step, there is nothing to drop.
  RollbackPoint second;
  micro_step(1);
  micro_step(1);
  const Bits after = bits_of_state(opt);
  second.roll_back();
  CHECK(bits_of_state(opt) == after);
}

TEST_CASE("rollback: what zero_grad(), flush() and step() do to a cycle in its middle goes back") {
  for (const DType dtype : {f32, f16}) {
    CAPTURE(to_string(dtype));
    Tensor w = parameter({1, 2}, {2}, dtype), b = parameter({3}, {1}, dtype);
    optim::StepOptions options{.accumulate = 3, .ema = 0.5};
    if (dtype == f16) options.loss_scale = optim::LossScale::dynamic({.init = 64});
    optim::AdamW opt({w, b}, {.lr = 0.1}, options);
    const auto cycle_begins = [&] {
      opt.backward(objective(w, {2}), 3);
      opt.step();
      opt.backward(objective(w, {5}), 1);
    };
    cycle_begins();
    const Bits middle = bits_of_state(opt);
    const std::vector<double> gradient = values_of(w.grad());
    const std::function<void()> works[] = {
        [&] { opt.zero_grad(); },
        [&] { opt.flush(optim::Partial::drop); },
        [&] { opt.step(); },
        [&] {
          opt.zero_grad();
          opt.backward(objective(b, {1}), 7);
          opt.state();
        },
        [&] { opt.backward(objective(b, {1}), 1e-6); },
        [&] {
          if (dtype == f16) opt.set_loss_scale(16);
          opt.backward(objective(b, {1}), 1e-6);  // in another unit
        },
    };
    const double scale = opt.loss_scale();
    for (const auto& work : works) {
      RollbackPoint point;
      work();
      point.roll_back();
      if (dtype == f16) opt.set_loss_scale(scale);  // a setting stays as it is
      CHECK(bits_of_state(opt) == middle);
      CHECK(values_of(w.grad()) == gradient);
      CHECK_FALSE(b.grad().defined());
      CHECK(opt.cycle_position() == 1);
    }
    opt.step();
    opt.backward(objective(w, {1}), 1);
    CHECK(opt.step().applied());
    CHECK(opt.last_report().weight() == 5);
  }
}

TEST_CASE("rollback: gradients that set_grad() or a plain backward() has changed go back") {
  const Warnings quiet;
  Tensor w = parameter({1, 2}, {2}), b = parameter({3}, {1});
  optim::SGD opt({w, b}, {.lr = 0.1}, {.accumulate = 4});
  const auto micro_step = [&](double g) {
    opt.backward(objective(w, {g}));
    opt.step();
  };
  const std::function<void()> works[] = {
      [&] { w.set_grad(ones({2})); },
      [&] { w.set_grad({}); },
      [&] { b.set_grad(ones({1})); },
      [&] { objective(w, {3}).backward(); },
      [&] { objective(b, {3}).backward(); },
      [&] {
        micro_step(3);
        w.set_grad({});
      },
      [&] {
        w.set_grad({});
        opt.zero_grad();
        b.set_grad(ones({1}));
      },
  };
  for (const bool begun : {true, false}) {
    opt.zero_grad();
    if (begun) micro_step(2);
    const Bits before = bits_of_state(opt);
    for (const auto& work : works) {
      RollbackPoint point;
      work();
      point.roll_back();
      CHECK(w.grad().defined() == begun);
      if (begun) CHECK(values_of(w.grad()) == std::vector<double>{2, 2});
      CHECK_FALSE(b.grad().defined());
      CHECK(opt.cycle_position() == (begun ? 1 : 0));
      if (begun) CHECK(bits_of_state(opt) == before);
      CHECK(opt.flush(optim::Partial::carry).micro_steps() == (begun ? 1 : 0));
    }
    micro_step(4);
  }
}

TEST_CASE("rollback: a gradient of a plain backward() is refused after it went back, as before") {
  Tensor w = parameter({1, 2}, {2});
  optim::SGD opt({w}, {.lr = 0.1});
  objective(w, {3}).backward();
  {
    RollbackPoint point;
    opt.zero_grad();
    opt.backward(objective(w, {1}));
    point.roll_back();
  }
  CHECK(values_of(w.grad()) == std::vector<double>{3, 3});
  CHECK_THROWS_AS(opt.backward(objective(w, {1})), Error);
  opt.zero_grad();
  opt.backward(objective(w, {1}));
  CHECK(opt.step().applied());
}

TEST_CASE("rollback: a mark at the beginning of a cycle copies no gradients, a later one does") {
  Tensor large = parameter(std::vector<double>(4096, 1), {4096});
  optim::SGD opt({large}, {.lr = 1});
  const auto gradients = [] { return memory_stats().of(Owner::gradients).current; };
  opt.backward(objective(large, {1}));
  opt.step();
  const std::size_t before = gradients();
  {
    const RollbackPoint point;
    opt.backward(objective(large, {1}));
    CHECK(gradients() == before);
    {
      const RollbackPoint later;
      opt.backward(objective(large, {1}));
      CHECK(gradients() >= before + 4096 * sizeof(float));
    }
    CHECK(gradients() == before);
  }
  opt.zero_grad();
  CHECK(gradients() == before);
}

TEST_CASE("rollback: settings, sums and states that came from outside stay") {
  Tensor w = parameter({1}, {1}), v = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 1}, {.accumulate = 2}), other({v}, {.lr = 1}, {.accumulate = 2});
  opt.backward(objective(w, {1}), 3);
  opt.step();
  RollbackPoint point;
  opt.backward(objective(w, {1}), 5);
  opt.set_lr(0.25);
  opt.set_epoch(4);
  CHECK(opt.loss_totals().weight == 8);
  point.roll_back();
  CHECK(opt.lr() == 0.25);
  CHECK(opt.loss_totals().weight == 3);
  CHECK(values_of(state_of(opt, "cycle"))[1] == 4);

  other.backward(objective(v, {8}), 2);
  other.step();
  opt.backward(objective(w, {1}), 5);
  {
    const NoGrad guard;
    const auto from = other.state(), to = opt.state();
    for (std::size_t i = 0; i < from.size(); ++i) copy_(to[i].tensor, from[i].tensor);
  }
  point.roll_back();
  CHECK(opt.flush().weight() == 2);
  CHECK(values_of(w) == std::vector<double>{-3});
}

TEST_CASE("rollback: an optimizer may be gone, or moved, when the point goes back") {
  Tensor w = parameter({1}, {1}), v = parameter({1}, {1});
  RollbackPoint point;
  auto gone = std::make_unique<optim::SGD>(std::vector<Tensor>{w}, optim::SGDOptions{.lr = 1});
  optim::SGD opt({v}, {.lr = 1});
  gone->backward(objective(w, {1}));
  opt.backward(objective(v, {1}));
  gone.reset();
  optim::SGD moved = std::move(opt);
  optim::SGD next({w}, {.lr = 1});
  next.backward(objective(w, {1}));
  point.roll_back();
  CHECK_FALSE(w.grad().defined());
  CHECK_FALSE(v.grad().defined());
  next.backward(objective(w, {2}));
  moved.backward(objective(v, {2}));
  CHECK(next.step().micro_steps() == 1);
  CHECK(moved.step().micro_steps() == 1);
  CHECK(values_of(w) == std::vector<double>{-1});
}

TEST_CASE("rollback: memory that runs out for a copy is an error before anything has changed") {
  Tensor w = parameter(std::vector<double>(100, 1), {100});
  optim::SGD opt({w}, {.lr = 1}, {.accumulate = 3});
  opt.backward(objective(w, {1}));
  opt.step();
  const Bits before = bits_of_state(opt);
  RollbackPoint point;
  const Tensor loss = objective(w, {1});
  for (const std::uint64_t k : {1, 2}) {  // the first allocation is the seed's
    const FailAllocation fail(k);
    CHECK_THROWS_AS(opt.backward(loss, 1, {.retain_graph = true}), OutOfMemory);
  }
  CHECK(bits_of_state(opt) == before);
  opt.backward(loss);
  CHECK(opt.last_report().micro_steps() == 2);
  point.roll_back();
  CHECK(bits_of_state(opt) == before);
}

}  // namespace
}  // namespace firn::testing
