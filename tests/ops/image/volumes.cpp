// Rows: convolutions of volumes, and transposed convolutions along one axis and three. What a row
// cannot say: parts of the batch, the memory format, what is refused.
#include <string>
#include <utility>
#include <vector>

#include "../refusals/refused.h"
#include "support/catch.h"
#include "support/ops/op_row.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

Tensor bias_of(const Args& x) { return x.size() > 2 ? x[2] : Tensor(); }
OpFn conv(Conv3dOptions o = {}) {
  return [o](const Args& x) { return conv3d(x[0], x[1], bias_of(x), o); };
}
OpFn transposed(ConvTranspose3dOptions o = {}) {
  return [o](const Args& x) { return conv_transpose3d(x[0], x[1], bias_of(x), o); };
}
OpFn transposed_1d(ConvTranspose1dOptions o = {}) {
  return [o](const Args& x) { return conv_transpose1d(x[0], x[1], bias_of(x), o); };
}

void row(const char* name, OpFn op, std::vector<std::vector<Shape>> shapes, double terms) {
  const std::size_t operands = shapes[0].size();
  Row(name, std::move(op))
      .args(std::vector<Arg>(operands, real()))
      .shapes(std::move(shapes))
      .accuracy(Accuracy::sum, terms)
      .golden();
}

FIRN_OP_ROWS(conv3d) {
  row("conv3d", conv(),
      {{{2, 3, 4, 4, 3}, {4, 3, 3, 2, 2}, {4}},
       {{1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}, {1}},
       {{0, 2, 3, 3, 3}, {3, 2, 2, 2, 2}, {3}},
       {{1, 2, 3, 3, 3}, {0, 2, 2, 2, 2}, {0}},
       {{2, 17, 3, 3, 4}, {18, 17, 2, 2, 2}, {18}}},
      137);
  row("conv3d unbatched", conv(), {{{2, 3, 4, 3}, {3, 2, 2, 2, 3}, {3}}}, 25);
  row("conv3d without bias", conv(), {{{1, 2, 3, 3, 4}, {3, 2, 2, 3, 2}}}, 24);
  row("conv3d padding 1", conv({.padding = 1}), {{{2, 2, 3, 4, 3}, {3, 2, 3, 3, 3}, {3}}}, 55);
  row("conv3d stride 2 by 1 by 3 padding 2 by 1 by 0",
      conv({.stride = {2, 1, 3}, .padding = {2, 1, 0}}),
      {{{2, 2, 4, 3, 5}, {3, 2, 3, 2, 2}, {3}}, {{1, 2, 1, 3, 5}, {3, 2, 2, 2, 2}, {3}}}, 25);
  row("conv3d same dilation 2 by 1 by 2", conv({.padding = kSamePadding, .dilation = {2, 1, 2}}),
      {{{1, 2, 4, 3, 4}, {2, 2, 2, 3, 2}, {2}}}, 25);
  row("conv3d dilation 3 by 1 by 1 stride 2", conv({.stride = 2, .dilation = {3, 1, 1}}),
      {{{1, 2, 6, 3, 3}, {2, 2, 2, 2, 2}, {2}}}, 17);
  row("conv3d groups 2", conv({.padding = 1, .groups = 2}),
      {{{1, 4, 3, 3, 3}, {6, 2, 3, 2, 3}, {6}}}, 37);
  row("conv3d depthwise", conv({.stride = {1, 2, 2}, .padding = 1, .groups = 3}),
      {{{2, 3, 3, 4, 3}, {3, 1, 3, 3, 3}, {3}}}, 28);
  row("conv3d of one tap along depth", conv({.padding = {0, 1, 1}}),
      {{{2, 2, 3, 3, 3}, {3, 2, 1, 3, 3}, {3}}}, 19);
  row("conv3d of one tap along depth stride 2", conv({.stride = 2}),
      {{{2, 2, 4, 3, 3}, {3, 2, 1, 1, 1}, {3}}, {{2, 2, 5, 3, 3}, {3, 2, 1, 1, 1}, {3}}}, 3);
  row("conv3d of one tap along depth padding 1", conv({.padding = 1}),
      {{{2, 2, 2, 3, 3}, {3, 2, 1, 2, 2}, {3}}}, 9);
  Row("conv3d relu", conv({.padding = 1, .activation = Activation::relu}))
      .args({real(), real(), real()})
      .shapes({{{1, 2, 3, 3, 3}, {3, 2, 2, 3, 2}, {3}}})
      .accuracy(Accuracy::sum, 25)
      .golden()
      .kinks();
}

FIRN_OP_ROWS(conv_transpose3d) {
  row("conv_transpose3d", transposed(),
      {{{2, 3, 2, 3, 2}, {3, 2, 3, 2, 2}, {2}},
       {{1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}, {1}},
       {{0, 2, 2, 2, 2}, {2, 3, 2, 2, 2}, {3}}},
      37);
  row("conv_transpose3d unbatched", transposed(), {{{2, 2, 2, 3}, {2, 3, 2, 2, 3}, {3}}}, 25);
  row("conv_transpose3d without bias", transposed({.stride = 2}),
      {{{1, 2, 2, 3, 2}, {2, 3, 2, 2, 2}}}, 2);
  row("conv_transpose3d stride 2 padding 1 output padding 1",
      transposed({.stride = 2, .padding = 1, .output_padding = {1, 0, 1}}),
      {{{2, 2, 2, 3, 2}, {2, 2, 3, 4, 3}, {2}}}, 37);
  row("conv_transpose3d output padding within dilation",
      transposed({.padding = {1, 0, 1}, .output_padding = {2, 1, 0}, .dilation = {3, 2, 1}}),
      {{{1, 2, 3, 2, 2}, {2, 2, 2, 2, 3}, {2}}}, 25);
  row("conv_transpose3d groups 2", transposed({.stride = {2, 1, 2}, .groups = 2}),
      {{{1, 4, 2, 2, 2}, {4, 3, 2, 2, 1}, {6}}}, 9);
  row("conv_transpose3d of one tap along depth", transposed({.padding = {0, 1, 0}}),
      {{{2, 2, 2, 3, 2}, {2, 3, 1, 3, 2}, {3}}}, 13);
}

FIRN_OP_ROWS(conv_transpose1d) {
  row("conv_transpose1d", transposed_1d(),
      {{{2, 3, 5}, {3, 4, 4}, {4}}, {{0, 3, 5}, {3, 4, 4}, {4}}}, 13);
  row("conv_transpose1d unbatched", transposed_1d(), {{{3, 5}, {3, 4, 3}, {4}}}, 10);
  row("conv_transpose1d strided",
      transposed_1d({.stride = 3, .padding = 2, .output_padding = 1, .dilation = 2, .groups = 2}),
      {{{2, 4, 5}, {4, 3, 3}, {6}}}, 7);
  row("conv_transpose1d without bias", transposed_1d({.stride = 2}), {{{2, 3, 4}, {3, 2, 3}}}, 6);
}

Tensor normal(const Shape& shape, DType dtype = f32) {
  Generator g(11);
  return randn(shape, {.dtype = dtype, .generator = &g});
}

}  // namespace

TEST_CASE("convolutions of volumes are channels-last, and gradients have the operands' formats",
          "[ops]") {
  Tensor x = normal({2, 3, 4, 3, 5}).set_requires_grad();
  Tensor w = channels_last(normal({4, 3, 3, 2, 2})).set_requires_grad();
  const Tensor y = conv3d(x, w);
  CHECK(y.is_channels_last());
  CHECK_FALSE(y.is_contiguous());
  sum(y * y).backward();
  CHECK(x.grad().is_contiguous());
  CHECK(w.grad().is_channels_last());
  CHECK(conv_transpose3d(y.detach(), w.detach()).is_channels_last());
}

TEST_CASE("a convolution of volumes computes large batches part by part", "[ops][host]") {
  // f64, which no library takes. The slices of a sample are 3 * 32 * 12 * 64 * 64 numbers, 36 MiB:
  // more than half of what is made at a time.
  const Tensor x = normal({2, 32, 12, 64, 64}, f64), w = normal({2, 32, 3, 1, 1}, f64);
  const auto all = [&](const Tensor& images) {
    Tensor in = images.detach().set_requires_grad(), weight = w.detach().set_requires_grad();
    const Tensor y = conv3d(in, weight, {}, {.padding = {1, 0, 0}});
    sum(y * y).backward();
    return std::vector<Tensor>{y.detach(), in.grad(), weight.grad()};
  };
  const std::vector<Tensor> together = all(x);
  Tensor weight = zeros(w.shape(), f64);
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::vector<Tensor> one = all(x.slice(0, i, i + 1));
    CHECK(values_of(one[0]) == values_of(together[0].slice(0, i, i + 1)));
    CHECK(values_of(one[1]) == values_of(together[1].slice(0, i, i + 1)));
    weight = weight + one[2];
  }
  CHECK(norm(weight - together[2]).item() < 1e-13 * norm(weight).item());
}

namespace {

/// y, and the gradients of x and w after two backward passes.
std::vector<Tensor> convolved(const Tensor& x, const Tensor& w, const Tensor& bias,
                              const Conv3dOptions& o) {
  const Tensor in = x.detach().set_requires_grad(), weight = w.detach().set_requires_grad();
  Tensor y;
  for (int i = 0; i < 2; ++i) {
    y = conv3d(in, weight, bias, o);
    sum(y * y * 0.5).backward();
  }
  return {y.detach(), in.grad(), weight.grad()};
}

}  // namespace

TEST_CASE("convolutions of volumes that are cut along depth agree with those in f64",
          "[ops][host]") {
  struct Case {
    Shape taps;
    Conv3dOptions options;
  };
  const std::vector<Case> cases = {{{3, 3, 3}, {}},
                                   {{3, 3, 3}, {.padding = 1, .activation = Activation::relu}},
                                   {{5, 3, 1}, {.padding = {4, 0, 0}}},
                                   {{3, 2, 3}, {.padding = kSamePadding, .dilation = {3, 1, 1}}},
                                   {{3, 3, 3}, {.stride = {2, 1, 1}, .padding = 1}},
                                   {{2, 2, 2}, {.stride = {3, 2, 1}, .padding = {1, 0, 0}}},
                                   {{4, 3, 3}, {.padding = {1, 1, 1}, .groups = 2}},
                                   {{1, 3, 3}, {.padding = {0, 1, 1}}},
                                   {{3, 3, 3}, {.padding = 1, .groups = 16}}};
  for (const Case& c : cases) {
    CAPTURE(c.taps, c.options.groups);
    const std::int64_t groups = c.options.groups;
    const Tensor w =
        normal({16, 16 / groups, c.taps[0], c.taps[1], c.taps[2]}) * (groups == 1 ? 0.05 : 0.2);
    for (const std::int64_t n : {1, 2, 9}) {
      const Tensor x = normal({n, 16, 13, 12, 11});
      for (const DType dtype : {f32, bf16, f16}) {
        CAPTURE(n, dtype);
        const Tensor narrow = x.to(dtype), weight = w.to(dtype), bias = normal({16}).to(dtype);
        const std::vector<Tensor> found = convolved(narrow, weight, bias, c.options),
                                  wanted = convolved(narrow.to(f64), weight.to(f64), bias.to(f64),
                                                     c.options);
        // The weight's gradient is a sum of up to 2 * 9 * 13 * 12 * 11 terms.
        const double unit = dtype == f32 ? 2e-7 : dtype == f16 ? 4.9e-4 : 3.9e-3;
        for (std::size_t i = 0; i < found.size(); ++i) {
          CAPTURE(i);
          CHECK(norm(found[i].to(f64) - wanted[i]).item() < 10 * unit * norm(wanted[i]).item());
        }
      }
    }
  }
}

TEST_CASE("[S29] convolutions of volumes have the same bits for any number of threads",
          "[ops][host]") {
  const auto all = [](int threads) {
    const Threads scope(threads);
    Tensor x = normal({3, 16, 12, 12, 9}).set_requires_grad(),
           w = normal({16, 16, 3, 3, 3}).set_requires_grad();
    const Tensor y = conv3d(x, w, {}, {.stride = {1, 2, 1}, .padding = 1});
    sum(y * y).backward();
    std::vector<double> values = values_of(y);
    for (const Tensor& t : {x.grad(), w.grad()}) {
      const std::vector<double> v = values_of(t);
      values.insert(values.end(), v.begin(), v.end());
    }
    return values;
  };
  const std::vector<double> one = all(1);
  CHECK(all(2) == one);
  CHECK(all(5) == one);
}

TEST_CASE("refusals: convolutions of volumes", "[ops]") {
  const Tensor x = zeros({1, 2, 4, 4, 4}), w = zeros({3, 2, 2, 2, 2});
  refused("conv3d", {"x is [n, c, d, h, w] or [c, d, h, w]", "[3, 4, 4]"}, [&] {
    conv3d(zeros({3, 4, 4}), w);
  });
  refused("conv3d", {"weight [3, 2, 2, 2]", "4 axes, not 5"}, [&] {
    conv3d(x, zeros({3, 2, 2, 2}));
  });
  refused("conv3d", {"depth is 4 of input and 0 of padding", "5 taps"}, [&] {
    conv3d(x, zeros({3, 2, 5, 1, 1}));
  });
  refused("conv3d", {"stride = 1, 0, 1"}, [&] { conv3d(x, w, {}, {.stride = {1, 0, 1}}); });
  refused("conv3d", {"has 2 channels", "takes 4 in 2 group"},
          [&] { conv3d(x, w, {}, {.groups = 2}); });
  refused("conv3d", {"stride 1, not 2"}, [&] {
    conv3d(x, w, {}, {.stride = {2, 1, 1}, .padding = kSamePadding});
  });
  refused("conv3d", {"f32", "f64"}, [&] { conv3d(x, zeros({3, 2, 2, 2, 2}, f64)); });
  refused("conv_transpose3d", {"output_padding 1 along depth", "stride 1 or dilation 1"}, [&] {
    conv_transpose3d(zeros({1, 3, 2, 2, 2}), w, {}, {.output_padding = {1, 0, 0}});
  });
  refused("conv_transpose3d", {"depth of x [2, 3, 0, 4, 4]", "is 0"}, [] {
    conv_transpose3d(zeros({2, 3, 0, 4, 4}), zeros({3, 4, 3, 3, 3}));
  });
  refused("conv_transpose3d", {"has 2 channels", "takes 3"}, [&] { conv_transpose3d(x, w); });
  refused("conv_transpose1d", {"length would be 0", "padding 2"}, [] {
    conv_transpose1d(zeros({1, 1, 4}), zeros({1, 1, 1}), {}, {.padding = 2});
  });
  refused("conv_transpose1d", {"output_padding 2 along length"}, [] {
    conv_transpose1d(zeros({1, 1, 4}), zeros({1, 1, 1}), {}, {.stride = 2, .output_padding = 2});
  });
}

}  // namespace firn::testing
