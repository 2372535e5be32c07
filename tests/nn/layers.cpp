// Each layer against the op it stands for, and what it refuses.
#include <cmath>
#include <cstdlib>
#include <limits>

#include "firn/firn.h"
#include "message_of.h"
#include "support/catch.h"

using namespace firn;
using firn::testing::message_of;

namespace {

std::vector<float> values(const Tensor& t) { return t.to_vector<float>(); }

Tensor input(const Shape& shape) {
  Generator g(7);
  return randn(shape, {.generator = &g});
}

}  // namespace

TEST_CASE("Linear computes x weightᵀ + bias on any leading axes") {
  nn::Linear layer(3, 2);
  for (const Shape& shape : {Shape{3}, Shape{5, 3}, Shape{2, 4, 3}, Shape{0, 3}}) {
    const Tensor x = input(shape);
    const Tensor y = layer(x);
    Shape expected = shape;
    expected.back() = 2;
    CHECK(y.shape() == expected);
    CHECK(values(y) == values(linear(x, layer.weight, layer.bias)));
  }
  // By hand, against a mistake in both.
  {
    const NoGrad guard;
    copy_(layer.weight, tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}));
    copy_(layer.bias, tensor({10.f, 20.f}));
  }
  CHECK(values(layer(tensor({1.f, 0.f, -1.f}))) == std::vector<float>{8, 18});
}

TEST_CASE("Bilinear computes x1ᵀ weight x2 + bias on any leading axes") {
  manual_seed(3);
  nn::Bilinear layer(3, 2, 4), plain(3, 2, 1, {.bias = false});
  CHECK(layer.weight.shape() == Shape{4, 3, 2});
  CHECK(layer.bias.shape() == Shape{4});
  CHECK_FALSE(plain.bias.defined());
  CHECK(layer.extra_repr() == "3, 2, 4");
  CHECK(plain.extra_repr() == "3, 2, 1, bias = false");
  const double bound = 1 / std::sqrt(3.0);  // of in1, as in PyTorch
  CHECK(abs(layer.weight).max().item() <= bound);
  CHECK(abs(layer.weight).max().item() > 0.7 * bound);
  for (const Shape& leading : {Shape{}, Shape{5}, Shape{2, 4}, Shape{0}}) {
    Shape one = leading, two = leading, expected = leading;
    one.push_back(3), two.push_back(2), expected.push_back(4);
    const Tensor x = input(one), y = input(two), z = layer(x, y);
    CHECK(z.shape() == expected);
    CHECK(values(z) == values(bilinear(x, y, layer.weight, layer.bias)));
  }
  sum(layer(input({5, 3}), input({5, 2}))).backward();
  CHECK(layer.weight.grad().shape() == layer.weight.shape());
  CHECK(values(layer.bias.grad()) == std::vector<float>(4, 5));
  const std::string text = message_of([&] { layer(input({5, 2}), input({5, 3})); });
  CHECK(text.find("x1 [5, 2]") != std::string::npos);
  CHECK(message_of([] { nn::Bilinear(3, 0, 1); }).find("in2 = 0") != std::string::npos);
}

TEST_CASE("layers name themselves and the shape if no tensor has their sizes", "[host]") {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto names = [&](const char* layer, const std::function<void()>& make) {
    const std::string text = message_of(make);
    INFO(text);
    CHECK(text.find(std::string("[") + layer + "]") == 0);
    CHECK(text.find("9223372036854775807") != std::string::npos);
  };
  names("Linear", [&] { nn::Linear(most, 3); });
  names("Linear", [&] { nn::Linear(3, most); });
  names("Bilinear", [&] { nn::Bilinear(3, most, 3); });
  names("Linear", [&] { nn::MLP({2, most, 2}); });
  names("Embedding", [&] { nn::Embedding(most, most); });
  names("LayerNorm", [&] { nn::LayerNorm{most}; });
  names("RMSNorm", [&] { nn::RMSNorm{most}; });
  names("GroupNorm", [&] { nn::GroupNorm(1, most); });
  names("InstanceNorm2d", [&] { nn::InstanceNorm2d{most, {.affine = true}}; });
  names("InstanceNorm3d", [&] { nn::InstanceNorm3d{most, {.affine = true}}; });
  names("BatchNorm2d", [&] { nn::BatchNorm2d{most}; });
  names("BatchNorm3d", [&] { nn::BatchNorm3d{most}; });
  names("Conv1d", [&] { nn::Conv1d(most, most, most); });
  names("Conv2d", [&] { nn::Conv2d(3, most, most); });
  names("ConvTranspose2d", [&] { nn::ConvTranspose2d(4, most, 3); });
}

TEST_CASE("Linear without bias has one parameter") {
  nn::Linear layer(3, 2, {.bias = false});
  CHECK(layer.parameters().size() == 1);
  CHECK_FALSE(layer.bias.defined());
  const Tensor x = input({4, 3});
  CHECK(values(layer(x)) == values(linear(x, layer.weight)));
}

TEST_CASE("layers take their dtype from the options") {
  CHECK(nn::Linear(3, 2, {.dtype = f64}).weight.dtype() == f64);
  CHECK(nn::LayerNorm(3, {.dtype = f16}).bias.dtype() == f16);
  CHECK(nn::RMSNorm(3, {.dtype = bf16}).weight.dtype() == bf16);
  CHECK(nn::Embedding(3, 2, {.dtype = f64}).weight.dtype() == f64);
}

TEST_CASE("Linear refuses an input of another width and says what it needs", "[host]") {
  nn::Linear layer(784, 10);
  const std::string text = message_of([&] { layer(zeros({64, 28, 28})); });
  CHECK(text.find("[linear] input [64, 28, 28] f32 cpu does not end with an axis of 784, which "
                  "nn::Linear(784, 10) needs") == 0);
  CHECK(text.find("hint: flatten") != std::string::npos);
  CHECK_THROWS_AS(layer(zeros({})), Error);
  CHECK_THROWS_AS(layer(Tensor()), Error);
  CHECK_THROWS_AS(layer(zeros({2, 784}, f64)), Error);
}

TEST_CASE("sizes that make no layer are refused at construction") {
  CHECK(message_of([] { nn::Linear(0, 3); }).find("[Linear] in = 0 and out = 3") == 0);
  CHECK_THROWS_AS(nn::Linear(3, -1), Error);
  CHECK_THROWS_AS(nn::Embedding(0, 3), Error);
  CHECK_THROWS_AS(nn::Embedding(3, 0), Error);
  CHECK_THROWS_AS(nn::LayerNorm(0), Error);
  CHECK_THROWS_AS(nn::LayerNorm(3, {.eps = -1}), Error);
  CHECK_THROWS_AS(nn::RMSNorm(-2), Error);
  for (const double p : {-0.1, 1.0, 2.0, std::nan("")}) CHECK_THROWS_AS(nn::Dropout(p), Error);
}

TEST_CASE("activation modules are their ops") {
  const Tensor x = input({3, 5});
  const auto check = [&](nn::Module&& m, const Tensor& expected) {
    INFO(m.type_name());
    CHECK(values(m(x)) == values(expected));
  };
  check(nn::ReLU(), relu(x));
  check(nn::LeakyReLU(), leaky_relu(x, 0.01));
  check(nn::LeakyReLU(0.2), leaky_relu(x, 0.2));
  check(nn::ELU(0.5), elu(x, 0.5));
  check(nn::GELU(), gelu(x));
  check(nn::GELU(nn::GELU::Form::tanh), gelu_tanh(x));
  check(nn::Sigmoid(), sigmoid(x));
  check(nn::SiLU(), silu(x));
  check(nn::Tanh(), firn::tanh(x));
  check(nn::Softplus(), softplus(x));
  check(nn::Softmax(), softmax(x, -1));
  check(nn::Softmax(0), softmax(x, 0));
  check(nn::LogSoftmax(), log_softmax(x, -1));
  check(nn::Identity(), x);
}

TEST_CASE("Flatten keeps the batch axis by default") {
  const Tensor x = input({2, 3, 4, 5});
  CHECK(nn::Flatten()(x).shape() == Shape{2, 60});
  CHECK(nn::Flatten(0)(x).shape() == Shape{120});
  CHECK(nn::Flatten(1, 2)(x).shape() == Shape{2, 12, 5});
}

TEST_CASE("Dropout acts in training only") {
  nn::Dropout drop(0.25);
  const Tensor x = ones({10000});
  drop.eval();
  CHECK(values(drop(x)) == values(x));
  drop.train();
  manual_seed(3);
  const auto y = values(drop(x));
  int zero = 0;
  for (const float v : y) {
    if (v == 0)
      ++zero;
    else
      CHECK(v == Approx(1 / 0.75));
  }
  // Binomial with standard deviation 43.
  CHECK(std::abs(zero - 2500) < 5 * 43);
  manual_seed(3);
  CHECK(values(drop(x)) == y);
}

TEST_CASE("LayerNorm normalises the last axis") {
  nn::LayerNorm norm(6);
  CHECK(values(norm.weight) == std::vector<float>(6, 1));
  CHECK(values(norm.bias) == std::vector<float>(6, 0));
  const Tensor x = input({4, 6}) * 3.0 + 2.0;
  const Tensor y = norm(x);
  CHECK(values(y) == values(layer_norm(x, norm.weight, norm.bias, 1e-5)));
  for (const double m : mean(y, {1}).to_vector<double>()) CHECK(m == Approx(0).margin(1e-6));
  for (const double v : var(y, {1}, 0).to_vector<double>()) CHECK(v == Approx(1).epsilon(1e-3));
  CHECK(nn::LayerNorm(6, {.bias = false}).parameters().size() == 1);
  CHECK(nn::LayerNorm(6, {.affine = false}).parameters().empty());
  CHECK(message_of([&] {
          norm(zeros({6, 4}));
        })
            .find("[layer_norm] input [6, 4] f32 " + to_string(default_device()) +
                  " does not end with an axis of 6") == 0);
}

TEST_CASE("RMSNorm divides by the root mean square") {
  nn::RMSNorm norm(6);
  CHECK(values(norm.weight) == std::vector<float>(6, 1));
  const Tensor x = input({4, 6});
  const Tensor y = norm(x);
  CHECK(values(y) == values(rms_norm(x, norm.weight, 1e-6)));
  for (const double m : mean(square(y), {1}).to_vector<double>())
    CHECK(m == Approx(1).epsilon(1e-3));
  CHECK(nn::RMSNorm(6, {.affine = false}).parameters().empty());
  CHECK_THROWS_AS(norm(zeros({6, 4})), Error);
}

TEST_CASE("Embedding looks up rows and trains only those") {
  nn::Embedding table(5, 3);
  const Tensor index = tensor({std::int64_t{4}, std::int64_t{0}, std::int64_t{4}});
  const Tensor y = table(reshape(index, {3, 1}));
  CHECK(y.shape() == Shape{3, 1, 3});
  const auto rows = values(table.weight);
  const auto got = values(y);
  for (std::size_t k = 0; k < 3; ++k) {
    CHECK(got[k] == rows[12 + k]);
    CHECK(got[3 + k] == rows[k]);
    CHECK(got[6 + k] == rows[12 + k]);
  }
  sum(y).backward();
  CHECK(values(table.weight.grad()) ==
        std::vector<float>{1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2});
  CHECK_THROWS_AS((table(tensor({std::int64_t{5}})), synchronize(default_device())), Error);
}

TEST_CASE("Sequential runs its modules in order") {
  nn::Sequential net{nn::Flatten(), nn::Linear(6, 4), nn::ReLU(), nn::Linear(4, 2)};
  CHECK(net.size() == 4);
  const Tensor x = input({5, 2, 3});
  auto& a = net.at<nn::Linear>(1);
  auto& b = net.at<nn::Linear>(3);
  CHECK(values(net(x)) ==
        values(linear(relu(linear(flatten(x, 1), a.weight, a.bias)), b.weight, b.bias)));
  const auto named = net.named_parameters();
  REQUIRE(named.size() == 4);
  CHECK(named[0].name == "1.weight");
  CHECK(named[3].name == "3.bias");
}

TEST_CASE("Sequential grows, nests and shares modules") {
  nn::Sequential net;
  CHECK(net.empty());
  const Tensor x = input({2, 4});
  CHECK(values(net(x)) == values(x));
  net.push_back(nn::Sequential{nn::Linear(4, 4)});
  const auto shared = std::make_shared<nn::Linear>(4, 4);
  net.push_back(shared);
  net.push_back(shared);
  CHECK(net.named_parameters()[0].name == "0.0.weight");
  CHECK(net.parameters().size() == 4);  // the shared layer's once
  CHECK(net(x).shape() == Shape{2, 4});
  CHECK(&net[1] == shared.get());
  nn::Sequential copy = net;
  CHECK(&copy[1] == shared.get());
}

TEST_CASE("Sequential refuses positions and types that are not there") {
  nn::Sequential net{nn::ReLU()};
  CHECK_THROWS_AS(net[1], Error);
  CHECK(message_of([&] { net.at<nn::Linear>(0); }).find("[Sequential] module 0 is a ReLU()") == 0);
  CHECK_THROWS_AS(net.push_back(std::shared_ptr<nn::Module>()), Error);
}

TEST_CASE("a Sequential cannot hold itself") {
  const auto outer = std::make_shared<nn::Sequential>(nn::ReLU());
  CHECK(
      message_of([&] { outer->push_back(outer); }) ==
      "[Sequential] module 1 would hold the Sequential that it is pushed into; hint: push a copy: "
      "nn::clone(module)");
  const auto inner = std::make_shared<nn::Sequential>();
  inner->push_back(std::make_shared<nn::Sequential>(nn::ReLU()));
  dynamic_cast<nn::Sequential&>((*inner)[0]).push_back(outer);
  CHECK(message_of([&] { outer->push_back(inner); }).find("pushed into, at its 0.1; hint") !=
        std::string::npos);
  CHECK(outer->size() == 1);
  CHECK((*outer)(ones({1})).item() == 1);
}

TEST_CASE("losses are found in nn too") {
  const Tensor logits = input({4, 3});
  const Tensor target =
      tensor({std::int64_t{0}, std::int64_t{2}, std::int64_t{1}, std::int64_t{1}});
  CHECK(nn::cross_entropy(logits, target).item() == cross_entropy(logits, target).item());
}
