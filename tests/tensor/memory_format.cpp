// Memory formats: what is channels-last, who keeps it, and that gradients come in it.
#include <numeric>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;
using firn::testing::make;
using firn::testing::values_of;

namespace {

bool holds(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

/// 0, 1, 2, ... in row-major order.
Tensor counted(const Shape& shape, DType dtype = f32) {
  std::vector<double> values(static_cast<std::size_t>(shape.product()));
  std::iota(values.begin(), values.end(), 0.0);
  return make(values, shape, dtype);
}

bool only_channels_last(const Tensor& t) { return t.is_channels_last() && !t.is_contiguous(); }

}  // namespace

TEST_CASE("memory format: channels-last is an order of memory, not of axes", "[tensor]") {
  const Tensor x = counted({2, 3, 4, 5});
  const Tensor y = channels_last(x);
  CHECK(y.shape() == x.shape());
  CHECK(y.strides() == Strides{60, 1, 15, 3});
  CHECK(values_of(y) == values_of(x));
  CHECK(only_channels_last(y));
  CHECK_FALSE(x.is_channels_last());
  CHECK(channels_last(y).impl() == y.impl());
  CHECK(values_of(contiguous(y)) == values_of(x));
  CHECK(contiguous(y).is_contiguous());
  CHECK(channels_last(counted({2, 3, 4})).strides() == Strides{12, 1, 3});
  CHECK(channels_last(counted({2, 3, 2, 2, 2})).strides() == Strides{24, 1, 12, 6, 3});
}

TEST_CASE("memory format: a tensor of one channel or one position is in both formats", "[tensor]") {
  for (const Shape& shape : {Shape{2, 1, 4, 5}, Shape{2, 3, 1, 1}, Shape{0, 3, 4, 5}}) {
    const Tensor x = counted(shape);
    CAPTURE(shape);
    CHECK(x.is_contiguous());
    CHECK(x.is_channels_last());
    CHECK(channels_last(x).impl() == x.impl());
    CHECK(format_of(x.shape(), x.strides()) == MemoryFormat::contiguous);
  }
  // Strides of axes of size 1 say nothing.
  CHECK(counted({6}).as_strided({1, 2, 3, 1}, {99, 1, 2, 77}).is_channels_last());
}

TEST_CASE("memory format: gaps and other orders are not channels-last", "[tensor]") {
  const Tensor x = channels_last(counted({2, 4, 3, 5}));
  CHECK_FALSE(slice(x, 1, 0, 2).is_channels_last());
  CHECK_FALSE(transpose(x, 2, 3).is_channels_last());
  CHECK(slice(x, 0, 0, 1).is_channels_last());
  CHECK_FALSE(counted({4, 5}).is_channels_last());
  const std::string refusal = error_of([] { channels_last(counted({4, 5})); });
  CHECK(holds(refusal, "[channels_last]"));
  CHECK(holds(refusal, "[4, 5]"));
  CHECK(holds(error_of([] {
                empty({4, 5}, f32, Device::cpu(), MemoryFormat::channels_last);
              }),
              "[4, 5]"));
}

TEST_CASE("memory format: elementwise operations, casts and dropout keep channels-last",
          "[tensor]") {
  const Tensor x = channels_last(counted({2, 3, 4, 5}));
  const Tensor row_major = counted({2, 3, 4, 5});
  const Tensor per_channel = counted({3, 1, 1});
  const struct {
    const char* name;
    Tensor got, want;
  } cases[] = {
      {"relu", relu(x), relu(row_major)},
      {"mul", x * 3, row_major * 3},
      {"add", x + x, row_major + row_major},
      {"add, other operand row-major", x + row_major, row_major + row_major},
      {"add a bias", x + per_channel, row_major + per_channel},
      {"bias first", per_channel - x, per_channel - row_major},
      {"lt", lt(x, x * 0.5), lt(row_major, row_major * 0.5)},
      {"where", where(gt(x, zeros_like(x)), x, x * 2),
       where(gt(row_major, zeros_like(row_major)), row_major, row_major * 2)},
      {"cast", x.to(f64), row_major.to(f64)},
      {"zeros_like", zeros_like(x), zeros_like(row_major)},
      {"ones_like", ones_like(x), ones_like(row_major)},
  };
  for (const auto& c : cases) {
    INFO(c.name);
    CHECK(only_channels_last(c.got));
    CHECK(values_of(c.got) == values_of(c.want));
  }
  CHECK(only_channels_last(dropout(x, 0.5)));
  CHECK((row_major + x).is_contiguous());
  CHECK(clone(x).is_contiguous());
}

TEST_CASE("memory format: gradients come in the format of what they are of", "[tensor]") {
  const Tensor x = channels_last(counted({2, 3, 4, 5})).set_requires_grad();
  const Tensor seed = counted({2, 3, 4, 5});
  backward(relu(x) * x, {.initial_gradient = seed});
  CHECK(only_channels_last(x.grad()));
  CHECK(values_of(x.grad()) == values_of(seed * counted({2, 3, 4, 5}) * 2));
  backward(contiguous(x) * 2, {.initial_gradient = seed});  // accumulates into the same buffer
  CHECK(only_channels_last(x.grad()));

  const Tensor y = counted({2, 3, 4, 5}).set_requires_grad();
  backward(channels_last(y) * 2, {.initial_gradient = channels_last(seed)});
  backward(channels_last(y) * 2, {.initial_gradient = seed});
  CHECK(values_of(y.grad()) == values_of(seed * 4));
}

TEST_CASE("memory format: dropout masks the same elements forwards and backwards in channels-last",
          "[tensor]") {
  Tensor x = channels_last(counted({2, 3, 4, 5}) + 1).detach();
  x.set_requires_grad();
  const Tensor y = dropout(x, 0.5);
  backward(y, {.initial_gradient = counted({2, 3, 4, 5}) * 0 + 1});
  const auto out = values_of(y), slope = values_of(x.grad()), in = values_of(x);
  for (std::size_t i = 0; i < in.size(); ++i) CHECK(out[i] == in[i] * slope[i]);
}

TEST_CASE("memory format: parameters keep their format through modules, conversions and optimizers",
          "[tensor]") {
  struct Net : nn::Module {
    nn::Parameter weight{channels_last(counted({4, 3, 2, 2}))};
    FIRN_MEMBERS(weight)
  } net;
  const auto values = values_of(net.weight);
  CHECK(only_channels_last(net.weight));
  net.to(f16);
  CHECK(only_channels_last(net.weight));
  net.to(f32);
  CHECK(only_channels_last(net.weight));
  CHECK(values_of(net.weight) == values);

  for (const DType dtype : {f32, f16}) {
    net.to(dtype);
    optim::SGD optimizer(net.parameters(), {.lr = 0.5});
    CHECK(only_channels_last(net.weight));
    CHECK(values_of(net.weight) == values);
    const Tensor sum = firn::sum(net.weight.to(f32));
    optimizer.backward(Loss{sum, ones({}), false});
    CHECK(only_channels_last(net.weight.grad()));
    optimizer.step();
    auto want = values;
    for (double& v : want) v -= 0.5;
    CHECK(values_of(net.weight) == want);
    const NoGrad guard;
    copy_(net.weight, make(values, {4, 3, 2, 2}));
  }
}
