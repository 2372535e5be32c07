// ../cpu/memory.cpp with LibTorch, with equal counts of bytes.
//   bench_torch_memory [--threads N] [--quick]
// Each op writes into an existing tensor (the out= form) and into a new one, from memory that
// malloc has kept (bench/run sets its thresholds). The faster of the two is the figure. Gradients
// are direct calls of the ops that autograd calls.
#include "setup.h"

namespace {

constexpr std::int64_t kSide = 4096;
constexpr double kBytes = 4.0 * kSide * kSide;

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  bench::set_up(options);
  const torch::NoGradGuard guard;
  const auto x = torch::randn({kSide, kSide}), y = torch::randn({kSide, kSide});
  const auto weight = torch::rand({kSide}), bias = torch::randn({kSide});
  auto to = torch::zeros({kSide, kSide}), total = torch::zeros({});

  const auto time = [&](const char* what, double passes, const auto& fresh, const auto& out) {
    bench::report_better(std::string("memory.") + what, "GB/s", passes * kBytes, options,
                         bench::Way{"new result", fresh}, bench::Way{"out=", out});
  };
  time(
      "add", 3, [&] { return x + y; }, [&] { at::add_out(to, x, y); });
  time(
      "relu", 2, [&] { return at::relu(x); }, [&] { at::relu_out(to, x); });
  time(
      "exp", 2, [&] { return at::exp(x); }, [&] { at::exp_out(to, x); });
  time(
      "gelu", 2, [&] { return at::gelu(x); }, [&] { at::gelu_out(to, x); });
  time(
      "gelu_tanh", 2, [&] { return at::gelu(x, "tanh"); }, [&] { at::gelu_out(to, x, "tanh"); });
  time(
      "softmax", 2, [&] { return at::_softmax(x, -1, false); },
      [&] { at::_softmax_out(to, x, -1, false); });
  auto mean = torch::zeros({kSide, 1}), rstd = torch::zeros({kSide, 1});
  time(
      "layer_norm", 2, [&] { return at::native_layer_norm(x, {kSide}, weight, bias, 1e-5); },
      [&] { at::native_layer_norm_out(to, mean, rstd, x, {kSide}, weight, bias, 1e-5); });
  time(
      "sum", 1, [&] { return at::sum(x); },
      [&] { at::sum_out(total, x, at::OptionalIntArrayRef(at::IntArrayRef{}), false); });
  time(
      "cumsum", 2, [&] { return at::cumsum(x, 1); }, [&] { at::cumsum_out(to, x, 1); });
  time(
      "cumsum_columns", 2, [&] { return at::cumsum(x, 0); }, [&] { at::cumsum_out(to, x, 0); });
  auto positions = torch::zeros({kSide, kSide}, torch::kInt64);
  time(
      "cummax", 4, [&] { return at::cummax(x, 1); }, [&] { at::cummax_out(to, positions, x, 1); });
  time(
      "transpose", 2, [&] { return x.t().contiguous(); }, [&] { to.copy_(x.t()); });

  time(
      "gelu_backward", 3, [&] { return at::gelu_backward(y, x); },
      [&] { at::gelu_backward_out(to, y, x); });
  const auto probabilities = at::softmax(x, -1);
  time(
      "softmax_backward", 3,
      [&] { return at::_softmax_backward_data(y, probabilities, -1, torch::kFloat32); },
      [&] { at::_softmax_backward_data_out(to, y, probabilities, -1, torch::kFloat32); });
  std::tie(std::ignore, mean, rstd) = at::native_layer_norm(x, {kSide}, weight, bias, 1e-5);
  auto weight_grad = torch::zeros({kSide}), bias_grad = torch::zeros({kSide});
  time(
      "layer_norm_backward", 3,
      [&] {
        return at::native_layer_norm_backward(y, x, {kSide}, mean, rstd, weight, bias,
                                              {true, true, true});
      },
      [&] {
        at::native_layer_norm_backward_out(to, weight_grad, bias_grad, y, x, {kSide}, mean, rstd,
                                           weight, bias, {true, true, true});
      });
}
