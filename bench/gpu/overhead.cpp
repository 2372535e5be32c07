// The host's cost of an op without its arithmetic: tensors of 16 elements, and work that is only
// queued.
#include "bench.h"

namespace bench {

using namespace firn;

void overhead() {
  const auto host = [](const char* work, const std::function<void()>& call) {
    report({.work = work, .mode = "eager", .dtype = "f32", .values = host_ns(call), .unit = "ns"});
  };
  const Tensor a = random({16}, f32), b = random({16}, f32);
  Tensor w = random({16}, f32);
  w.set_requires_grad();
  host("add16", [&] {
    const NoGrad guard;
    Tensor y = a + b;
  });
  host("add16_recorded", [&] { Tensor y = w + b; });
  host("chain10", [&] {
    Tensor y = w;
    for (int i = 0; i < 10; ++i) y = y + b;
    backward(y, {.initial_gradient = a});
  });
  const DeviceScope scope(kDevice);
  const Tensor x = random({4, 4}, f32);
  nn::Linear fc(4, 4);
  host("linear", [&] { backward(fc(x), {.initial_gradient = x}); });

  nn::Sequential net{nn::Linear(784, 512), nn::ReLU(), nn::Linear(512, 512), nn::ReLU(),
                     nn::Linear(512, 10)};
  optim::Adam opt(net.parameters());
  const Tensor images = random({sized<std::int64_t>(64, 2), 784}, f32);
  const Tensor labels = zeros({images.size(0)}, i64, kDevice);
  host("mlp_step", [&] {
    opt.backward(cross_entropy(net(images), labels));
    opt.step();
  });
}

}  // namespace bench
