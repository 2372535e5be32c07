// Layers over sequences and volumes, forward and backward: milliseconds a call, in f32.
//   bench_layers [--threads N] [--quick]
// The peer's program does the same (../peer/torch_layers.cpp).
#include <firn/firn.h>

#include "../harness.h"

using namespace firn;

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  set_num_threads(options.threads);
  const auto time = [&](const char* name, const Tensor& x, auto& layer) {
    Tensor leaf = x.detach();
    leaf.set_requires_grad(true);
    const auto both = [&] {
      leaf.set_grad({});
      layer.zero_grad();
      layer(leaf).sum().backward();
    };
    bench::report_ms(std::string("layers.") + name, bench::nanoseconds(both, options.repeats()));
  };
  const Tensor sequence = randn({100, 64, 256});
  nn::LSTM lstm(256, 256, {.layers = 2});
  time("lstm_2x256_b64_s100", sequence, lstm);
  nn::GRU gru(256, 256, {.layers = 2});
  time("gru_2x256_b64_s100", sequence, gru);
  nn::Conv3d conv(32, 64, 3, {.padding = 1});
  time("conv3d_32_64_3x3x3_b2_16x28x28", randn({2, 32, 16, 28, 28}), conv);
  nn::Conv3d first(3, 64, {3, 7, 7}, {.stride = {1, 2, 2}, .padding = {1, 3, 3}});
  time("conv3d_3_64_3x7x7_b2_8x56x56", randn({2, 3, 8, 56, 56}), first);
}
