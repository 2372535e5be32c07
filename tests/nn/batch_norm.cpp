// BatchNorm as a layer: statistics of the batch in training, running ones in evaluation, and what
// becomes of them in conversions and copies. (How they follow an optimizer's cycles:
// tests/semantics/batch_norm_cycle.cpp and batch_norm_meets.cpp.)
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <sstream>

#include "firn/firn.h"
#include "firn/memory/plan.h"
#include "firn/nn/layers/batch_norm.h"
#include "firn/nn/layers/channel_norm.h"
#include "message_of.h"
#include "support/catch.h"
#include "support/golden.h"
#include "support/matchers.h"
#include "support/source_path.h"
#include "support/values.h"

using namespace firn;
using namespace firn::testing;
using nn::BatchNormMode;

namespace {

using Values = std::vector<double>;

Tensor input(const Shape& shape, DType dtype = f32, std::uint64_t seed = 7) {
  return make(Rng(seed).uniforms(shape.product(), -2, 3), shape, dtype);
}

/// Mean and unbiased variance of each channel.
struct Sample {
  Values mean, var;
};
Sample sample_of(const Tensor& x) {
  const std::int64_t c = x.shape()[1];
  const Tensor rows = x.detach().to(f64).transpose(0, 1).reshape({c, -1});
  const std::int64_t n = rows.shape()[1];
  Sample out;
  for (std::int64_t i = 0; i < c; ++i) {
    const Values v = values_of(rows[i]);
    double mean = 0, squares = 0;
    for (const double e : v) mean += e / static_cast<double>(n);
    for (const double e : v) squares += (e - mean) * (e - mean);
    out.mean.push_back(mean);
    out.var.push_back(squares / static_cast<double>(n - 1));
  }
  return out;
}

Values mixed(const Values& old, const Values& fresh, double share) {
  Values out;
  for (std::size_t i = 0; i < old.size(); ++i)
    out.push_back((1 - share) * old[i] + share * fresh[i]);
  return out;
}

struct Net : nn::Module {
  nn::Linear in{6, 4};
  nn::BatchNorm1d bn{4};
  FIRN_MEMBERS(in, bn)
  Tensor forward(const Tensor& x) override { return relu(bn(in(x))); }
};

}  // namespace

TEST_CASE("BatchNorm has PyTorch's running statistics and evaluates like it") {
  const auto goldens =
      read_goldens(firn::testing::source_path("tests/goldens/batch_norm.safetensors"));
  const auto check = [&](const std::string& name, auto&& layer) {
    INFO(name);
    const Golden& g = goldens.at(name);
    const auto batch = [&](std::size_t i) { return make(g.inputs[i].values, g.inputs[i].shape); };
    for (std::size_t i = 0; i + 1 < g.inputs.size(); ++i) layer(batch(i));
    layer.eval();
    Values got = values_of(layer.running_mean);
    for (const Tensor& t : {Tensor(layer.running_var), layer(batch(g.inputs.size() - 1))})
      for (const double v : values_of(t)) got.push_back(v);
    expect_close(name, got, g.output.values, 1e-12 * (1 + largest(g.output.values)));
    CHECK(layer.num_batches_tracked.item() == static_cast<double>(g.inputs.size() - 1));
  };
  check("2d momentum 0.1", nn::BatchNorm2d(3, {.dtype = f64}));
  check("2d momentum 0.3, uneven", nn::BatchNorm2d(3, {.momentum = 0.3, .dtype = f64}));
  check("2d cumulative", nn::BatchNorm2d(2, {.momentum = std::nullopt, .dtype = f64}));
  check("1d rank 2", nn::BatchNorm1d(4, {.eps = 1e-3, .dtype = f64}));
  check("1d rank 3, no affine", nn::BatchNorm1d(2, {.affine = false, .dtype = f64}));
  CHECK(goldens.size() == 5);
}

TEST_CASE("BatchNorm normalises by the batch in training, by running statistics in evaluation") {
  nn::BatchNorm2d bn(3);
  {
    const NoGrad guard;
    copy_(bn.weight, tensor({1.f, 2.f, -0.5f}));
    copy_(bn.bias, tensor({0.f, 1.f, 3.f}));
  }
  const Tensor x = input({4, 3, 2, 5});
  CHECK(values_of(bn(x)) == values_of(batch_norm(x, bn.weight, bn.bias, 1e-5)));
  const Values mean = values_of(bn.running_mean), var = values_of(bn.running_var);
  const Sample s = sample_of(x);
  expect_close("mean", mean, mixed({0, 0, 0}, s.mean, 0.1), 1e-6);
  expect_close("var", var, mixed({1, 1, 1}, s.var, 0.1), 1e-6);

  bn.eval();
  const Tensor other = input({1, 3, 1, 1}, f32, 8);  // a single value is enough here
  CHECK(values_of(bn(other)) ==
        values_of(batch_norm(other, bn.weight, bn.bias, {bn.running_mean, bn.running_var}, 1e-5)));
  CHECK(values_of(bn.running_mean) == mean);  // evaluation moves nothing
  CHECK(values_of(bn.running_var) == var);
  CHECK(bn.num_batches_tracked.item() == 1);
}

TEST_CASE("BatchNorm without weights, and without running statistics") {
  nn::BatchNorm1d plain(4, {.affine = false}), untracked(4, {.track = false});
  CHECK(plain.parameters().empty());
  CHECK(plain.named_buffers().size() == 3);
  CHECK(untracked.parameters().size() == 2);
  CHECK(untracked.named_buffers().empty());
  const Tensor x = input({5, 4, 3});
  CHECK(values_of(plain(x)) == values_of(batch_norm(x)));
  untracked.eval();
  CHECK(values_of(untracked(x)) == values_of(batch_norm(x, untracked.weight, untracked.bias)));
  CHECK(untracked(input({1, 4})).shape() == Shape{1, 4});
}

TEST_CASE("BatchNorm refuses what it was not made for, naming the numbers") {
  nn::BatchNorm2d two(3);
  nn::BatchNorm1d one(3);
  CHECK(message_of([&] {
          two(zeros({2, 4, 5, 5}, f32, Device::cpu()));
        }) ==
        "[BatchNorm2d] input [2, 4, 5, 5] f32 cpu is not [n, c, h, w] with c = 3; hint: axis 1 "
        "holds the channels");
  CHECK(message_of([&] { two(zeros({2, 3})); }).find("[2, 3] f32") != std::string::npos);
  CHECK(message_of([&] {
          one(zeros({2, 3, 4, 4}));
        }).find("is not [n, c] or [n, c, l]") != std::string::npos);
  CHECK(message_of([&] { one({}); }).find("[BatchNorm1d] input undefined") == 0);
  CHECK(message_of([&] { one(zeros({1, 3})); }).find("one value per channel") != std::string::npos);
  CHECK(message_of([&] { one(zeros({2, 3}, f64)); }).find("differ in dtype") != std::string::npos);
  CHECK(one.num_batches_tracked.item() == 0);  // none of them counted
  CHECK(message_of([] { nn::BatchNorm2d(0); }) ==
        "[BatchNorm2d] c = 0 must be positive; hint: give the number of channels");
  CHECK(message_of([] { nn::BatchNorm1d(2, {.eps = -1}); }).find("eps = -1 must not be negative") !=
        std::string::npos);
  for (const double m : {-0.1, 1.5, std::nan("")})
    CHECK(message_of([&] { nn::BatchNorm1d(2, {.momentum = m}); }).find("is not in [0, 1]") !=
          std::string::npos);
}

TEST_CASE("running statistics stay f32 when a model becomes f16 or bf16") {
  for (const DType t : {f16, bf16}) {
    CAPTURE(to_string(t));
    Net net;
    nn::convert_batch_norm(net, BatchNormMode::per_step);
    net(input({8, 6})).sum().backward();
    net.zero_grad();
    const Values mean = values_of(net.bn.running_mean), var = values_of(net.bn.running_var);
    const Tensor handle = net.bn.running_mean;
    net.to(t);
    CHECK(net.bn.weight.dtype() == t);
    CHECK(net.bn.running_mean.dtype() == f32);
    CHECK(net.bn.running_var.dtype() == f32);
    CHECK(net.bn.num_batches_tracked.dtype() == i64);
    CHECK(net.bn.pooled.dtype() == f64);
    CHECK(net.bn.pooled_count.dtype() == f64);
    CHECK(values_of(net.bn.running_mean) == mean);
    CHECK(values_of(net.bn.running_var) == var);
    const Tensor x = input({8, 6}, t);
    net(x).to(f32).sum().backward();
    CHECK(net.bn.num_batches_tracked.item() == 2);
    CHECK(values_of(handle) != mean);  // the old handle sees it

    net.eval();
    CHECK(net(x).dtype() == t);
    net.to(f64);
    CHECK(net.bn.running_var.dtype() == f64);
    CHECK(net.bn.pooled.dtype() == f64);
    net.to(t);
    CHECK(net.bn.running_var.dtype() == f32);
  }
  CHECK(nn::BatchNorm1d(2, {.dtype = f16}).running_mean.dtype() == f32);
  CHECK(nn::BatchNorm1d(2, {.dtype = f16}).weight.dtype() == f16);
  CHECK(nn::BatchNorm1d(2, {.dtype = f64}).running_mean.dtype() == f64);
}

TEST_CASE("an f16 BatchNorm keeps the small steps that f16 statistics would lose") {
  nn::BatchNorm1d bn(1, {.momentum = 0.001, .dtype = f16});
  const Tensor x = make({3000, 3002}, {2, 1}, f16);
  for (int i = 0; i < 100; ++i) bn(x);
  CHECK(values_of(bn.running_mean)[0] == Approx(3001 * (1 - std::pow(0.999, 100))).epsilon(1e-5));
}

TEST_CASE("a buffer says what conversion makes of it") {
  struct Three : nn::Module {
    nn::Buffer follows{ones({2})}, widens{ones({2}), nn::OnConversion::widen},
        stays{ones({2}, f64), nn::OnConversion::keep};
    FIRN_MEMBERS(follows, widens, stays)
  } m;
  const auto types = [&] {
    return std::vector<DType>{m.follows.dtype(), m.widens.dtype(), m.stays.dtype()};
  };
  m.to(bf16);
  CHECK(types() == std::vector<DType>{bf16, f32, f64});
  m.to(f64);
  CHECK(types() == std::vector<DType>{f64, f64, f64});
  m.to(f32);
  CHECK(types() == std::vector<DType>{f32, f32, f64});
}

TEST_CASE("BatchNorm's state is copied, shared by copies, and listed by name") {
  Net a, b;
  for (int i = 0; i < 3; ++i) a(input({8, 6}, f32, 10 + static_cast<std::uint64_t>(i)));
  std::vector<std::string> names;
  for (const nn::NamedTensor& t : a.named_buffers()) names.push_back(t.name);
  CHECK(names ==
        std::vector<std::string>{"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"});
  b.copy_from(a);
  a.eval();
  b.eval();
  const Tensor x = input({3, 6});
  CHECK(values_of(b(x)) == values_of(a(x)));
  CHECK(b.bn.num_batches_tracked.item() == 3);

  nn::BatchNorm1d layer(4), copy = layer;
  copy(input({5, 4}));
  CHECK(layer.num_batches_tracked.item() == 1);
  layer.running_mean = nn::Buffer(zeros({4}));  // replaced: it is the layer's alone
  layer(input({5, 4}));
  CHECK(values_of(layer.running_mean) == values_of(copy.running_mean));
  CHECK(layer.running_mean.impl() != copy.running_mean.impl());
  CHECK(layer.num_batches_tracked.item() == 2);
}

TEST_CASE("a pooling BatchNorm without optimizer moves once per backward pass") {
  nn::BatchNorm1d bn(2, {.accumulation = BatchNormMode::per_step, .dtype = f64});
  CHECK(bn.named_buffers().size() == 5);
  const Tensor x = input({7, 2}, f64);
  {
    const NoGrad guard;
    bn(x);
  }
  const Tensor y = bn(x);
  CHECK(bn.num_batches_tracked.item() == 0);  // so far there was no backward pass
  y.sum().backward();
  const Sample s = sample_of(x);
  CHECK(bn.num_batches_tracked.item() == 1);
  expect_close("mean", values_of(bn.running_mean), mixed({0, 0}, s.mean, 0.1), 1e-14);
  expect_close("var", values_of(bn.running_var), mixed({1, 1}, s.var, 0.1), 1e-13);
  CHECK(values_of(bn.pooled_count) == Values{0});
}

TEST_CASE("convert_batch_norm sets the mode of all layers and keeps what they have learnt") {
  struct Outer : nn::Module {
    Net net;
    nn::Sequential more{nn::BatchNorm1d(4), nn::ReLU()};
    FIRN_MEMBERS(net, more)
  } m;
  m.net(input({8, 6}));
  const Values mean = values_of(m.net.bn.running_mean);
  CHECK(nn::convert_batch_norm(m, BatchNormMode::per_step) == 2);
  CHECK(m.net.bn.accumulation() == BatchNormMode::per_step);
  CHECK(m.more.at<nn::BatchNorm1d>(0).pooled.shape() == Shape{2, 4});
  CHECK(values_of(m.net.bn.running_mean) == mean);
  CHECK(m.net.bn.num_batches_tracked.item() == 1);
  nn::convert_batch_norm(m, BatchNormMode::per_micro_batch);
  CHECK_FALSE(m.net.bn.pooled.defined());
  CHECK(values_of(m.net.bn.running_mean) == mean);
}

TEST_CASE("convert_to_group_norm makes every BatchNorm a GroupNorm, where it is") {
  Net net;
  {
    const NoGrad guard;
    copy_(net.bn.weight, tensor({1.f, 2.f, 3.f, 4.f}));
  }
  const Tensor weight = net.bn.weight;
  CHECK(message_of([&] {
          nn::convert_to_group_norm(net, 3);
        }).find("3 groups cannot be made of the 4 channels of BatchNorm1d bn") !=
        std::string::npos);
  CHECK_FALSE(net.bn.is_group_norm());
  CHECK(nn::convert_to_group_norm(net, 2) == 1);
  CHECK(net.named_buffers().empty());
  CHECK(net.bn.weight.impl() == weight.impl());
  const Tensor x = input({3, 4});
  const Values want = values_of(group_norm(x, 2, net.bn.weight, net.bn.bias));
  CHECK(values_of(net.bn(x)) == want);
  net.eval();
  CHECK(values_of(net.bn(x)) == want);
  CHECK(net.bn.type_name() == "GroupNorm");
  CHECK(net.bn.extra_repr() == "2, 4, eps = 1e-05");
  CHECK(nn::convert_to_group_norm(net, 2) == 0);
  CHECK(nn::convert_batch_norm(net, BatchNormMode::per_step) == 0);
  nn::BatchNorm1d bare(4, {.affine = false});
  bare.become_group_norm(2);
  CHECK(message_of([&] { bare(input({3, 6})); }).find("[3, 6] f32") != std::string::npos);
}

TEST_CASE("GroupNorm and InstanceNorm call their ops and check their input") {
  nn::GroupNorm group(2, 4);
  nn::InstanceNorm1d one(4, {.affine = true});
  nn::InstanceNorm2d two(4);
  const Tensor x3 = input({2, 4, 5}), x4 = input({2, 4, 3, 3});
  CHECK(values_of(group(x3)) == values_of(group_norm(x3, 2, group.weight, group.bias)));
  CHECK(values_of(group(x4)) == values_of(group_norm(x4, 2, group.weight, group.bias)));
  CHECK(values_of(one(x3)) == values_of(instance_norm(x3, one.weight, one.bias)));
  CHECK(values_of(two(x4)) == values_of(instance_norm(x4)));
  CHECK(two.parameters().empty());
  CHECK(message_of([&] {
          group(zeros({2, 5}));
        }).find("is not [n, c, ...] with c = 4") != std::string::npos);
  CHECK(message_of([&] { one(x4); }).find("[InstanceNorm1d] input [2, 4, 3, 3]") == 0);
  CHECK(message_of([&] { two(x3); }).find("is not [n, c, h, w] with c = 4") != std::string::npos);
  CHECK(message_of([] { nn::GroupNorm(3, 4); }).find("3 groups of 4 channels") !=
        std::string::npos);
  CHECK(message_of([] { nn::InstanceNorm2d(-1); }).find("c = -1") != std::string::npos);
}

TEST_CASE("normalisation layers print what they are") {
  std::ostringstream out;
  nn::Sequential net{nn::BatchNorm2d(8),
                     nn::BatchNorm1d(4, {.momentum = std::nullopt}),
                     nn::BatchNorm2d(2, {.affine = false, .track = false}),
                     nn::BatchNorm2d(2, {.accumulation = BatchNormMode::per_step}),
                     nn::GroupNorm(2, 4, {.affine = false}),
                     nn::InstanceNorm2d(3)};
  out << net;
  CHECK(out.str() ==
        "Sequential(\n"
        "  0: BatchNorm2d(8, eps = 1e-05, momentum = 0.1)\n"
        "  1: BatchNorm1d(4, eps = 1e-05, cumulative average)\n"
        "  2: BatchNorm2d(2, eps = 1e-05, affine = false, track = false)\n"
        "  3: BatchNorm2d(2, eps = 1e-05, momentum = 0.1, per_step)\n"
        "  4: GroupNorm(2, 4, eps = 1e-05, affine = false)\n"
        "  5: InstanceNorm2d(3, eps = 1e-05)\n"
        ")");
}

TEST_CASE("scopes of RecomputedStatistics may end in any order") {
  manual_seed(3);
  nn::Sequential net{nn::Sequential{nn::Linear(4, 6), nn::BatchNorm1d(6)}, nn::BatchNorm1d(6)};
  auto& inner = dynamic_cast<nn::Sequential&>(net[0]);
  const auto& norm = dynamic_cast<nn::BatchNorm1d&>(inner[1]);
  const auto& last = dynamic_cast<nn::BatchNorm1d&>(net[1]);
  net(randn({8, 4}));
  const auto seen = [](const nn::BatchNorm1d& layer) {
    return std::pair{values_of(layer.running_mean), layer.num_batches_tracked.item()};
  };
  const auto trained = seen(norm), last_trained = seen(last);
  using Scope = nn::RecomputedStatistics;
  const auto begin = [&](nn::Module& of) {
    return std::make_unique<Scope>(of, [&] { of(randn({8, 4}) * 3); });
  };
  std::vector<int> order = {0, 1, 2};
  do {
    CAPTURE(order);
    std::vector<std::unique_ptr<Scope>> scopes;
    std::vector<decltype(seen(norm))> shown;
    for (const bool whole : {true, false, true}) {  // the middle scope has one of the two layers
      scopes.push_back(begin(whole ? net : inner));
      shown.push_back(seen(norm));
    }
    const auto last_shown = seen(last);
    for (const int i : order) {
      if (i == 1)
        plan_memory([&] { scopes[1].reset(); });
      else
        scopes[static_cast<std::size_t>(i)].reset();
      // The layers show the latest scope that is alive.
      auto want = trained;
      for (std::size_t s = 0; s < 3; ++s)
        if (scopes[s]) want = shown[s];
      CHECK(seen(norm) == want);
      if (scopes[2]) CHECK(seen(last) == last_shown);
    }
    CHECK(seen(last) == last_trained);
  } while (std::next_permutation(order.begin(), order.end()));
  net(randn({8, 4}));
  CHECK(seen(norm) != trained);  // and the training goes on with its own
}

TEST_CASE("RecomputedStatistics are those of the weights of the moment, for a scope") {
  manual_seed(3);
  const auto mode = GENERATE(nn::BatchNormMode::per_micro_batch, nn::BatchNormMode::per_step);
  nn::Sequential net{nn::Linear(4, 6), nn::BatchNorm1d(6, {.accumulation = mode}),
                     nn::Dropout(0.5)};
  auto& linear = dynamic_cast<nn::Linear&>(net[0]);
  auto& norm = dynamic_cast<nn::BatchNorm1d&>(net[1]);
  optim::SGD opt(net.parameters(), {.lr = 0.3}, {.ema = 0.9});
  for (int step = 0; step < 5; ++step) {
    opt.backward(mse_loss(net(randn({8, 4})), randn({8, 6})));
    opt.step();
  }
  const auto mean = values_of(norm.running_mean), var = values_of(norm.running_var);
  const double batches = norm.num_batches_tracked.item();
  const std::vector<Tensor> data = {randn({8, 4}), randn({16, 4}) * 2};
  {
    const optim::AveragedWeights averaged(opt);
    net.eval();
    const NoGrad guard;
    const Tensor x = linear(data[0]), y = linear(data[1]);
    const nn::RecomputedStatistics statistics(net, [&] {
      CHECK(norm.training());
      CHECK_FALSE(net[2].training());
      for (const Tensor& batch : data) net(batch);
    });
    CHECK_FALSE(norm.training());
    const auto want_mean = values_of((x.mean(0) + y.mean(0)) / 2);
    const auto want_var = values_of((firn::var(x, 0) + firn::var(y, 0)) / 2);
    const auto got_mean = values_of(norm.running_mean), got_var = values_of(norm.running_var);
    for (std::size_t c = 0; c < 6; ++c) {
      CHECK(got_mean[c] == Approx(want_mean[c]).margin(1e-5));
      CHECK(got_var[c] == Approx(want_var[c]).epsilon(1e-4));
    }
    CHECK(got_mean != mean);
    CHECK(norm.num_batches_tracked.item() == 2);
    CHECK(norm.accumulation() == mode);
  }
  net.train();
  CHECK(values_of(norm.running_mean) == mean);
  CHECK(values_of(norm.running_var) == var);
  CHECK(norm.num_batches_tracked.item() == batches);
  // The training goes on with its own statistics.
  opt.backward(mse_loss(net(randn({8, 4})), randn({8, 6})));
  opt.step();
  CHECK(norm.num_batches_tracked.item() == batches + 1);
  const auto moved = values_of(norm.running_mean);
  CHECK(moved != mean);
  CHECK_THROWS_WITH(nn::RecomputedStatistics(net, [] {}),
                    test::contains("the layer \"1\" has seen no batch"));
  CHECK_NOTHROW(
      plan_memory([&] { const nn::RecomputedStatistics planned(net, [&] { net(data[0]); }); }));
  std::unique_ptr<nn::RecomputedStatistics> kept;
  plan_memory(
      [&] { kept = std::make_unique<nn::RecomputedStatistics>(net, [&] { net(data[0]); }); });
  CHECK(values_of(norm.running_mean) == moved);
  kept.reset();
  CHECK(values_of(norm.running_mean) == moved);
  CHECK_THROWS_AS(nn::RecomputedStatistics(net,
                                           [&] {
                                             net(data[0]);
                                             throw std::runtime_error("a bad batch");
                                           }),
                  std::runtime_error);
  CHECK(values_of(norm.running_mean) == moved);
  CHECK(norm.training());
}
