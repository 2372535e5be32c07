// What convolutions refuse, and what the rows of conv.cpp cannot say: formats of results, what is
// saved, dtypes under autocast, the switch for algorithms.
#include <limits>

#include "refused.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::refused;
using firn::testing::values_of;

namespace {

Tensor normal(const Shape& shape, DType dtype = f32) {
  Generator g(11);
  return randn(shape, {.dtype = dtype, .generator = &g});
}

}  // namespace

TEST_CASE("refusals: ranks of convolutions", "[ops]") {
  refused("conv2d", {"x is [n, c, h, w] or [c, h, w]", "[3, 4]"}, [] {
    conv2d(zeros({3, 4}), zeros({2, 3, 1, 1}));
  });
  refused("conv2d", {"weight [2, 3, 1]", "3 axes, not 4"}, [] {
    conv2d(zeros({1, 3, 4, 4}), zeros({2, 3, 1}));
  });
  refused("conv1d", {"x is [n, c, l] or [c, l]", "[1, 3, 4, 4]"}, [] {
    conv1d(zeros({1, 3, 4, 4}), zeros({2, 3, 1}));
  });
  refused("conv1d", {"4 axes, not 3"}, [] { conv1d(zeros({3, 4}), zeros({2, 3, 1, 1})); });
  refused("conv_transpose2d", {"[5]"}, [] { conv_transpose2d(zeros({5}), zeros({2, 3, 1, 1})); });
  refused("conv2d", {"[2, 3, 0, 1]", "no taps"}, [] {
    conv2d(zeros({1, 3, 4, 4}), zeros({2, 3, 0, 1}));
  });
  refused("conv2d", {"undefined"}, [] { conv2d(zeros({1, 3, 4, 4}), Tensor()); });
}

TEST_CASE("refusals: channels and groups of convolutions", "[ops]") {
  const Tensor x = zeros({1, 6, 5, 5});
  refused("conv2d", {"[1, 6, 5, 5]", "has 6 channels", "takes 3 in 1 group"}, [&] {
    conv2d(x, zeros({4, 3, 1, 1}));
  });
  refused("conv2d", {"takes 8 in 4 group"}, [&] {
    conv2d(x, zeros({4, 2, 1, 1}), {}, {.groups = 4});
  });
  refused("conv2d", {"5 channels out", "3 groups"}, [&] {
    conv2d(x, zeros({5, 2, 1, 1}), {}, {.groups = 3});
  });
  refused("conv2d", {"groups = 0"}, [&] { conv2d(x, zeros({5, 2, 1, 1}), {}, {.groups = 0}); });
  refused("conv2d", {"bias [3]", "4 channels"}, [&] {
    conv2d(x, zeros({4, 6, 1, 1}), zeros({3}));
  });
  refused("conv_transpose2d", {"has 6 channels", "takes 4"}, [&] {
    conv_transpose2d(x, zeros({4, 6, 1, 1}));
  });
  refused("conv_transpose2d", {"6 channels", "4 groups"}, [&] {
    conv_transpose2d(x, zeros({6, 1, 1, 1}), {}, {.groups = 4});
  });
  refused("conv_transpose2d", {"bias [1]", "6 channels"}, [&] {
    conv_transpose2d(x, zeros({6, 2, 1, 1}), zeros({1}), {.groups = 3});
  });
}

TEST_CASE("refusals: sizes of convolutions", "[ops]") {
  const Tensor x = zeros({2, 1, 4, 6});
  refused("conv2d",
          {"larger than the padded input", "height is 4 of input and 0 of padding",
           "5 taps at dilation 1 reach over 5"},
          [&] {
            conv2d(x, zeros({1, 1, 5, 5}));
          });
  refused("conv2d", {"width is 6 of input and 2 of padding", "3 taps at dilation 4 reach over 9"},
          [&] {
            conv2d(x, zeros({1, 1, 1, 3}), {}, {.padding = {0, 1}, .dilation = 4});
          });
  refused("conv1d", {"length is 3"}, [] { conv1d(zeros({1, 3}), zeros({1, 1, 4})); });
  refused("conv2d", {"stride = 1, 0"}, [&] {
    conv2d(x, zeros({1, 1, 1, 1}), {}, {.stride = {1, 0}});
  });
  refused("conv2d", {"dilation = -1, 1"}, [&] {
    conv2d(x, zeros({1, 1, 1, 1}), {}, {.dilation = {-1, 1}});
  });
  refused("conv2d", {"padding = 0, -2"}, [&] {
    conv2d(x, zeros({1, 1, 1, 1}), {}, {.padding = {0, -2}});
  });
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  refused("conv2d", {"dilation = 1, 9223372036854775807", "fit in 32 bits"}, [&] {
    conv2d(x, zeros({1, 1, 1, 3}), {}, {.dilation = {1, kHuge}});
  });
  refused("conv_transpose2d", {"padding = 4611686018427387903"}, [&] {
    conv_transpose2d(x, zeros({1, 1, 1, 1}), {}, {.padding = kHuge / 2});
  });
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  refused("conv2d", {"height of the padded input, 4294967298"}, [&] {
    conv2d(x, zeros({1, 1, 1, 1}), {}, {.stride = kMost, .padding = kMost});
  });
  refused("conv_transpose2d", {"width of the padded input, 10737418236"}, [&] {
    conv_transpose2d(x, zeros({1, 1, 1, 1}), {}, {.stride = {1, kMost}});
  });
  refused("conv2d", {"stride 1, not 2"}, [&] {
    conv2d(x, zeros({1, 1, 3, 3}), {}, {.stride = 2, .padding = kSamePadding});
  });
  refused("conv_transpose2d", {"height would be 0", "padding 2", "1 taps"}, [&] {
    conv_transpose2d(x, zeros({1, 1, 1, 1}), {}, {.padding = 2});
  });
  refused("conv_transpose2d", {"output_padding 2 along width", "stride 1 or dilation 2"}, [&] {
    conv_transpose2d(x, zeros({1, 1, 1, 1}), {}, {.output_padding = {1, 2}, .dilation = 2});
  });
  refused("conv_transpose2d", {"output_padding -1"}, [&] {
    conv_transpose2d(x, zeros({1, 1, 1, 1}), {}, {.output_padding = -1});
  });
}

TEST_CASE("refusals: dtypes of convolutions", "[ops]") {
  const Tensor x = zeros({1, 2, 4, 4}), w = zeros({3, 2, 1, 1}), w64 = zeros({3, 2, 1, 1}, f64);
  refused("conv2d", {"i64"}, [&] { conv2d(zeros({1, 2, 4, 4}, i64), w); });
  refused("conv2d", {"f32", "f64"}, [&] { conv2d(x, w64); });
  refused("conv2d", {"f32", "f64"}, [&] { conv2d(x, w, zeros({3}, f64)); });
  refused("conv_transpose2d", {"f32", "f64"}, [&] {
    conv_transpose2d(x, zeros({2, 3, 1, 1}, f64));
  });
}

TEST_CASE("convolutions give channels-last results, and gradients in their operands' formats",
          "[ops]") {
  Tensor x = normal({2, 3, 6, 5}).set_requires_grad();
  Tensor w = channels_last(normal({4, 3, 3, 2})).set_requires_grad();
  const Tensor y = conv2d(x, w);
  CHECK(y.is_channels_last());
  CHECK_FALSE(y.is_contiguous());
  sum(y * y).backward();
  CHECK(x.grad().is_contiguous());
  CHECK(w.grad().is_channels_last());
  CHECK(conv_transpose2d(y.detach(), w.detach()).is_channels_last());
  CHECK(conv1d(normal({2, 3, 9}), normal({4, 3, 3})).is_channels_last());
}

TEST_CASE("a convolution saves only what its gradients will read", "[ops]") {
  const Tensor x = normal({1, 2, 5, 5}), w = normal({3, 2, 2, 2}), b = normal({3});
  // What is not saved may be edited before backward.
  {
    Tensor weight = clone(w), input = channels_last(x);
    weight.set_requires_grad();
    const Tensor y = conv2d(input, weight, b);
    fill_(input, 0);
    CHECK_THROWS_AS(sum(y).backward(), Error);
  }
  {
    Tensor input = channels_last(x).set_requires_grad(), weight = clone(w), bias = clone(b);
    bias.set_requires_grad();
    const Tensor y = conv2d(input, weight, bias);
    {
      const NoGrad guard;
      fill_(input, 0);
    }
    sum(y).backward();
    CHECK(values_of(bias.grad()) == std::vector<double>(3, 16));
  }
}

TEST_CASE("relu of a convolution on its way out is relu of its result, and so are gradients",
          "[ops]") {
  for (const DType dtype : {f32, f16}) {
    std::vector<std::vector<double>> results[2];
    for (const bool fused : {false, true}) {
      Tensor x = normal({2, 16, 6, 5}, dtype).set_requires_grad();
      Tensor w = normal({16, 16, 3, 3}, dtype).set_requires_grad();
      Tensor b = normal({16}, dtype).set_requires_grad();
      const Tensor y =
          fused ? conv2d(x, w, b, {.activation = Activation::relu}) : relu(conv2d(x, w, b));
      backward(y, {.initial_gradient = normal(y.shape(), dtype)});
      results[fused] = {values_of(y), values_of(x.grad()), values_of(w.grad()),
                        values_of(b.grad())};
    }
    CHECK(results[0] == results[1]);
  }
}

TEST_CASE("an f32 weight under autocast gets the f32 sum of 16-bit products", "[ops]") {
  Tensor x = normal({2, 3, 5, 5}).set_requires_grad();
  Tensor w = channels_last(normal({4, 3, 3, 3})).set_requires_grad();
  Tensor b = normal({4}).set_requires_grad();
  Tensor y;
  {
    const Autocast guard(bf16);
    y = conv2d(x, w, b, {.padding = 1});
  }
  CHECK(y.dtype() == bf16);
  const Tensor seed = normal(y.shape(), bf16);
  backward(y, {.initial_gradient = seed});
  // The same on operands rounded by hand, in f64.
  Tensor x64 = x.detach().to(bf16).to(f64).set_requires_grad();
  Tensor w64 = w.detach().to(bf16).to(f64).set_requires_grad();
  const Tensor y64 = conv2d(x64, w64, b.detach().to(bf16).to(f64), {.padding = 1});
  backward(y64, {.initial_gradient = seed.to(f64)});
  CHECK(w.grad().dtype() == f32);
  testing::expect_close("weight", values_of(w.grad()), values_of(w64.grad()), 1e-4);
  testing::expect_close("input", values_of(x.grad()), values_of(x64.grad()), 1e-4);
}

TEST_CASE("algorithms that are not deterministic must be allowed", "[ops]") {
  CHECK_FALSE(nondeterministic_allowed());
  allow_nondeterministic(true);
  CHECK(nondeterministic_allowed());
  allow_nondeterministic(false);
}
