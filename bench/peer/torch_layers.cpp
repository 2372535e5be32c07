// ../cpu/layers.cpp with LibTorch.
//   bench_torch_layers [--threads N] [--quick]
#include "setup.h"

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  bench::set_up(options);
  const auto time = [&](const char* name, const torch::Tensor& x, auto& layer, auto&& output) {
    torch::Tensor leaf = x.detach().requires_grad_();
    const auto both = [&] {
      leaf.mutable_grad() = torch::Tensor();
      layer->zero_grad();
      output(layer->forward(leaf)).sum().backward();
    };
    for (int i = 0; i < bench::kWarmUp; ++i) both();
    bench::report_ms(std::string("layers.") + name, bench::nanoseconds(both, options.repeats()));
  };
  const auto first_of = [](const auto& result) { return std::get<0>(result); };
  const auto itself = [](const torch::Tensor& y) { return y; };
  const auto sequence = torch::randn({100, 64, 256});
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(256, 256).num_layers(2));
  time("lstm_2x256_b64_s100", sequence, lstm, first_of);
  torch::nn::GRU gru(torch::nn::GRUOptions(256, 256).num_layers(2));
  time("gru_2x256_b64_s100", sequence, gru, first_of);
  torch::nn::Conv3d conv(torch::nn::Conv3dOptions(32, 64, 3).padding(1));
  time("conv3d_32_64_3x3x3_b2_16x28x28", torch::randn({2, 32, 16, 28, 28}), conv, itself);
  torch::nn::Conv3d first(
      torch::nn::Conv3dOptions(3, 64, {3, 7, 7}).stride({1, 2, 2}).padding({1, 3, 3}));
  time("conv3d_3_64_3x7x7_b2_8x56x56", torch::randn({2, 3, 8, 56, 56}), first, itself);
}
