// The forms that stand beside the plain functions: operators, comparisons, members, an axis as a
// number, braces, and named options.
#include <limits>

#include "ops/refusals/refused.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using Values = std::vector<double>;

TEST_CASE("comparison operators take tensors and numbers on either side", "[ops]") {
  for (const DType t : {f64, f32, f16, bf16, i32, i64, u8}) {
    const Tensor x = make({0, 1, 2}, {3}, t), y = make({2, 1, 0}, {3}, t);
    CHECK((x > 1).dtype() == boolean);
    CHECK(values_of(x > 1) == Values{0, 0, 1});
    CHECK(values_of(x >= 1) == Values{0, 1, 1});
    CHECK(values_of(x < 1) == Values{1, 0, 0});
    CHECK(values_of(x <= 1) == Values{1, 1, 0});
    CHECK(values_of(1 > x) == Values{1, 0, 0});
    CHECK(values_of(1 >= x) == Values{1, 1, 0});
    CHECK(values_of(1 < x) == Values{0, 0, 1});
    CHECK(values_of(1 <= x) == Values{0, 1, 1});
    CHECK(values_of(x > y) == Values{0, 0, 1});
    CHECK(values_of(x >= y) == Values{0, 1, 1});
    CHECK(values_of(x < y) == Values{1, 0, 0});
    CHECK(values_of(x <= y) == Values{1, 1, 0});
    CHECK(values_of(eq(x, 1)) == Values{0, 1, 0});
    CHECK(values_of(ne(x, 1)) == Values{1, 0, 1});
  }
}

TEST_CASE("where, maximum and minimum with numbers, and their gradients", "[ops]") {
  for (const DType t : {f64, f32, f16}) {
    Tensor x = make({-2, 1, 3}, {3}, t).set_requires_grad();
    const Tensor y = where(x > 0, x, 0.0) + where(x > 2, -1, x);
    CHECK(y.dtype() == t);
    CHECK(values_of(y) == Values{-2, 2, 2});
    (y.sum() + maximum(0.0, x).sum() + minimum(x, 2).sum()).backward();
    CHECK(values_of(x.grad()) == Values{2, 4, 2});
  }
  const Tensor mask = where(make({1, 0}, {2}, boolean), 1, -1);
  CHECK(mask.dtype() == f32);
  CHECK(values_of(mask) == Values{1, -1});
}

TEST_CASE("operators such as += write in place", "[ops]") {
  Tensor x = make({1, 2, 3, 4}, {2, 2});
  const Tensor same = x, row = x[0];
  x += 1;
  x -= make({1, 0}, {2});
  x *= 2.0;
  x /= make({2, 1, 1, 2}, {2, 2});
  CHECK(values_of(same) == Values{1, 6, 6, 5});
  CHECK(values_of(row) == Values{1, 6});
  x[1] += 10;  // a view that has no name
  CHECK(values_of(same) == Values{1, 6, 16, 15});
  refused("add_", {"[2, 2]"}, [&] { x += ones({3, 2, 2}, f64); });
}

TEST_CASE("operators such as += are recorded", "[ops]") {
  Tensor w = make({1, 2, 3}, {3}).set_requires_grad();
  Tensor h = w * 2.0;
  h += square(w);
  h *= w;  // (2w + w^2) w
  h.sum().backward();
  CHECK(values_of(w.grad()) == Values{7, 20, 39});  // 4w + 3w^2

  Tensor total = zeros({}, f64);
  for (int i = 1; i <= 3; ++i) total += (w * static_cast<double>(i)).sum();
  w.set_grad({});
  total.backward();
  CHECK(values_of(w.grad()) == Values{6, 6, 6});

  refused("add_", {"[3]"}, [&] { w += 1; });  // a leaf
  const NoGrad guard;
  w -= 0.5 * w.grad();
  CHECK(values_of(w) == Values{-2, -1, 0});
}

TEST_CASE("an axis may be a number", "[ops]") {
  const Tensor x = make({1, 2, 3, 4, 5, 9}, {2, 3});
  CHECK(values_of(sum(x, 1)) == Values{6, 18});
  CHECK(values_of(sum(x, -2)) == Values{5, 7, 12});
  CHECK(sum(x, 0, true).shape() == Shape{1, 3});
  CHECK(values_of(mean(x, 1)) == Values{2, 6});
  CHECK(values_of(max(x, 0)) == Values{4, 5, 9});
  CHECK(values_of(min(x, 1)) == Values{1, 4});
  CHECK(values_of(var(x, 1)) == Values{1, 7});
  CHECK(values_of(norm(make({3, 4, 0, 5}, {2, 2}), 1)) == Values{5, 5});
  CHECK(zeros(3).shape() == Shape{3});
  CHECK(x.reshape(-1).shape() == Shape{6});
  refused("sum", {"axis 2"}, [&] { sum(x, 2); });
}

TEST_CASE("members are the functions of their names", "[ops]") {
  const Tensor x = make({0.5, 2, 1, 4}, {2, 2}), y = x - 1.5;
  const std::pair<Tensor, Tensor> pairs[] = {
      {x.sum(1), sum(x, {1})},
      {x.mean(0), mean(x, {0})},
      {x.max(), max(x)},
      {x.min(1, true), min(x, {1}, true)},
      {x.var(1, 0), var(x, {1}, 0)},
      {x.norm(), norm(x)},
      {x.argmax(0), argmax(x, 0)},
      {x.matmul(y), matmul(x, y)},
      {x.softmax(), softmax(x)},
      {x.log_softmax(0), log_softmax(x, 0)},
      {y.abs(), abs(y)},
      {y.exp(), exp(y)},
      {x.log(), log(x)},
      {x.sqrt(), sqrt(x)},
      {y.square(), square(y)},
      {x.argmin(0), argmin(x, 0)},
      {x.prod(1), prod(x, 1)},
      {y.any(0), any(y, 0)},
      {y.all(0), all(y, 0)},
      {x.logsumexp(1), logsumexp(x, 1)},
      {x.cumsum(1), cumsum(x, 1)},
      {x.gather(1, argmax(x, 1, true)), gather(x, 1, argmax(x, 1, true))},
      {x.index_select(0, argmax(x, 1)), index_select(x, 0, argmax(x, 1))},
      {x.masked_fill(y > 0, 7), masked_fill(x, y > 0, 7)},
      {x.split(1, 1)[1], split(x, 1, 1)[1]},
      {x.split({1, 1}, 1)[1], split(x, {1, 1}, 1)[1]},
      {x.chunk(2)[1], chunk(x, 2)[1]},
      {x.rsqrt(), rsqrt(x)},
      {x.reciprocal(), reciprocal(x)},
      {x.neg(), neg(x)},
      {y.sign(), sign(y)},
      {y.floor(), floor(y)},
      {y.ceil(), ceil(y)},
      {y.round(), round(y)},
      {x.sin(), sin(x)},
      {x.cos(), cos(x)},
      {x.pow(y), pow(x, y)},
      {x.clamp_min(1), clamp_min(x, 1)},
      {x.clamp_max(1), clamp_max(x, 1)},
      {x.pow(3), pow(x, 3)},
      {x.clamp(1, 2), clamp(x, 1, 2)},
      {y.relu(), relu(y)},
      {y.gelu(), gelu(y)},
      {y.sigmoid(), sigmoid(y)},
      {y.silu(), silu(y)},
      {y.tanh(), tanh(y)},
      {x.select(1, 0), select(x, 1, 0)},
  };
  for (const auto& [member, function] : pairs) {
    CHECK(member.shape() == function.shape());
    CHECK(values_of(member) == values_of(function));
  }
  const Tensor z = zeros({2, 2}, f64);
  z.copy_(x);
  CHECK(values_of(z) == values_of(x));
  z.fill_(7);
  CHECK(values_of(z) == Values(4, 7.0));
  z.zero_();
  CHECK(values_of(z) == Values(4, 0.0));
}

TEST_CASE("named options, and a dtype or a device in their place", "[ops]") {
  const Device cpu = Device::cpu();
  CHECK(zeros({3}, {.dtype = f16, .device = cpu}).dtype() == f16);
  CHECK(zeros({3}, {.dtype = f16, .device = cpu}).device() == cpu);
  CHECK(zeros({3}, cpu).device() == cpu);
  CHECK(ones({3}, {.dtype = u8}).dtype() == u8);
  CHECK(full({3}, 2, {.dtype = i64}).dtype() == i64);
  CHECK(values_of(full({2}, 0.5, f64)) == Values{0.5, 0.5});
  CHECK(values_of(eye(2, {.dtype = i32})) == Values{1, 0, 0, 1});
  CHECK(values_of(arange(3, {.start = 1, .step = 0.5, .dtype = f64})) == Values{1, 1.5, 2});
  CHECK(arange(3, f32).dtype() == f32);
  CHECK(arange(3).dtype() == i64);
  const Tensor images = zeros({2, 3, 4, 4}, {.format = MemoryFormat::channels_last});
  CHECK(images.is_channels_last());
  CHECK(values_of(images) == Values(96, 0.0));
  refused("eye", {"channels"}, [] { eye(3, {.format = MemoryFormat::channels_last}); });

  Generator g(3), same(3), third(3);
  const Values u = values_of(rand({100}, {.low = -3, .high = 5, .dtype = f64, .generator = &g}));
  const Tensor by_hand = empty({100}, f64);
  uniform_(by_hand, -3, 5, same);
  CHECK(u == values_of(by_hand));
  const Values n =
      values_of(randn({100}, {.mean = 3, .stddev = 0.5, .dtype = f64, .generator = &third}));
  Generator again(3);
  normal_(by_hand, 3, 0.5, again);
  CHECK(n == values_of(by_hand));
  refused("rand", {"i64"}, [] { rand({2}, i64); });
}

TEST_CASE("what is left out of the options is the default device, not the CPU", "[ops]") {
  // Where there is no other device, the scope is the CPU's and this shows that it is asked.
  const DeviceScope scope(default_device());
  for (const Tensor& t : {zeros({2}, {.dtype = f64}), ones(2), full({2}, 3, {.dtype = i32}),
                          rand({2}, {.low = -1}), randn({2}, {.stddev = 2}), arange(4), eye(2)})
    CHECK(t.device() == default_device());
}

TEST_CASE("lists of tensors and sizes may be braces", "[ops]") {
  const Tensor x = make({1, 2, 3, 4, 5}, {5});
  const std::vector<Tensor> parts = split(x, {2, 3});
  CHECK(values_of(parts[1]) == Values{3, 4, 5});
  CHECK(values_of(split(x, std::vector<std::int64_t>{4, 1})[1]) == Values{5});
  CHECK(values_of(cat({parts[1], parts[0]})) == Values{3, 4, 5, 1, 2});
  CHECK(values_of(cat(parts)) == values_of(x));
  const Tensor a = make({1, 0, 0, 1}, {2, 2}), b = make({1, -3}, {2});
  CHECK(values_of(mlp(make({2, 2}, {1, 2}), {a, a}, {b, b})) == Values{4, -3});
  CHECK(values_of(mlp(make({2, -2}, {1, 2}), {a, a})) == Values{2, 0});
}

TEST_CASE("operands of two dtypes: both are named, and the cast of each", "[ops]") {
  refused("linear", {"[2, 3] f32", "[5, 3] f16", ".to(firn::f16)", ".to(firn::f32)"}, [] {
    linear(ones({2, 3}), ones({5, 3}, f16));
  });
  refused("add", {"i64", "bool", ".to(firn::boolean)"},
          [] { ones({3}, i64) + ones({3}, boolean); });
}

TEST_CASE("conv2d of a batch without channels says unsqueeze(1)", "[ops]") {
  refused("conv2d", {"[8, 28, 28]", "x.unsqueeze(1)"}, [] {
    conv2d(zeros({8, 28, 28}), zeros({4, 1, 3, 3}));
  });
  refused("conv2d", {"[28, 28]", "x.unsqueeze(0)"}, [] {
    conv2d(zeros({28, 28}), zeros({4, 1, 3, 3}));
  });
}

}  // namespace
}  // namespace firn::testing
