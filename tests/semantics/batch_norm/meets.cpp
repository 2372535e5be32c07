// BatchNorm under accumulation: how it meets retries, shared scales, two-pass steps, saved states
// and failures, and the warning of the mode that does not follow the cycle.
#include "runtime/memory/fail_allocation.h"
#include "semantics/batch_norm/net.h"
#include "support/device/simulator.h"

namespace firn::testing {
namespace {

using optim::LossScale;

// Three cycles in which gradients overflow at scales above `limit`.
struct Retried {
  Bits buffers, training;
  std::int64_t calls = 0;
};
Retried retried(BatchNormMode mode, const LossScale& scale, double limit) {
  Net net(mode);
  const Warnings expected;
  optim::AdamW opt(net.parameters(), {.lr = 0.01}, {.loss_scale = scale});
  Retried out;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Batch b = batch_of(step);
    const optim::StepReport report = opt.run_cycle(4, [&](std::int64_t i) {
      ++out.calls;
      Loss loss = loss_of(net, b, 16 * i, 16 * i + 16);
      if (i == 2 && opt.loss_scale() > limit) loss.sum = spoilt(loss.sum);
      return loss;
    });
    REQUIRE(report.applied());
  }
  out.buffers = bits_of_buffers(net);
  out.training = bits_of_training(opt);
  return out;
}

TEST_CASE("[S19][S15] bn_cycle: a retried cycle counts once, in both modes") {
  for (const BatchNormMode mode : {BatchNormMode::per_step, BatchNormMode::per_micro_batch}) {
    CAPTURE(mode == BatchNormMode::per_micro_batch);
    const Retried plain = retried(mode, LossScale::fixed(256), 256);
    const Retried again = retried(
        mode, LossScale::dynamic({.init = 1024, .on_overflow = optim::OverflowPolicy::retry}), 256);
    CHECK(plain.calls == 12);
    CHECK(again.calls == 12 + 2 * 4);
    CHECK(again.buffers == plain.buffers);
    CHECK(again.training == plain.training);
  }
}

TEST_CASE("[S19][S16] bn_cycle: each layer follows the optimizer that trains it") {
  for (const optim::SkipPolicy policy : {optim::SkipPolicy::all, optim::SkipPolicy::each}) {
    Net a(BatchNormMode::per_step), b(BatchNormMode::per_step);
    const optim::LossScaler scaler(LossScale::dynamic({.init = 64}));
    const optim::StepOptions options{.accumulate = 2, .scaler = scaler};
    optim::SGD first(a.parameters(), {.lr = 0.1}, options);
    optim::AdamW second(b.parameters(), {.lr = 0.1}, options);
    const Bits a_before = bits_of_buffers(a), b_before = bits_of_buffers(b);
    const auto micro_step = [&](bool bad) {
      const Batch data = batch_of(1);
      first.backward(loss_of(a, data, 0, 10));
      Loss loss = loss_of(b, data, 10, 30);
      if (bad) loss.sum = spoilt(loss.sum);
      second.backward(loss);
    };
    micro_step(true);
    optim::step_all({&first, &second}, policy);
    micro_step(false);
    optim::step_all({&first, &second}, policy);
    CHECK((bits_of_buffers(a) == a_before) == (policy == optim::SkipPolicy::all));
    CHECK(bits_of_buffers(b) == b_before);
    micro_step(false);
    optim::step_all({&first, &second}, policy);
    optim::flush_all({&first, &second}, optim::Partial::apply, policy);
    CHECK(b.bn.num_batches_tracked.item() == 1);
    CHECK(a.bn.num_batches_tracked.item() == (policy == optim::SkipPolicy::all ? 1 : 2));
    micro_step(false);
    optim::flush_all({&first, &second}, optim::Partial::drop);
    CHECK(pool_is_empty(a.bn));
    CHECK(pool_is_empty(b.bn));
  }
}

TEST_CASE("[S19][S20] bn_cycle: the two passes over parts count their samples once") {
  for (const BatchNormMode mode : {BatchNormMode::per_step, BatchNormMode::per_micro_batch}) {
    CAPTURE(mode == BatchNormMode::per_micro_batch);
    const Warnings warnings;
    Net net(mode, f64);
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    const Batch b = batch_of(8, f64);
    const Tensor rows = net.in(b.x).detach();
    const auto encode = [&](std::int64_t i) { return net(b.x.slice(0, 16 * i, 16 * i + 16)); };
    const auto loss = [](const Tensor& all) {
      return Loss{sum(square(all)), full({}, static_cast<double>(all.shape()[0]), f64)};
    };
    const Bits untouched = bits_of_buffers(net);
    CHECK_THROWS_AS(opt.step_two_pass(
                        4,
                        [&](std::int64_t i) {
                          if (i == 3) throw Error("test", "no more data");
                          return encode(i);
                        },
                        loss),
                    Error);
    CHECK(bits_of_buffers(net) == untouched);
    Values want = running(net.bn);
    REQUIRE(opt.step_two_pass(4, encode, loss).applied());
    if (mode == BatchNormMode::per_step) want = moved(want, rows, 0.1);
    for (int i = 0; mode == BatchNormMode::per_micro_batch && i < 4; ++i)
      want = moved(want, rows.slice(0, 16 * i, 16 * i + 16), 0.1);
    CHECK(distance(running(net.bn), want) <= 1e-12);
    CHECK(warnings.texts.empty() == (mode == BatchNormMode::per_step));
  }
}

// Tensors of one run copied into another, by name.
void restore(const std::vector<nn::NamedTensor>& from, const std::vector<nn::NamedTensor>& to) {
  REQUIRE(from.size() == to.size());
  for (std::size_t i = 0; i < from.size(); ++i) copy_(to[i].tensor, from[i].tensor);
}
std::vector<nn::NamedTensor> state_of_run(const Net& net, const optim::Optimizer& opt) {
  std::vector<nn::NamedTensor> out = net.named_buffers();
  for (const optim::NamedState& s : opt.state()) out.push_back({s.name, s.tensor});
  return out;
}

TEST_CASE("[S19][S23] bn_cycle: what a cycle has pooled is saved and restored with the buffers") {
  // What is done to a cycle that has had two of its four micro-steps when it was saved.
  enum class Then { complete, flush, drop };
  const Batch b = batch_of(2), c = batch_of(3);
  for (const Then then : {Then::complete, Then::flush, Then::drop}) {
    const auto finish = [&](Net& net, optim::Optimizer& opt) {
      if (then == Then::flush) opt.flush();
      if (then == Then::drop) opt.zero_grad();
      if (then == Then::complete)
        for (const int from : {32, 48}) {
          opt.backward(loss_of(net, b, from, from + 16));
          opt.step();
        }
      cycle(opt, net, c, kEven);
      return bits_of_buffers(net) + bits_of_training(opt);
    };
    Net net(BatchNormMode::per_step), fresh(BatchNormMode::per_step);
    optim::AdamW opt(net.parameters(), {.lr = 0.01}, accumulate(kEven));
    cycle(opt, net, batch_of(1), kEven);
    for (const int from : {0, 16}) {
      opt.backward(loss_of(net, b, from, from + 16));
      opt.step();
    }
    CHECK_FALSE(pool_is_empty(net.bn));
    optim::AdamW other(fresh.parameters(), {.lr = 0.01}, accumulate(kEven));
    restore(state_of_run(net, opt), state_of_run(fresh, other));
    const Bits resumed = finish(fresh, other);
    CHECK(resumed == finish(net, opt));
  }
}

TEST_CASE("[S19][S21] bn_cycle: the end of a cycle needs no memory") {
  Net net(BatchNormMode::per_step);
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = 2});
  for (int i = 0; i < 4; ++i) {
    opt.backward(loss_of(net, batch_of(1), 0, 16));
    const FailAllocation fail(0, true);
    opt.step();
  }
  opt.backward(loss_of(net, batch_of(1), 0, 16));
  const FailAllocation fail(0, true);
  opt.zero_grad();
  CHECK(net.bn.num_batches_tracked.item() == 2);
}

#ifdef FIRN_HAS_CUSIM
TEST_CASE("[S19] bn_cycle: a call that fails on a device costs neither statistics nor the step",
          "[gpu]") {
  if (!default_device().is_cuda()) return;
  const Batch b = batch_of(1);
  struct Training {
    Net net{BatchNormMode::per_step};
    optim::SGD opt{net.parameters(), {.lr = 0.1}, {.accumulate = 2}};
    Bits bits() const { return bits_of_buffers(net) + bits_of_training(opt); }
  };
  const auto run = [&](Training& t) { return cycle(t.opt, t.net, b, {20, 30}); };
  Training clean;
  REQUIRE(run(clean));
  int failures = 0, mended = 0;
  for (std::uint64_t k = 0; k < 2000; ++k) {
    CAPTURE(k);
    Training t;
    const Bits before = t.bits();
    bool threw = false, reached = false;
    {
      const FailCall fail(k);
      try {
        run(t);
      } catch (const Error&) {
        threw = true;
      }
      reached = fail.happened();
    }
    if (threw) {
      ++failures;
      t.opt.zero_grad();
      REQUIRE(t.bits() == before);
      REQUIRE(run(t));
    } else if (t.bits() != clean.bits()) {
      ++mended;  // the end of a layer's cycle was refused: the next call catches up
      t.opt.flush();
    }
    REQUIRE(t.bits() == clean.bits());
    if (!reached) break;
  }
  CHECK(failures > 30);
  CHECK(mended >= 1);
}
#endif

// ---- The warning ----

struct Deep : nn::Module {
  struct Block : nn::Module {
    nn::Linear fc{kIn, kIn};
    nn::BatchNorm1d bn{kIn};
    FIRN_MEMBERS(fc, bn)
    Tensor forward(const Tensor& x) override { return bn(fc(x)); }
  };
  std::vector<Block> blocks = std::vector<Block>(1);
  nn::BatchNorm1d last{kIn};
  FIRN_MEMBERS(blocks, last)
  Tensor forward(const Tensor& x) override { return last(blocks[0](x)); }
};

TEST_CASE("[S19] bn_cycle: per_micro_batch mode under accumulation is warned of, once per layer") {
  Warnings warnings;
  Deep net;
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = {{0, 1}, {1, 4}}});
  const Batch b = batch_of(1);
  const auto steps = [&](int n) {
    for (int i = 0; i < n; ++i) {
      opt.backward(sum(square(net(b.x))), 64);
      opt.step();
    }
  };
  steps(3);
  CHECK(warnings.texts.empty());  // one micro-step is the whole batch
  opt.set_epoch(1);
  plan_memory([&] { steps(5); });
  CHECK(warnings.texts.empty());  // the steps that are planned warn
  steps(9);
  REQUIRE(warnings.texts.size() == 2);
  std::sort(warnings.texts.begin(), warnings.texts.end());
  CHECK(warnings.texts[0] ==
        "[BatchNorm1d] blocks.0.bn: the running statistics move in each of the cycle's 4 "
        "micro-steps, by the mean and variance of a micro-batch, instead of once per step by those "
        "of the whole batch; hint: nn::convert_batch_norm(net, nn::BatchNormMode::per_step) "
        "pools them over the cycle; nn::convert_to_group_norm(net, groups) does without");
  CHECK(warnings.texts[1].find("[BatchNorm1d] last: the running") == 0);
}

TEST_CASE("[S19] bn_cycle: nothing is warned of without accumulation, or where it is dealt with") {
  Warnings warnings;
  for (const int way : {0, 1, 2, 3}) {
    Deep net;
    if (way == 1) nn::convert_batch_norm(net, BatchNormMode::per_step);
    if (way == 2) nn::convert_to_group_norm(net, 3);
    if (way == 3) net.eval();
    optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = way == 0 ? 1 : 2});
    for (int i = 0; i < 4; ++i) {
      opt.backward(sum(square(net(batch_of(1).x))), 64);
      opt.step();
    }
  }
  CHECK(warnings.texts.empty());
  nn::BatchNorm1d alone(kIn);  // called by its function, as part of nothing
  optim::SGD opt(alone.parameters(), {.lr = 0.1});
  for (int i = 0; i < 2; ++i) opt.backward(sum(square(alone.forward(batch_of(1).x))), 64);
  REQUIRE(warnings.texts.size() == 1);
  CHECK(warnings.texts[0].find(
            "[BatchNorm1d] the running statistics move in each of the cycle's 2") == 0);
}

}  // namespace
}  // namespace firn::testing
