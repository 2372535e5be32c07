// Module::to: dtype and device.
#include "autograd/node.h"
#include "firn/firn.h"
#include "message_of.h"
#include "runtime/memory/fail_allocation.h"
#include "support/catch.h"

using namespace firn;
using firn::testing::message_of;

namespace {

struct Net : nn::Module {
  nn::Linear fc1{3, 4}, fc2{4, 2};
  nn::Buffer steps{tensor({std::int64_t{5}})}, mean{ones({4})};
  FIRN_MEMBERS(fc1, fc2, steps, mean)
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
};

}  // namespace

TEST_CASE("to(dtype) converts floating parameters and buffers for all who hold them") {
  Net net;
  const Tensor handle = net.fc1.weight;
  const Net copy = net;
  const auto values = net.fc1.weight.to_vector<float>();
  net.to(bf16);
  CHECK(handle.dtype() == bf16);
  CHECK(copy.fc2.bias.dtype() == bf16);
  CHECK(handle.storage() == net.fc1.weight.storage());
  CHECK(handle.storage()->owner() == Owner::weights);
  CHECK(handle.requires_grad());
  CHECK(net.mean.dtype() == bf16);
  CHECK(net.steps.dtype() == i64);
  const auto rounded = handle.to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i)
    CHECK(rounded[i] == static_cast<float>(bfloat16(values[i])));
}

TEST_CASE("to(dtype) keeps what has the dtype already") {
  Net net;
  const Ref<Storage> storage = net.fc1.weight.storage();
  net.to(f32);
  CHECK(net.fc1.weight.storage() == storage);
}

TEST_CASE("gradients follow the parameters to another dtype and go on adding up") {
  Net net;
  net.fc2.set_requires_grad(false);
  sum(net(ones({2, 3}))).backward();
  const auto before = net.fc1.bias.grad().to_vector<double>();
  net.to(f64);
  CHECK(net.fc1.bias.grad().dtype() == f64);
  CHECK(net.fc1.bias.grad().to_vector<double>() == before);
  sum(net(ones({2, 3}, f64))).backward();
  const auto after = net.fc1.bias.grad().to_vector<double>();
  for (std::size_t i = 0; i < after.size(); ++i) CHECK(after[i] == Approx(2 * before[i]));
}

TEST_CASE("training works in every floating dtype after to(dtype)") {
  for (const DType t : {f16, bf16, f32, f64}) {
    Net net;
    net.to(t);
    const Tensor y = net(ones({2, 3}, t));
    CHECK(y.dtype() == t);
    sum(y).backward();
    CHECK(net.fc1.weight.grad().dtype() == t);
    CHECK(net.fc2.bias.grad().to_vector<float>() == std::vector<float>{2, 2});
  }
}

TEST_CASE("tied weights stay tied through to(dtype)") {
  struct Tied : nn::Module {
    nn::Embedding in{5, 4};
    nn::Linear out{4, 5, {.bias = false}};
    FIRN_MEMBERS(in, out)
  } net;
  net.out.weight = net.in.weight;
  net.to(f16);
  CHECK(net.out.weight.impl() == net.in.weight.impl());
  CHECK(net.out.weight.dtype() == f16);
}

TEST_CASE("to(dtype) refuses integer dtypes") {
  Net net;
  CHECK(message_of([&] { net.to(i32); }).find("[Module::to] parameters cannot become i32") == 0);
  CHECK(net.fc1.weight.dtype() == f32);
}

TEST_CASE("to() refuses a parameter that an optimizer holds, and converts nothing", "[host]") {
  Net net;
  autograd::leaf_of(net.fc2.bias)->arena = zeros({2});
  const std::string text = message_of([&] { net.to(f16); });
  CHECK(text.find("[Module::to] fc2.bias [2] f32 cpu belongs to an optimizer") == 0);
  CHECK(text.find("hint: convert the module first") != std::string::npos);
  for (const Tensor& p : net.parameters()) CHECK(p.dtype() == f32);
  CHECK(message_of([&] { net.zero_grad(); }).find("fc2.bias") != std::string::npos);
  CHECK(message_of([&] { net.set_requires_grad(false); }).find("fc2.bias") != std::string::npos);
  CHECK(net.fc1.weight.requires_grad());
}

TEST_CASE("set_requires_grad() inside a Freeze is refused: the end of the guard would undo it",
          "[host]") {
  Net net;
  {
    const Freeze guard({net.fc2.bias});
    for (const bool on : {false, true})
      CHECK(message_of([&] { net.set_requires_grad(on); }) ==
            "[Module::set_requires_grad] fc2.bias [2] f32 cpu is frozen; hint: end the scope of "
            "Freeze first");
    CHECK(net.fc1.weight.requires_grad());
  }
  net.set_requires_grad(false);
  for (const Tensor& p : net.parameters()) CHECK(!p.requires_grad());
}

TEST_CASE("to() on a device that is not there throws and leaves the module as it was", "[host]") {
  if (cuda_device_count() > 0)
    SUCCEED("a CUDA device is here");
  else {
    Net net;
    const Ref<Storage> storage = net.fc1.weight.storage();
    CHECK_THROWS_AS(net.to(Device::cuda()), DeviceError);
    CHECK(net.fc1.weight.storage() == storage);
    CHECK(net.fc1.weight.device().is_cpu());
    CHECK_NOTHROW(net.to(Device::cpu()));
    CHECK(net.fc1.weight.storage() == storage);
  }
}

TEST_CASE("when memory runs out in to(dtype) nothing has changed") {
  Net net;
  for (std::uint64_t k = 0; k < 5; ++k) {  // five floating tensors
    const FailAllocation fail(k);
    CHECK_THROWS_AS(net.to(f64), OutOfMemory);
    for (const Tensor& p : net.parameters()) CHECK(p.dtype() == f32);
    CHECK(net.mean.dtype() == f32);
  }
  net.to(f64);
  CHECK(net.mean.dtype() == f64);
}

TEST_CASE("a graph recorded before to(dtype) refuses to run backward") {
  Net net;
  const Tensor loss = sum(net(ones({2, 3})));
  net.to(f64);
  CHECK(message_of([&] { loss.backward(); }).find("Module::to") != std::string::npos);
}

TEST_CASE("a module moves to a CUDA device and back", "[gpu]") {
  const DeviceScope host(Device::cpu());
  Net net;
  const auto values = net.fc1.weight.to_vector<float>();
  net.to(Device::cuda());
  CHECK(net.fc1.weight.device() == Device::cuda());
  CHECK(net.fc1.weight.to_vector<float>() == values);
  net.to(Device::cpu());
  CHECK(net.fc1.weight.to_vector<float>() == values);
}
