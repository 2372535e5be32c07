// An autoencoder: curves of 32 points pass through a code of 3 numbers and back. The curves have
// three hidden parameters, so three numbers are enough, while three principal components are not.
#include <cstdio>

#include "firn/firn.h"

using namespace firn;

struct Autoencoder : nn::Module {
  nn::Sequential encoder{nn::Linear(32, 64), nn::GELU(), nn::Linear(64, 3)};
  nn::Sequential decoder{nn::Linear(3, 64), nn::GELU(), nn::Linear(64, 32)};
  FIRN_MEMBERS(encoder, decoder)
  Tensor forward(const Tensor& x) override { return decoder(encoder(x)); }
};

// Returns curves amplitude sin(frequency t + phase), one for each row.
static Tensor curves(std::int64_t n) {
  const Tensor t = arange(32, {.step = 0.1, .dtype = f32});
  const Tensor amplitude = rand({n, 1}, {.low = 0.5, .high = 1.5});
  const Tensor frequency = rand({n, 1}, {.low = 1, .high = 2});
  const Tensor phase = rand({n, 1}, {.low = 0, .high = 1.5});
  return amplitude * sin(frequency * t + phase);
}

int main() {
  manual_seed(1);
  const Tensor test = curves(500);
  Autoencoder net;
  optim::AdamW opt(net.parameters(), {.lr = optim::cosine(5e-3, 1500)});
  for (int step = 0; step < 1500; ++step) {
    const Tensor x = curves(64);
    opt.backward(mse_loss(net(x), x));
    opt.step();
  }
  const NoGrad guard;
  const double error = mse_loss(net(test), test).item();
  const double spread = square(test - test.mean(0)).mean().item();
  std::printf("32 numbers through 3: %.2f %% of the variance is lost\n", 100 * error / spread);
  return error < 0.02 * spread ? 0 : 1;
}
