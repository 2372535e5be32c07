// Fine-tuning: a network that was trained for one task is loaded for another. Its body is frozen;
// only a new last layer is trained, on few samples. A network trained from scratch on these samples
// is worse.
#include <cstdio>

#include "firn/firn.h"

using namespace firn;

static constexpr const char* kFile = "pretrained.safetensors";

// Returns hidden features of x; both tasks are linear functions of them.
static Tensor features(const Tensor& x) {
  return cat({x.slice(1, 0, 4) * x.slice(1, 4, 8), abs(x.slice(1, 0, 4))}, 1);
}

static void steps_of(optim::Optimizer& opt, nn::Module& net, const Tensor& x, const Tensor& y,
                     int steps) {
  for (int step = 0; step < steps; ++step) {
    opt.backward(mse_loss(net(x), y));
    opt.step();
  }
}

int main() {
  manual_seed(1);
  const Tensor many = randn({2000, 8}), few = randn({100, 8}), test = randn({1000, 8});
  const Tensor first_task = randn({6, 8}), second_task = randn({1, 8});
  const auto second = [&](const Tensor& x) { return linear(features(x), second_task); };
  {
    nn::MLP net({8, 128, 64, 6});
    optim::AdamW opt(net.parameters(), {.lr = optim::cosine(5e-3, 400)});
    steps_of(opt, net, many, linear(features(many), first_task), 400);
    io::save_safetensors(kFile, io::state_of(net));
  }

  nn::MLP tuned({8, 128, 64, 1});
  const io::LoadReport report = io::load_safetensors(kFile, tuned, {.strict = false});
  tuned.set_requires_grad(false);
  nn::Linear& head = tuned.layers.back();  // its shape differs, so it is not loaded and stays new
  head.set_requires_grad(true);
  optim::AdamW opt(head.parameters(), {.lr = 2e-2});
  steps_of(opt, tuned, few, second(few), 300);

  nn::MLP fresh({8, 128, 64, 1});
  optim::AdamW opt_fresh(fresh.parameters(), {.lr = 5e-3});
  steps_of(opt_fresh, fresh, few, second(few), 300);

  const NoGrad guard;
  const double with = mse_loss(tuned(test), second(test)).item();
  const double without = mse_loss(fresh(test), second(test)).item();
  std::printf("%zu tensors loaded, %zu new; test loss %.3f, from scratch %.3f\n",
              report.loaded.size(), report.mismatched.size(), with, without);
  return with < 0.7 * without && report.mismatched.size() == 2 ? 0 : 1;
}
