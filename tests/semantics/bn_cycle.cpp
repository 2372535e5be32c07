// BatchNorm under accumulation: running statistics that follow the cycle. What becomes of them when
// a cycle is applied, however it was cut, and when it is skipped, dropped, replayed or cut short.
#include <algorithm>
#include <optional>

#include "semantics/mlp.h"
#include "semantics/spoil.h"

namespace firn::testing {
namespace {

using nn::BatchNormMode;
using optim::LossScale;
using optim::StepStatus;
using Sizes = std::vector<std::int64_t>;
using Values = std::vector<double>;

constexpr std::int64_t kIn = 6, kHidden = 5, kBatch = 64;

struct Net : nn::Module {
  nn::Linear in, out;
  nn::BatchNorm1d bn;
  explicit Net(BatchNormMode mode, DType dtype = f32, nn::BatchNormOptions options = {})
      : in(kIn, kHidden, {.dtype = dtype}),
        out(kHidden, 3, {.dtype = dtype}),
        bn(kHidden, {.momentum = options.momentum,
                     .affine = options.affine,
                     .accumulation = mode,
                     .dtype = dtype}) {
    Rng rng(4);
    for (const Tensor& p : {Tensor(in.weight), Tensor(in.bias), Tensor(out.weight)}) {
      const NoGrad guard;
      copy_(p, make(rng.uniforms(p.numel(), -0.5, 0.5), p.shape(), dtype));
    }
  }
  FIRN_MEMBERS(in, bn, out)
  Tensor forward(const Tensor& x) override { return out(tanh(bn(in(x)))); }
};

struct Batch {
  Tensor x, y;
};
Batch batch_of(std::uint64_t seed, DType dtype = f32, std::int64_t n = kBatch) {
  Rng rng(seed);
  Values labels;
  const Values x = rng.uniforms(n * kIn, 2, 4);  // far from 0: means and variances differ
  for (std::int64_t i = 0; i < n; ++i) labels.push_back(static_cast<double>(rng.below(3)));
  return {make(x, {n, kIn}, dtype), make(labels, {n}, i64)};
}

Loss loss_of(Net& net, const Batch& b, std::int64_t from, std::int64_t to) {
  return cross_entropy(net(b.x.slice(0, from, to)), b.y.slice(0, from, to));
}

/// A cycle in micro-batches of these sizes, up to its step().
optim::StepReport cycle(optim::Optimizer& opt, Net& net, const Batch& b, const Sizes& sizes) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i, at += sizes[i - 1]) {
    opt.backward(loss_of(net, b, at, at + sizes[i]));
    if (i + 1 < sizes.size()) opt.step();
  }
  return opt.step();
}
optim::StepOptions accumulate(const Sizes& sizes) {
  return {.accumulate = static_cast<std::int64_t>(sizes.size())};
}

Values joined(std::initializer_list<Tensor> tensors) {
  Values out;
  for (const Tensor& t : tensors)
    for (const double v : values_of(t)) out.push_back(v);
  return out;
}
Values running(const nn::BatchNorm& bn) { return joined({bn.running_mean, bn.running_var}); }
Bits bits_of_buffers(const nn::Module& m) {
  Bits out;
  for (const nn::NamedTensor& b : m.named_buffers()) out = out + bits_of(b.tensor);
  return out;
}
bool pool_is_empty(const nn::BatchNorm& bn) {
  const Values all = joined({bn.pooled, bn.pooled_count});
  return std::all_of(all.begin(), all.end(), [](double v) { return v == 0; });
}

/// Running statistics after they moved by the mean and the unbiased variance of `rows`, [n, c].
Values moved(const Values& before, const Tensor& rows, double share) {
  const Values v = values_of(rows.detach().cast(f64));
  const std::int64_t n = rows.shape()[0], c = rows.shape()[1];
  Values out = before;
  for (std::int64_t k = 0; k < c; ++k) {
    long double mean = 0, squares = 0;
    for (std::int64_t i = 0; i < n; ++i) mean += v[static_cast<std::size_t>(i * c + k)];
    mean /= static_cast<long double>(n);
    for (std::int64_t i = 0; i < n; ++i) {
      const long double d = v[static_cast<std::size_t>(i * c + k)] - mean;
      squares += d * d;
    }
    const auto move = [&](std::size_t i, long double fresh) {
      out[i] = static_cast<double>((1 - static_cast<long double>(share)) * out[i] +
                                   static_cast<long double>(share) * fresh);
    };
    move(static_cast<std::size_t>(k), mean);
    move(static_cast<std::size_t>(c + k), squares / static_cast<long double>(n - 1));
  }
  return out;
}

const Sizes kEven(4, 16), kUneven = {5, 11, 48};

TEST_CASE(
    "[S19] bn_cycle: after a cycle running statistics have moved by those of all its samples") {
  for (const auto& [dtype, bound] : {std::pair{f64, 1e-12}, std::pair{f32, 1e-6}})
    for (const std::optional<double> momentum : {std::optional(0.1), std::optional<double>()})
      for (const Sizes& sizes : {Sizes{kBatch}, kEven, kUneven, Sizes{1 + 1, kBatch - 2}}) {
        CAPTURE(to_string(dtype), momentum.has_value(), sizes.size());
        Net net(BatchNormMode::cycle_pooled, dtype, {.momentum = momentum});
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
          CHECK(net.bn.num_batches.item() == step + 1);
          CHECK(pool_is_empty(net.bn));
        }
      }
}

TEST_CASE("[S19] bn_cycle: images, channels-last or not, pool over samples and places alike") {
  for (const bool channels_last : {false, true}) {
    CAPTURE(channels_last);
    nn::BatchNorm2d bn(3, {.accumulation = BatchNormMode::cycle_pooled, .dtype = f64});
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

TEST_CASE("[S19] bn_cycle: in micro mode running statistics move with each micro-batch") {
  Net net(BatchNormMode::micro, f64);
  const WarningHandler before = set_warning_handler([](const std::string&) {});
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
  CHECK(net.bn.num_batches.item() == 3);
  CHECK(distance(running(net.bn), want) <= 1e-12);
  CHECK(distance(want, moved(running(Net(BatchNormMode::micro, f64).bn), rows, 0.1)) > 0.01);
  set_warning_handler(before);
}

TEST_CASE("[S19] bn_cycle: a cycle that is skipped or dropped leaves running statistics alone") {
  Net net(BatchNormMode::cycle_pooled);
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
          opt.step(3, [&](std::int64_t i) {
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
    Net net(BatchNormMode::cycle_pooled);
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
  Net net(BatchNormMode::cycle_pooled, f64);
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
    Net net(BatchNormMode::cycle_pooled, f64, {.affine = affine});
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

TEST_CASE("[S19][S04] bn_cycle: a short cycle moves them by the samples that it has") {
  for (const bool carry : {false, true}) {
    CAPTURE(carry);
    Net net(BatchNormMode::cycle_pooled, f64);
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
    Net same(BatchNormMode::cycle_pooled, f64);
    CHECK(distance(running(net.bn), moved(before, same.in(b.x.slice(0, 0, n)), 0.1)) <= 1e-12);
  }
}

// Three cycles in which gradients overflow at scales above `limit`.
struct Replayed {
  Bits buffers, training;
  std::int64_t calls = 0;
};
Replayed replayed(BatchNormMode mode, const LossScale& scale, double limit) {
  Net net(mode);
  const WarningHandler before = set_warning_handler({});
  optim::AdamW opt(net.parameters(), {.lr = 0.01}, {.loss_scale = scale});
  Replayed out;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Batch b = batch_of(step);
    const optim::StepReport report = opt.step(4, [&](std::int64_t i) {
      ++out.calls;
      Loss loss = loss_of(net, b, 16 * i, 16 * i + 16);
      if (i == 2 && opt.loss_scale() > limit) loss.sum = spoilt(loss.sum);
      return loss;
    });
    REQUIRE(report.applied());
  }
  set_warning_handler(before);
  out.buffers = bits_of_buffers(net);
  out.training = bits_of_training(opt);
  return out;
}

TEST_CASE("[S19][S15] bn_cycle: a replayed cycle counts once, in both modes") {
  for (const BatchNormMode mode : {BatchNormMode::cycle_pooled, BatchNormMode::micro}) {
    CAPTURE(mode == BatchNormMode::micro);
    const Replayed plain = replayed(mode, LossScale::fixed(256), 256);
    const Replayed again = replayed(
        mode, LossScale::dynamic({.init = 1024, .on_overflow = optim::OverflowPolicy::replay}),
        256);
    CHECK(plain.calls == 12);
    CHECK(again.calls == 12 + 2 * 4);
    CHECK(again.buffers == plain.buffers);
    CHECK(again.training == plain.training);
  }
}

TEST_CASE("[S19][S16] bn_cycle: each layer follows the optimizer that trains it") {
  for (const optim::SkipPolicy policy : {optim::SkipPolicy::all, optim::SkipPolicy::each}) {
    Net a(BatchNormMode::cycle_pooled), b(BatchNormMode::cycle_pooled);
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
    CHECK(b.bn.num_batches.item() == 1);
    CHECK(a.bn.num_batches.item() == (policy == optim::SkipPolicy::all ? 1 : 2));
    micro_step(false);
    optim::flush_all({&first, &second}, optim::Partial::drop);
    CHECK(pool_is_empty(a.bn));
    CHECK(pool_is_empty(b.bn));
  }
}

TEST_CASE("[S19][S20] bn_cycle: the two passes over parts count their samples once") {
  for (const BatchNormMode mode : {BatchNormMode::cycle_pooled, BatchNormMode::micro}) {
    CAPTURE(mode == BatchNormMode::micro);
    std::string warning;
    const WarningHandler before =
        set_warning_handler([&](const std::string& text) { warning += text; });
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
    if (mode == BatchNormMode::cycle_pooled) want = moved(want, rows, 0.1);
    for (int i = 0; mode == BatchNormMode::micro && i < 4; ++i)
      want = moved(want, rows.slice(0, 16 * i, 16 * i + 16), 0.1);
    CHECK(distance(running(net.bn), want) <= 1e-12);
    CHECK(warning.empty() == (mode == BatchNormMode::cycle_pooled));
    set_warning_handler(before);
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
    Net net(BatchNormMode::cycle_pooled), fresh(BatchNormMode::cycle_pooled);
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
  Net net(BatchNormMode::cycle_pooled);
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = 2});
  for (int i = 0; i < 4; ++i) {
    opt.backward(loss_of(net, batch_of(1), 0, 16));
    const FailAllocation fail(0, true);
    opt.step();
  }
  opt.backward(loss_of(net, batch_of(1), 0, 16));
  const FailAllocation fail(0, true);
  opt.zero_grad();
  CHECK(net.bn.num_batches.item() == 2);
}

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

class Warnings {
 public:
  Warnings() : before_(set_warning_handler([this](const std::string& t) { texts.push_back(t); })) {}
  ~Warnings() { set_warning_handler(before_); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  std::vector<std::string> texts;

 private:
  WarningHandler before_;
};

TEST_CASE("[S19] bn_cycle: micro mode under accumulation is warned of, once per layer") {
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
  steps(9);
  REQUIRE(warnings.texts.size() == 2);
  std::sort(warnings.texts.begin(), warnings.texts.end());
  CHECK(warnings.texts[0] ==
        "[BatchNorm1d] blocks.0.bn: the running statistics move in each of the cycle's 4 "
        "micro-steps, by the mean and variance of a micro-batch, instead of once per step by those "
        "of the whole batch; hint: nn::convert_batch_norm(net, nn::BatchNormMode::cycle_pooled) "
        "pools them over the cycle; nn::convert_to_group_norm(net, groups) does without");
  CHECK(warnings.texts[1].find("[BatchNorm1d] last: the running") == 0);
}

TEST_CASE("[S19] bn_cycle: nothing is warned of without accumulation, or where it is dealt with") {
  Warnings warnings;
  for (const int way : {0, 1, 2, 3}) {
    Deep net;
    if (way == 1) nn::convert_batch_norm(net, BatchNormMode::cycle_pooled);
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
