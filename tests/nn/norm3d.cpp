// BatchNorm3d and InstanceNorm3d: the layers for images over volumes whose depth and height are one
// axis, in values, gradients, statistics and names.
#include <string>
#include <vector>

#include "firn/firn.h"
#include "message_of.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using namespace firn::testing;

namespace {

using Values = std::vector<double>;

Tensor input(const Shape& shape, DType dtype = f32, std::uint64_t seed = 7) {
  return make(Rng(seed).uniforms(shape.product(), -2, 3), shape, dtype);
}
Tensor as_images(const Tensor& x) {
  return x.reshape({x.size(0), x.size(1), x.size(2) * x.size(3), x.size(4)});
}

/// Gives weight and bias values of their own, the same for every layer.
template <class Norm>
void stir(const Norm& norm) {
  const NoGrad guard;
  copy_(norm.weight, input(norm.weight.shape(), norm.weight.dtype(), 3));
  copy_(norm.bias, input(norm.bias.shape(), norm.bias.dtype(), 4));
}

/// Result, and gradients of x, weight and bias.
template <class Norm>
std::vector<Values> computed(Norm& norm, const Tensor& values, const Tensor& seed) {
  const Tensor x = clone(values.detach()).set_requires_grad();
  const Tensor y = norm(x);
  CHECK(y.dtype() == x.dtype());
  backward(y, {.initial_gradient = seed});
  std::vector<Values> out{values_of(y.detach()), values_of(x.grad()), values_of(norm.weight.grad()),
                          values_of(norm.bias.grad())};
  norm.weight.set_grad({});
  norm.bias.set_grad({});
  return out;
}

std::vector<std::string> names_of(const nn::Module& m) {
  std::vector<std::string> all;
  for (const auto& t : io::state_of(m)) all.push_back(t.name);
  return all;
}

}  // namespace

TEST_CASE("BatchNorm3d equals BatchNorm2d over a reshaped input") {
  for (const DType dtype : {f64, f32, f16, bf16}) {
    INFO(to_string(dtype));
    nn::BatchNorm3d volumes(3, {.momentum = 0.3, .dtype = dtype});
    nn::BatchNorm2d images(3, {.momentum = 0.3, .dtype = dtype});
    stir(volumes);
    stir(images);
    const Tensor x = input({4, 3, 2, 3, 5}, dtype), seed = input({4, 3, 2, 3, 5}, dtype, 8);
    const double bound = dtype == f64 ? 1e-12 : dtype == f32 ? 1e-5 : dtype == f16 ? 0.01 : 0.1;
    const auto got = computed(volumes, x, seed);
    const auto want = computed(images, as_images(x), as_images(seed));
    for (std::size_t i = 0; i < want.size(); ++i)
      expect_close(std::to_string(i), got[i], want[i], bound);
    CHECK(volumes.running_mean.dtype() == compute_dtype(dtype));
    expect_close("mean", values_of(volumes.running_mean), values_of(images.running_mean), 1e-6);
    expect_close("var", values_of(volumes.running_var), values_of(images.running_var), 1e-6);
    CHECK(volumes.num_batches_tracked.item() == 1);
    volumes.eval();
    images.eval();
    const Tensor other = input({1, 3, 1, 1, 1}, dtype, 9);  // a single value is enough here
    expect_close("evaluated", values_of(volumes(other).detach()),
                 values_of(images(as_images(other)).detach()), bound);
    CHECK(volumes.num_batches_tracked.item() == 1);
  }
}

TEST_CASE("InstanceNorm3d equals InstanceNorm2d over a reshaped input") {
  for (const DType dtype : {f64, f32, f16, bf16}) {
    INFO(to_string(dtype));
    nn::InstanceNorm3d volumes(3, {.affine = true, .dtype = dtype});
    nn::InstanceNorm2d images(3, {.affine = true, .dtype = dtype});
    stir(volumes);
    stir(images);
    const Tensor x = input({2, 3, 2, 3, 5}, dtype), seed = input({2, 3, 2, 3, 5}, dtype, 8);
    const double bound = dtype == f64 ? 1e-12 : dtype == f32 ? 1e-5 : dtype == f16 ? 0.02 : 0.1;
    const auto got = computed(volumes, x, seed);
    const auto want = computed(images, as_images(x), as_images(seed));
    for (std::size_t i = 0; i < want.size(); ++i)
      expect_close(std::to_string(i), got[i], want[i], bound);
  }
  nn::InstanceNorm3d bare(3);
  CHECK(bare.parameters().empty());
  const Tensor x = input({2, 3, 2, 3, 5});
  expect_close("bare", values_of(bare(x)), values_of(instance_norm(x)), 1e-6);
}

TEST_CASE("BatchNorm3d pools the micro-batches of a cycle, as the other layers do") {
  const Tensor x = input({8, 2, 2, 2, 3}, f64);
  const auto mean_after = [&](std::int64_t micro_batch) {
    nn::BatchNorm3d norm(2, {.accumulation = nn::BatchNormMode::per_step, .dtype = f64});
    optim::SGD opt(norm.named_parameters(), {.lr = 0.1});
    opt.run_batch(8, micro_batch, [&](std::int64_t first, std::int64_t last) {
      const Tensor y = norm(x.slice(0, first, last));
      return mse_loss(y, zeros(y.shape(), f64));
    });
    return values_of(norm.running_mean);
  };
  expect_close("pooled", mean_after(2), mean_after(8), 1e-12);
}

TEST_CASE("BatchNorm3d and InstanceNorm3d have PyTorch's names, print, copy and convert") {
  using Names = std::vector<std::string>;
  CHECK(names_of(nn::BatchNorm3d(2)) ==
        Names{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"});
  CHECK(names_of(nn::InstanceNorm3d(2)).empty());
  CHECK(names_of(nn::InstanceNorm3d(2, {.affine = true})) == Names{"weight", "bias"});
  CHECK(nn::BatchNorm3d(2).type_name() == "BatchNorm3d");
  CHECK(nn::InstanceNorm3d(2).type_name() == "InstanceNorm3d");

  nn::Sequential net{nn::BatchNorm3d(2), nn::InstanceNorm3d(2, {.affine = true})};
  const Tensor x = input({2, 2, 2, 2, 3});
  net(x);
  nn::Sequential copy = nn::clone(net);
  net.eval();
  copy.eval();
  CHECK(values_of(copy(x).detach()) == values_of(net(x).detach()));
  CHECK(address_of(copy.parameters()[0]) != address_of(net.parameters()[0]));
  net.to(f16);
  CHECK(net.at<nn::BatchNorm3d>(0).weight.dtype() == f16);
  CHECK(net.at<nn::BatchNorm3d>(0).running_mean.dtype() == f32);
  CHECK(net(x.to(f16)).dtype() == f16);
  CHECK(nn::convert_to_group_norm(net, 2) == 1);
}

TEST_CASE("BatchNorm3d and InstanceNorm3d refuse inputs of another rank") {
  nn::BatchNorm3d batch(3);
  nn::InstanceNorm3d instance(3);
  const Tensor images = zeros({2, 3, 4, 4}, f32, Device::cpu());
  const std::string says =
      "input [2, 3, 4, 4] f32 cpu is not [n, c, d, h, w] with c = 3; hint: axis 1 holds the "
      "channels";
  CHECK(message_of([&] { batch(images); }) == "[BatchNorm3d] " + says);
  CHECK(message_of([&] { instance(images); }) == "[InstanceNorm3d] " + says);
  CHECK(message_of([] { nn::BatchNorm3d(0); }).find("[BatchNorm3d] c = 0") == 0);
  CHECK(message_of([] { nn::InstanceNorm3d(0); }).find("[InstanceNorm3d] c = 0") == 0);
  CHECK_THROWS_AS(batch(zeros({1, 3, 1, 1, 1})), Error);  // no variance
  const Tensor none = zeros({0, 3, 2, 2, 2}, f32, Device::cpu());
  CHECK(message_of([&] { batch(none); }) ==
        "[BatchNorm3d] input [0, 3, 2, 2, 2] f32 cpu has no values, and so no mean; hint: leave "
        "empty batches out, or call eval()");
  nn::BatchNorm3d without(3, {.track = false});
  without.eval();
  CHECK(message_of([&] { without(none); }) ==
        "[BatchNorm3d] input [0, 3, 2, 2, 2] f32 cpu has no values, and so no mean; hint: leave "
        "empty batches out, or let the layer track statistics");
  batch.eval();
  CHECK(batch(zeros({0, 3, 2, 2, 2})).numel() == 0);
  CHECK(message_of([] { nn::BatchNorm3d(6).become_group_norm(4); }) ==
        "[become_group_norm] 4 groups of 6 channels; hint: choose a divisor of the number of "
        "channels");
}
