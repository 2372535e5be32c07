// BatchNorm under accumulation: running statistics that follow the cycle. What becomes of them when
// a cycle is applied, however it was cut, and when it is skipped, dropped or cut short.
#include "semantics/batch_norm/net.h"

namespace firn::testing {
namespace {

using optim::StepStatus;

TEST_CASE("[S19] bn_cycle: a cycle moves running statistics by those of all its samples") {
  for (const auto& [dtype, bound] : {std::pair{f64, 1e-12}, std::pair{f32, 1e-6}})
    for (const std::optional<double> momentum : {std::optional(0.1), std::optional<double>()})
      for (const Sizes& sizes : {Sizes{kBatch}, kEven, kUneven, Sizes{1 + 1, kBatch - 2}}) {
        CAPTURE(to_string(dtype), momentum.has_value(), sizes.size());
        Net net(BatchNormMode::per_step, dtype, {.momentum = momentum});
        optim::SGD opt(net.parameters(), {.lr = 0.1}, accumulate(sizes));
        Values want = running(net.bn);
        for (int step = 0; step < 3; ++step) {
          const Batch b = batch_of(static_cast<std::uint64_t>(step), dtype);
          const Tensor rows = [&] {
            const NoGrad guard;
            return net.in(b.x);
          }();
          want = moved(want, rows, momentum ? *momentum : 1.0 / (step + 1));
          REQUIRE(cycle(opt, net, b, sizes).applied());
          CHECK(distance(running(net.bn), want) <= bound);
          CHECK(net.bn.num_batches_tracked.item() == step + 1);
          CHECK(pool_is_empty(net.bn));
        }
      }
}

TEST_CASE("[S19] bn_cycle: images, channels-last or not, pool over samples and places alike") {
  for (const bool channels_last : {false, true}) {
    CAPTURE(channels_last);
    nn::BatchNorm2d bn(3, {.accumulation = BatchNormMode::per_step, .dtype = f64});
    optim::SGD opt(bn.parameters(), {.lr = 0.1}, {.accumulate = 2});
    Rng rng(3);
    Tensor x = make(rng.uniforms(6 * 4 * 5 * 3, 90, 91), {6, 4, 5, 3}).permute({0, 3, 1, 2});
    if (!channels_last) x = contiguous(x);
    const Values before = running(bn);
    for (const auto& [from, to] : {std::pair{0, 1}, std::pair{1, 6}}) {
      opt.backward(sum(square(bn(x.slice(0, from, to)))), 1);
      opt.step();
    }
    const Tensor rows = x.permute({0, 2, 3, 1}).reshape({6 * 4 * 5, 3});
    CHECK(distance(running(bn), moved(before, rows, 0.1)) <= 1e-12);
  }
}

TEST_CASE("[S19] bn_cycle: in per_micro_batch mode running statistics move with each micro-batch") {
  Net net(BatchNormMode::per_micro_batch, f64);
  const Warnings expected;
  optim::SGD opt(net.parameters(), {.lr = 0.1}, accumulate(kUneven));
  const Batch b = batch_of(1, f64);
  const Tensor rows = [&] {
    const NoGrad guard;
    return net.in(b.x);
  }();
  Values want = running(net.bn);
  std::int64_t at = 0;
  for (const std::int64_t n : kUneven) {
    want = moved(want, rows.slice(0, at, at + n), 0.1);
    at += n;
  }
  REQUIRE(cycle(opt, net, b, kUneven).applied());
  CHECK(net.bn.num_batches_tracked.item() == 3);
  CHECK(distance(running(net.bn), want) <= 1e-12);
  CHECK(distance(want, moved(running(Net(BatchNormMode::per_micro_batch, f64).bn), rows, 0.1)) >
        0.01);
}

TEST_CASE("[S19] bn_cycle: a cycle that is skipped or dropped leaves running statistics alone") {
  Net net(BatchNormMode::per_step);
  optim::AdamW opt(net.parameters(), {.lr = 0.01}, accumulate(kEven));
  REQUIRE(cycle(opt, net, batch_of(1), kEven).applied());
  const Bits before = bits_of_buffers(net);  // the pool, which is empty, is among them
  const Batch b = batch_of(2);
  const auto micro_step = [&](int i) { opt.backward(loss_of(net, b, 16 * i, 16 * i + 16)); };

  for (int i = 0; i < 4; ++i) {  // skipped for a gradient
    Loss loss = loss_of(net, b, 16 * i, 16 * i + 16);
    if (i == 2) loss.sum = spoilt(loss.sum);
    opt.backward(loss);
    if (i < 3) opt.step();
  }
  CHECK_FALSE(pool_is_empty(net.bn));
  REQUIRE(opt.step().status() == StepStatus::skipped_non_finite);
  CHECK(bits_of_buffers(net) == before);

  Batch bad = batch_of(3);  // for a value in the data
  {
    Values x = values_of(bad.x);
    x[77] = HUGE_VAL;
    bad.x = make(x, bad.x.shape(), f32);
  }
  REQUIRE(cycle(opt, net, bad, kEven).status() == StepStatus::skipped_non_finite);
  CHECK(bits_of_buffers(net) == before);

  for (int i = 0; i < 4; ++i) {  // for want of weight
    Loss loss = loss_of(net, b, 16 * i, 16 * i + 16);
    loss.weight = zeros({});
    opt.backward(loss);
    if (i < 3) opt.step();
  }
  REQUIRE(opt.step().status() == StepStatus::skipped_empty);
  CHECK(bits_of_buffers(net) == before);

  micro_step(0);
  opt.zero_grad();
  CHECK(bits_of_buffers(net) == before);
  micro_step(0);
  micro_step(1);
  opt.flush(optim::Partial::drop);
  CHECK(bits_of_buffers(net) == before);
  CHECK(error_of([&] {
          opt.run_cycle(3, [&](std::int64_t i) {
            if (i == 2) throw Error("test", "no more data");
            return loss_of(net, b, 16 * i, 16 * i + 16);
          });
        }).find("no more data") != std::string::npos);
  CHECK(bits_of_buffers(net) == before);

  {
    optim::AdamW moved_to = std::move(opt);  // an optimizer that goes drops its cycle
    moved_to.backward(loss_of(net, b, 0, 16));
    CHECK_FALSE(pool_is_empty(net.bn));
  }
  CHECK(bits_of_buffers(net) == before);
}

TEST_CASE("[S19] bn_cycle: training goes on after a skipped cycle as if that had not been") {
  const auto run = [](bool with_skips) {
    Net net(BatchNormMode::per_step);
    optim::AdamW opt(net.parameters(), {.lr = 0.01}, accumulate(kUneven));
    for (std::uint64_t i = 0; i < 4; ++i) {
      if (with_skips && i % 2 == 1) {
        Batch bad = batch_of(99);
        bad.x = bad.x * HUGE_VAL;
        cycle(opt, net, bad, kUneven);
      }
      cycle(opt, net, batch_of(i), kUneven);
    }
    return bits_of_buffers(net) + bits_of_training(opt);
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("[S19] bn_cycle: samples belong to a cycle by their backward pass") {
  Net net(BatchNormMode::per_step, f64);
  optim::SGD opt(net.parameters(), {.lr = 0}, accumulate({2, 2}));
  const Batch b = batch_of(5, f64);
  const Tensor rows = net.in(b.x).detach();
  Values want = running(net.bn);
  const Loss first = loss_of(net, b, 0, 30);
  opt.zero_grad();        // between forward and backward, as training loops elsewhere have it
  loss_of(net, b, 3, 9);  // nothing becomes of this one
  {
    const NoGrad guard;
    loss_of(net, b, 10, 20);
  }
  opt.backward(first);
  opt.step();
  const Loss second = loss_of(net, b, 30, 64);
  opt.backward(second);
  REQUIRE(opt.step().applied());
  want = moved(want, rows, 0.1);
  CHECK(distance(running(net.bn), want) <= 1e-12);
}

TEST_CASE("[S19] bn_cycle: layers without weights of their own, or with frozen ones, take part") {
  for (const bool affine : {false, true}) {
    CAPTURE(affine);
    Net net(BatchNormMode::per_step, f64, {.affine = affine});
    net.bn.set_requires_grad(false);
    std::vector<Tensor> trained;
    for (const Tensor& p : net.parameters())
      if (p.requires_grad()) trained.push_back(p);
    CHECK(trained.size() == 4);
    optim::SGD opt(trained, {.lr = 0.1}, accumulate(kEven));
    for (std::uint64_t step = 0; step < 2; ++step) {
      const Batch b = batch_of(step, f64);
      const Values want = moved(running(net.bn), net.in(b.x), 0.1);
      REQUIRE(cycle(opt, net, b, kEven).applied());
      CHECK(distance(running(net.bn), want) <= 1e-12);
    }
  }
}

TEST_CASE("[S19] bn_cycle: a layer that is called twice in a forward pass pools both inputs") {
  nn::BatchNorm1d bn(3, {.accumulation = BatchNormMode::per_step, .dtype = f64});
  optim::SGD opt(bn.parameters(), {.lr = 0.1});
  const Tensor x = make(Rng(1).uniforms(30, 1, 2), {10, 3}), y = square(x);
  const Values want = moved(running(bn), cat(std::vector<Tensor>{x, y}, 0), 0.1);
  opt.backward(sum(bn(x) * bn(y)), 10);
  REQUIRE(opt.step().applied());
  CHECK(bn.num_batches_tracked.item() == 1);
  CHECK(distance(running(bn), want) <= 1e-12);
}

TEST_CASE("[S19] bn_cycle: a change of mode loses what the cycle has pooled, and no more") {
  Net net(BatchNormMode::per_step, f64);
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = 2});
  const Batch b = batch_of(7, f64);
  const Values want = moved(running(net.bn), net.in(b.x.slice(0, 20, 64)), 0.1);
  opt.backward(loss_of(net, b, 0, 20));
  opt.step();
  nn::convert_batch_norm(net, BatchNormMode::per_micro_batch);
  nn::convert_batch_norm(net, BatchNormMode::per_step);
  opt.backward(loss_of(net, b, 20, 64));
  REQUIRE(opt.step().applied());
  CHECK(net.bn.num_batches_tracked.item() == 1);
  CHECK(distance(running(net.bn), want) <= 1e-12);
}

TEST_CASE("[S19][S04] bn_cycle: a short cycle moves them by the samples that it has") {
  for (const bool carry : {false, true}) {
    CAPTURE(carry);
    Net net(BatchNormMode::per_step, f64);
    optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = 3});
    const Batch b = batch_of(6, f64);
    const Values before = running(net.bn);
    opt.backward(loss_of(net, b, 0, 20));
    opt.step();
    opt.backward(loss_of(net, b, 20, 25));
    opt.step();
    opt.flush(carry ? optim::Partial::carry : optim::Partial::apply);
    std::int64_t n = 25;
    if (carry) {
      CHECK(running(net.bn) == before);
      opt.backward(loss_of(net, b, 25, 64));
      REQUIRE(opt.step().applied());
      n = 64;
    }
    Net same(BatchNormMode::per_step, f64);
    CHECK(distance(running(net.bn), moved(before, same.in(b.x.slice(0, 0, n)), 0.1)) <= 1e-12);
  }
}

}  // namespace
}  // namespace firn::testing
