// The convolution layers and Dropout2d: parameters, what they compute, what they refuse and print.
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "firn/firn.h"
#include "message_of.h"
#include "support/catch.h"

using namespace firn;
using firn::testing::message_of;

namespace {

std::vector<float> values(const Tensor& t) { return t.contiguous().to_vector<float>(); }

Tensor input(const Shape& shape) {
  Generator g(7);
  return randn(shape, {.generator = &g});
}

/// All in (-bound, bound), and so spread out that bound is near the largest.
void check_uniform(const Tensor& t, double bound) {
  double largest = 0;
  for (const float v : values(t)) largest = std::max(largest, std::abs(static_cast<double>(v)));
  CHECK(largest <= bound);
  CHECK(largest > 0.8 * bound);
}

}  // namespace

TEST_CASE("Conv2d is conv2d with its weight and options") {
  nn::Conv2d layer(4, 6, {3, 2},
                   {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2});
  CHECK(layer.weight.shape() == Shape{6, 2, 3, 2});
  CHECK(layer.bias.shape() == Shape{6});
  CHECK(layer.weight.is_channels_last());
  CHECK_FALSE(layer.weight.is_contiguous());
  const Tensor x = input({2, 4, 7, 8});
  CHECK(values(layer(x)) ==
        values(conv2d(x, layer.weight, layer.bias,
                      {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2})));
  CHECK(layer(x[0]).shape() == Shape{6, 4, 6});

  nn::Conv2d same(4, 5, 3,
                  {.padding = kSamePadding, .bias = false, .activation = Activation::relu});
  CHECK(same.parameters().size() == 1);
  const Tensor y = same(x);
  CHECK(y.shape() == Shape{2, 5, 7, 8});
  CHECK(values(y) == values(relu(conv2d(x, same.weight, {}, {.padding = 1}))));
}

TEST_CASE("Conv1d is conv1d with its weight and options") {
  nn::Conv1d layer(4, 6, 5, {.stride = 2, .padding = 3, .dilation = 2, .groups = 2});
  CHECK(layer.weight.shape() == Shape{6, 2, 5});
  const Tensor x = input({2, 4, 17});
  CHECK(values(layer(x)) ==
        values(conv1d(x, layer.weight, layer.bias,
                      {.stride = 2, .padding = 3, .dilation = 2, .groups = 2})));
  CHECK(nn::Conv1d(4, 6, 5, {.padding = kSamePadding})(x).shape() == Shape{2, 6, 17});
}

TEST_CASE("ConvTranspose2d is conv_transpose2d with its weight and options") {
  nn::ConvTranspose2d layer(4, 6, {3, 2},
                            {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2});
  CHECK(layer.weight.shape() == Shape{4, 3, 3, 2});
  CHECK(layer.bias.shape() == Shape{6});
  CHECK(layer.weight.is_channels_last());
  const Tensor x = input({2, 4, 5, 6});
  const Tensor y = layer(x);
  CHECK(y.shape() == Shape{2, 6, 10, 11});
  CHECK(values(y) ==
        values(conv_transpose2d(x, layer.weight, layer.bias,
                                {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2})));
}

TEST_CASE("layers of volumes, and transposed ones of rows, are their ops with weight and options") {
  nn::Conv3d layer(4, 6, {3, 2, 1},
                   {.stride = {2, 1, 1}, .padding = {1, 0, 2}, .dilation = {1, 2, 1}, .groups = 2});
  CHECK(layer.weight.shape() == Shape{6, 2, 3, 2, 1});
  CHECK(layer.weight.is_channels_last());
  const Tensor x = input({2, 4, 5, 4, 3});
  CHECK(values(layer(x)) ==
        values(conv3d(
            x, layer.weight, layer.bias,
            {.stride = {2, 1, 1}, .padding = {1, 0, 2}, .dilation = {1, 2, 1}, .groups = 2})));
  CHECK(nn::Conv3d(4, 5, 3, {.padding = kSamePadding})(x).shape() == Shape{2, 5, 5, 4, 3});

  nn::ConvTranspose3d up(4, 6, 2, {.stride = {2, 1, 3}, .output_padding = {1, 0, 2}, .groups = 2});
  CHECK(up.weight.shape() == Shape{4, 3, 2, 2, 2});
  CHECK(up.bias.shape() == Shape{6});
  CHECK(values(up(x)) ==
        values(conv_transpose3d(x, up.weight, up.bias,
                                {.stride = {2, 1, 3}, .output_padding = {1, 0, 2}, .groups = 2})));

  nn::ConvTranspose1d row(4, 6, 3, {.stride = 2, .padding = 1, .output_padding = 1});
  CHECK(row.weight.shape() == Shape{4, 6, 3});
  const Tensor l = input({2, 4, 5});
  CHECK(values(row(l)) ==
        values(conv_transpose1d(l, row.weight, row.bias,
                                {.stride = 2, .padding = 1, .output_padding = 1})));
  CHECK(row(l).shape() == Shape{2, 6, 10});
}

TEST_CASE("convolution layers start as PyTorch's do") {
  nn::Conv2d a(32, 48, {3, 2}, {.groups = 2});
  check_uniform(a.weight, 1 / std::sqrt(16 * 3 * 2));
  check_uniform(a.bias, 1 / std::sqrt(16 * 3 * 2));
  nn::Conv1d b(12, 30, 5);
  check_uniform(b.weight, 1 / std::sqrt(12 * 5));
  nn::ConvTranspose2d c(12, 30, 3, {.groups = 3});
  check_uniform(c.weight, 1 / std::sqrt(10 * 9));
  check_uniform(c.bias, 1 / std::sqrt(10 * 9));
  nn::Conv3d d(6, 8, {3, 2, 2}, {.groups = 2});
  check_uniform(d.weight, 1 / std::sqrt(3 * 12));
  nn::ConvTranspose3d e(6, 8, {3, 2, 2}, {.groups = 2});
  check_uniform(e.weight, 1 / std::sqrt(4 * 12));
  nn::ConvTranspose1d f(12, 30, 3);
  check_uniform(f.weight, 1 / std::sqrt(30 * 3));
  manual_seed(5);
  const auto first = values(nn::Conv2d(2, 3, 3).weight);
  manual_seed(5);
  CHECK(values(nn::Conv2d(2, 3, 3).weight) == first);
  CHECK(nn::Conv2d(2, 3, 3, {.dtype = f16}).bias.dtype() == f16);
}

TEST_CASE("convolution layers train, and their gradients keep the weight's order in memory") {
  struct Net : nn::Module {
    nn::Conv2d a{1, 4, 3, {.activation = Activation::relu}};
    nn::Conv2d b{4, 4, 3, {.stride = 2, .groups = 4}};
    nn::ConvTranspose2d c{4, 2, 2, {.stride = 2}};
    nn::Linear head{2 * 4 * 4, 3};
    FIRN_MEMBERS(a, b, c, head)
    Tensor forward(const Tensor& x) override { return head(flatten(c(b(a(x))), 1)); }
  };
  manual_seed(1);
  Net net;
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  const Tensor x = input({8, 1, 8, 8});
  const Tensor t = tensor(std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 0, 1}, {8});
  double first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    opt.backward(cross_entropy(net(x), t));
    last = opt.step().loss();
    if (i == 0) first = last;
  }
  CHECK(last < 0.2 * first);
  CHECK(net.a.weight.is_channels_last());
}

TEST_CASE("convolution layers refuse what is none") {
  CHECK(message_of([] { nn::Conv2d(0, 3, 3); }).find("[Conv2d] in = 0 and out = 3") == 0);
  CHECK(message_of([] { nn::Conv2d(3, 4, {3, 0}); }).find("[Conv2d] kernel 3 x 0") == 0);
  CHECK(message_of([] {
          nn::Conv2d(4, 6, 3, {.groups = 4});
        }).find("[Conv2d] groups = 4 must divide in = 4 and out = 6") == 0);
  CHECK(message_of([] { nn::Conv1d(4, 6, 3, {.stride = 0}); }).find("[Conv1d] stride") == 0);
  CHECK(message_of([] {
          nn::ConvTranspose2d(4, 6, 3, {.padding = {0, -1}});
        }).find("[ConvTranspose2d] padding 0 x -1") == 0);
  CHECK(message_of([] {
          nn::ConvTranspose2d(4, 6, 3, {.stride = 2, .output_padding = {1, 2}});
        }).find("[ConvTranspose2d] output_padding 2 along width") == 0);
  CHECK_THROWS_AS(nn::ConvTranspose2d(4, 6, 3, {.output_padding = -1}), Error);
  CHECK_NOTHROW(nn::ConvTranspose2d(4, 6, 3, {.output_padding = 1, .dilation = 2}));
  CHECK(message_of([] { nn::Conv3d(3, 4, {3, 1, 0}); }).find("[Conv3d] kernel 3 x 1 x 0") == 0);
  CHECK(message_of([] {
          nn::ConvTranspose3d(4, 6, 3, {.output_padding = {1, 0, 0}});
        }).find("[ConvTranspose3d] output_padding 1 along depth") == 0);
  CHECK(message_of([] {
          nn::ConvTranspose1d(4, 6, 3, {.output_padding = 1});
        }).find("[ConvTranspose1d] output_padding 1 along length") == 0);
  nn::Conv2d layer(3, 4, 3);
  CHECK(message_of([&] {
          layer(zeros({2, 1, 8, 8}));
        }).find("has 1 channels") != std::string::npos);
  CHECK_THROWS_AS(layer(Tensor()), Error);
}

TEST_CASE("convolution layers print what is unusual about them", "[host]") {
  CHECK(nn::Conv2d(3, 64, 7, {.stride = 2, .padding = 3, .bias = false}).extra_repr() ==
        "3, 64, 7, stride = 2, padding = 3, bias = false");
  CHECK(nn::Conv2d(4, 4, {3, 1},
                   {.padding = kSamePadding,
                    .dilation = {2, 1},
                    .groups = 4,
                    .activation = Activation::relu})
            .extra_repr() ==
        "4, 4, 3 x 1, padding = same, dilation = 2 x 1, groups = 4, activation = relu");
  CHECK(nn::Conv1d(3, 8, 5, {.padding = 2}).extra_repr() == "3, 8, 5, padding = 2");
  CHECK(
      nn::ConvTranspose2d(8, 3, 4, {.stride = 2, .padding = 1, .output_padding = 1}).extra_repr() ==
      "8, 3, 4, stride = 2, padding = 1, output_padding = 1");
  CHECK(nn::Conv3d(3, 8, {1, 3, 3}, {.stride = 2, .padding = {0, 1, 1}}).extra_repr() ==
        "3, 8, 1 x 3 x 3, stride = 2, padding = 0 x 1 x 1");
  CHECK(nn::ConvTranspose1d(8, 3, 4, {.stride = 2, .output_padding = 1}).extra_repr() ==
        "8, 3, 4, stride = 2, output_padding = 1");
  CHECK(nn::ConvTranspose3d(8, 3, 4, {.stride = {1, 2, 2}, .output_padding = {0, 1, 1}})
            .extra_repr() == "8, 3, 4, stride = 1 x 2 x 2, output_padding = 0 x 1 x 1");
}

TEST_CASE("Dropout2d drops whole channels, in training only") {
  nn::Dropout2d drop(0.25);
  const Tensor x = channels_last(ones({50, 40, 3, 2}));
  drop.eval();
  CHECK(values(drop(x)) == values(x));
  drop.train();
  manual_seed(3);
  const Tensor y = drop(x);
  CHECK(y.is_channels_last());
  const auto v = values(y);
  int zero = 0;
  for (std::size_t channel = 0; channel < 2000; ++channel) {
    const float first = v[6 * channel];
    for (std::size_t i = 1; i < 6; ++i) CHECK(v[6 * channel + i] == first);
    if (first == 0)
      ++zero;
    else
      CHECK(first == Approx(1 / 0.75));
  }
  // Binomial with standard deviation 19.4.
  CHECK(std::abs(zero - 500) < 5 * 20);
  manual_seed(3);
  CHECK(values(drop(x)) == v);
}

TEST_CASE("the gradient of Dropout2d goes through the channels that were kept") {
  nn::Dropout2d drop(0.5);
  Tensor x = input({3, 5, 2, 2}).set_requires_grad();
  manual_seed(4);
  const Tensor y = drop(x);
  sum(y).backward();
  const auto xs = values(x), ys = values(y), g = values(x.grad());
  for (std::size_t i = 0; i < xs.size(); ++i) CHECK(g[i] == (ys[i] == 0 ? 0.0f : 2.0f));
  CHECK(drop(input({2, 3, 4})).shape() == Shape{2, 3, 4});
  CHECK(message_of([&] { drop(zeros({2, 3})); }).find("[Dropout2d] input [2, 3]") == 0);
  CHECK_THROWS_AS(nn::Dropout2d(1.0), Error);
  CHECK(values(nn::Dropout2d(0.0)(x)) == xs);
}

TEST_CASE("convolution layers refuse numbers beyond 32 bits, naming them", "[host]") {
  const std::int64_t big = std::int64_t{1} << 40;
  const auto names = [&](const char* layer, const std::string& what,
                         const std::function<void()>& make) {
    const std::string text = message_of(make);
    INFO(text);
    CHECK(text.find(std::string("[") + layer + "]") == 0);
    CHECK(text.find(what + std::string(" 1099511627776")) != std::string::npos);
    CHECK(text.find("fit in 32 bits") != std::string::npos);
  };
  names("Conv1d", "stride", [&] { nn::Conv1d(1, 1, 1, {.stride = big}); });
  names("Conv1d", "padding", [&] { nn::Conv1d(1, 1, 1, {.padding = big}); });
  names("Conv2d", "stride", [&] { nn::Conv2d(1, 1, 1, {.stride = big}); });
  names("Conv2d", "dilation", [&] { nn::Conv2d(1, 1, 1, {.dilation = big}); });
  names("Conv2d", "padding", [&] { nn::Conv2d(1, 1, 1, {.padding = big}); });
  names("Conv3d", "dilation", [&] { nn::Conv3d(1, 1, 1, {.dilation = big}); });
  names("ConvTranspose1d", "stride", [&] { nn::ConvTranspose1d(1, 1, 1, {.stride = big}); });
  names("ConvTranspose2d", "padding", [&] { nn::ConvTranspose2d(1, 1, 1, {.padding = big}); });
  names("ConvTranspose3d", "dilation", [&] { nn::ConvTranspose3d(1, 1, 1, {.dilation = big}); });
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  CHECK_NOTHROW(nn::Conv2d(1, 1, 1, {.stride = most}));
}
