// Residual connections, and the block that residual networks are made of.
#include "firn/firn.h"
#include "message_of.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::expect_close;
using firn::testing::expect_same;
using firn::testing::message_of;
using firn::testing::values_of;

namespace {

Tensor input(const Shape& shape, DType dtype = f32) {
  Generator g(7);
  return randn(shape, {.generator = &g}).to(dtype);
}

}  // namespace

TEST_CASE("Residual adds its input, or what the shortcut makes of it, before the activation") {
  const Tensor x = input({4, 3});
  nn::Linear body(3, 3), other(3, 3);
  expect_same("relu", values_of(nn::Residual(body)(x)), values_of(relu(body(x) + x)));
  expect_same("none", values_of(nn::Residual(body, Activation::none)(x)), values_of(body(x) + x));
  expect_same("gelu", values_of(nn::Residual(body, other, Activation::gelu_tanh)(x)),
              values_of(gelu_tanh(body(x) + other(x))));
  const auto shared = std::make_shared<nn::Linear>(body);
  expect_same("shared", values_of(nn::Residual(shared)(x)), values_of(relu(body(x) + x)));
  CHECK(nn::Residual(shared, shared).num_parameters() == 12);  // listed once
  CHECK(nn::Residual(body, other).named_parameters()[2].name == "shortcut.weight");
  CHECK(nn::Residual(body).extra_repr() == "activation = relu");
}

TEST_CASE("Residual sends gradients both ways") {
  const Tensor x = input({4, 3}, f64).set_requires_grad();
  nn::Residual layer(nn::Linear(3, 3, {.dtype = f64}), Activation::none);
  layer(x).sum().backward();
  auto& linear = dynamic_cast<nn::Linear&>(*layer.body);
  const NoGrad guard;
  const Tensor want = sum(linear.weight, {0}) + 1.0;
  expect_close("gradient", values_of(x.grad()), values_of(expand(want, {4, 3})), 1e-12);
}

TEST_CASE("Residual refuses summands of different shapes, which would be broadcast", "[host]") {
  nn::Residual narrow(nn::Linear(3, 1));
  CHECK(message_of([&] { narrow(input({4, 3})); }).find("[4, 1]") != std::string::npos);
  CHECK(message_of([&] { narrow(input({4, 3})); }).find("give a shortcut") != std::string::npos);
  CHECK(message_of([] { nn::Residual(std::shared_ptr<nn::Module>()); }).find("null") !=
        std::string::npos);
}

TEST_CASE("an empty AnyModule says so when it is called", "[host]") {
  nn::Residual layer(nn::Linear(3, 3));
  layer.body = nullptr;
  CHECK(message_of([&] { layer(input({4, 3})); }).find("[Residual] the body is null") == 0);
  nn::AnyModule none;
  CHECK(message_of([&] { (*none)(input({4, 3})); }).find("[AnyModule] it holds no module") == 0);
  CHECK(message_of([&] { none->eval(); }).find("[AnyModule] it holds no module") == 0);
  nn::Sequential chain{nn::ReLU()};
  CHECK(message_of([&] { chain.push_back(std::shared_ptr<nn::Module>()); }).find("null") !=
        std::string::npos);
  CHECK(chain.size() == 1);
}

TEST_CASE("BasicBlock: shapes, parameters, and a projection where the shape changes") {
  nn::BasicBlock same(8, 8), wider(8, 16), halved(8, 8, 2);
  CHECK(same(input({2, 8, 7, 6})).shape() == Shape{2, 8, 7, 6});
  CHECK(wider(input({2, 8, 7, 6})).shape() == Shape{2, 16, 7, 6});
  CHECK(halved(input({2, 8, 7, 6})).shape() == Shape{2, 8, 4, 3});
  CHECK(same.num_parameters() == 2 * 8 * 8 * 9 + 2 * 16);
  CHECK(wider.num_parameters() == 16 * 8 * 9 + 16 * 16 * 9 + 8 * 16 + 3 * 32);
  CHECK(same.shortcut == nullptr);
  CHECK(halved.shortcut != nullptr);
  CHECK(halved.type_name() == "BasicBlock");
  CHECK(halved.extra_repr() == "8, 8, 2");
  CHECK(same.named_parameters()[0].name == "body.0.weight");
  CHECK(message_of([] { nn::BasicBlock(0, 8); }).find("in = 0, out = 8") != std::string::npos);
  CHECK(message_of([] { nn::BasicBlock(8, 8, 0); }).find("stride = 0") != std::string::npos);
}

TEST_CASE("BasicBlock computes what its layers do") {
  nn::BasicBlock block(3, 4, 2);
  const Tensor x = input({5, 3, 6, 6});
  const auto parameters = block.parameters();
  REQUIRE(parameters.size() == 9);
  const Conv2dOptions strided{.stride = 2, .padding = 1}, plain{.padding = 1},
      pointwise{.stride = 2};
  Tensor y = batch_norm(conv2d(x, parameters[0], {}, strided), parameters[1], parameters[2]);
  y = batch_norm(conv2d(relu(y), parameters[3], {}, plain), parameters[4], parameters[5]);
  const Tensor through =
      batch_norm(conv2d(x, parameters[6], {}, pointwise), parameters[7], parameters[8]);
  expect_close("block", values_of(block(x)), values_of(relu(y + through)), 1e-5);
  block.eval();  // running statistics: not those of the batch
  CHECK(block(x).shape() == Shape{5, 4, 3, 3});
}

TEST_CASE("BasicBlock: options reach its normalisations and convolutions") {
  nn::BasicBlock block(3, 4, 1,
                       {.norm = {.accumulation = nn::BatchNormMode::per_step}, .dtype = f16});
  CHECK(block.parameters()[0].dtype() == f16);
  int norms = 0;
  for (const auto& m : block.named_modules()) {
    if (const auto* norm = dynamic_cast<nn::BatchNorm*>(m.module)) {
      ++norms;
      CHECK(norm->accumulation() == nn::BatchNormMode::per_step);
    }
  }
  CHECK(norms == 3);
}

TEST_CASE("BasicBlock trains in micro-batches, in f32 and in f16 with masters") {
  for (const DType dtype : {f32, f16}) {
    manual_seed(5);
    nn::Sequential net{
        nn::BasicBlock(2, 4, 2,
                       {.norm = {.accumulation = nn::BatchNormMode::per_step}, .dtype = dtype}),
        nn::Flatten(), nn::Linear(4 * 4, 2, {.dtype = dtype})};
    optim::Adam opt(
        net.parameters(), {.lr = 0.02},
        {.accumulate = 2,
         .loss_scale = dtype == f16 ? optim::LossScale::dynamic() : optim::LossScale::none()});
    const Tensor x = input({8, 2, 4, 4}, dtype);
    const Tensor y = tensor<std::int64_t>({0, 1, 0, 1, 0, 1, 0, 1});
    double first = 0, last = 0;
    for (int i = 0; i < 30; ++i) {
      const Loss loss = cross_entropy(net(x), y);
      if (i == 0) first = loss.item();
      last = loss.item();
      opt.backward(loss);
      opt.step();
    }
    INFO(to_string(dtype) << ": " << first << " to " << last);
    CHECK(last < 0.5 * first);
  }
}
