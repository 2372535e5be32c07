// Matrix products and convolutions in GFLOP/s of f32, with the machine's own multiply-adds.
//   bench_compute [--threads N] [--quick]
// gemm_b16 ... gemm_b1024: all products of one step of the MLP 784-512-512-10, their operations
// divided by their total time. They are forward, weight gradients, and the data gradients of all
// layers but the first. conv_32_64: 26x26 without padding; conv_64_64: 32x32 padded to 32x32;
// conv_1_32: 28x28 without. Kernels are 3x3, batch 64, channels-last. Each product is timed alone,
// and operations with padding count. A gradient walks a retained graph of the single op, in which
// only that operand requires a gradient. Weight gradients are added to the leaf's, as in training.
// The data gradient of a convolution is written, since its leaf's is removed before. No layer has a
// bias.
#include <firn/firn.h>

#include "../harness.h"
#include "ceilings.h"

using namespace firn;

namespace {

constexpr const char* kUnit = "GFLOP/s";

void peak(const char* what, int threads, const bench::Options& options) {
  constexpr std::int64_t kRounds = 1 << 18;
  bench::Team team(threads);
  std::vector<float> sums(static_cast<std::size_t>(threads) * 16);  // one cache line each
  const std::function<void(int)> work = [&](int t) {
    sums[static_cast<std::size_t>(t) * 16] = bench::multiply_add(kRounds);
  };
  bench::report_rate(what, kUnit, bench::multiply_add_flops(kRounds) * threads,
                     bench::nanoseconds([&] { team.run(work); }, options.repeats()));
}

/// The products of y = x w^T for one layer. The graph of the weight gradient is kept.
struct Layer {
  Tensor x, w, dy, w_transposed, recorded;
  double flops;

  Layer(std::int64_t batch, std::int64_t in, std::int64_t out)
      : x(randn({batch, in})),
        w(randn({out, in}).set_requires_grad()),
        dy(randn({batch, out})),
        w_transposed(transpose(w.detach(), 0, 1)),
        recorded(linear(x, w)),
        flops(2.0 * static_cast<double>(batch * in * out)) {}

  void forward() const { matmul(x, w_transposed); }
  void weight_gradient() const {
    firn::backward(recorded, {.initial_gradient = dy, .retain_graph = true});
  }
  void data_gradient() const { matmul(dy, w); }
};

void mlp(std::int64_t batch, const bench::Options& options) {
  const Layer layers[] = {{batch, 784, 512}, {batch, 512, 512}, {batch, 512, 10}};
  double flops = -layers[0].flops;
  for (const Layer& l : layers) flops += 3 * l.flops;
  const NoGrad guard;
  const auto step = [&] {
    for (const Layer& l : layers) l.forward();
    for (int i = 2; i >= 0; --i) {
      layers[i].weight_gradient();
      if (i > 0) layers[i].data_gradient();
    }
  };
  bench::report_rate("compute.gemm_b" + std::to_string(batch), kUnit, flops,
                     bench::nanoseconds(step, options.repeats()));
}

void square(std::int64_t n, const bench::Options& options) {
  const NoGrad guard;
  const Tensor a = randn({n, n}), b = randn({n, n});
  const double side = static_cast<double>(n);
  bench::report_rate("compute.gemm_" + std::to_string(n), kUnit, 2 * side * side * side,
                     bench::nanoseconds([&] { matmul(a, b); }, options.repeats()));
}

void convolution(std::int64_t in, std::int64_t out, std::int64_t side, std::int64_t padding,
                 const bench::Options& options) {
  constexpr std::int64_t kBatch = 64;
  const Conv2dOptions how{.padding = padding};
  const Tensor x = channels_last(randn({kBatch, in, side, side}));
  const Tensor w = randn({out, in, 3, 3});
  const std::int64_t q = side + 2 * padding - 2;
  const Tensor dy = channels_last(randn({kBatch, out, q, q}));
  const double flops = 2.0 * static_cast<double>(kBatch * out * q * q * in * 9);
  const std::string name = "compute.conv_" + std::to_string(in) + "_" + std::to_string(out);
  const auto rate = [&](const char* what, const auto& call) {
    bench::report_rate(name + what, kUnit, flops, bench::nanoseconds(call, options.repeats()));
  };
  {
    const NoGrad guard;
    rate(".forward", [&] { conv2d(x, w, {}, how); });
  }
  Tensor leaf = x.detach().set_requires_grad();
  const Tensor of_data = conv2d(leaf, w, {}, how);
  rate(".data", [&] {
    leaf.set_grad({});
    backward(of_data, {.initial_gradient = dy, .retain_graph = true});
  });
  const Tensor of_weight = conv2d(x, w.detach().set_requires_grad(), {}, how);
  rate(".weight", [&] { backward(of_weight, {.initial_gradient = dy, .retain_graph = true}); });
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  set_num_threads(options.threads);
  manual_seed(1);
  peak("compute.fma_peak_1", 1, options);
  peak("compute.fma_peak", options.threads, options);
  for (const std::int64_t batch : {16, 64, 256, 1024}) mlp(batch, options);
  square(1024, options);
  convolution(32, 64, 26, 0, options);
  convolution(64, 64, 32, 1, options);
  convolution(1, 32, 28, 0, options);
}
