// ../cpu/compute.cpp with LibTorch, with equal counts of operations.
//   bench_torch_compute [--threads N] [--quick]
// Products are written into existing tensors and into new ones; convolutions run in both memory
// formats, with the gradients as the op that autograd calls. The faster of the two is the figure.
#include "setup.h"

namespace {

constexpr const char* kUnit = "GFLOP/s";

struct Layer {
  torch::Tensor x, w, dy, y, dx, dw;
  double flops;

  Layer(std::int64_t batch, std::int64_t in, std::int64_t out)
      : x(torch::randn({batch, in})),
        w(torch::randn({out, in})),
        dy(torch::randn({batch, out})),
        y(torch::zeros({batch, out})),
        dx(torch::zeros({batch, in})),
        dw(torch::zeros({out, in})),
        flops(2.0 * static_cast<double>(batch * in * out)) {}
};

void mlp(std::int64_t batch, const bench::Options& options) {
  Layer layers[] = {{batch, 784, 512}, {batch, 512, 512}, {batch, 512, 10}};
  double flops = -layers[0].flops;
  for (const Layer& l : layers) flops += 3 * l.flops;
  const auto fresh = [&] {
    for (Layer& l : layers) at::mm(l.x, l.w.t());
    for (int i = 2; i >= 0; --i) {
      Layer& l = layers[i];
      at::mm(l.dy.t(), l.x);
      if (i > 0) at::mm(l.dy, l.w);
    }
  };
  const auto out = [&] {
    for (Layer& l : layers) at::mm_out(l.y, l.x, l.w.t());
    for (int i = 2; i >= 0; --i) {
      Layer& l = layers[i];
      at::mm_out(l.dw, l.dy.t(), l.x);
      if (i > 0) at::mm_out(l.dx, l.dy, l.w);
    }
  };
  bench::report_better("compute.gemm_b" + std::to_string(batch), kUnit, flops, options,
                       bench::Way{"new results", fresh}, bench::Way{"out=", out});
}

void square(std::int64_t n, const bench::Options& options) {
  const auto a = torch::randn({n, n}), b = torch::randn({n, n});
  auto c = torch::zeros({n, n});
  const double side = static_cast<double>(n);
  bench::report_better("compute.gemm_" + std::to_string(n), kUnit, 2 * side * side * side, options,
                       bench::Way{"new result", [&] { return at::mm(a, b); }},
                       bench::Way{"out=", [&] { at::mm_out(c, a, b); }});
}

void convolution(std::int64_t in, std::int64_t out, std::int64_t side, std::int64_t padding,
                 const bench::Options& options) {
  constexpr std::int64_t kBatch = 64;
  struct Format {
    torch::Tensor x, w, dy;
  };
  const std::int64_t q = side + 2 * padding - 2;
  const Format planes{torch::randn({kBatch, in, side, side}), torch::randn({out, in, 3, 3}),
                      torch::randn({kBatch, out, q, q})};
  const auto last = [](const torch::Tensor& t) {
    return t.contiguous(torch::MemoryFormat::ChannelsLast);
  };
  const Format pixels{last(planes.x), last(planes.w), last(planes.dy)};
  const double flops = 2.0 * static_cast<double>(kBatch * out * q * q * in * 9);
  const std::string name = "compute.conv_" + std::to_string(in) + "_" + std::to_string(out);
  const auto rate = [&](const char* what, const auto& call) {
    bench::report_better(name + what, kUnit, flops, options,
                         bench::Way{"planes", [&] { call(planes); }},
                         bench::Way{"channels-last", [&] { call(pixels); }});
  };
  const auto gradient = [&](const Format& f, std::array<bool, 3> of) {
    at::convolution_backward(f.dy, f.x, f.w, at::OptionalIntArrayRef(), {1, 1}, {padding, padding},
                             {1, 1}, false, {0, 0}, 1, of);
  };
  rate(".forward", [&](const Format& f) { at::conv2d(f.x, f.w, {}, 1, padding); });
  rate(".data", [&](const Format& f) { gradient(f, {true, false, false}); });
  rate(".weight", [&](const Format& f) { gradient(f, {false, true, false}); });
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  bench::set_up(options);
  const torch::NoGradGuard guard;
  for (const std::int64_t batch : {16, 64, 256, 1024}) mlp(batch, options);
  square(1024, options);
  convolution(32, 64, 26, 0, options);
  convolution(64, 64, 32, 1, options);
  convolution(1, 32, 28, 0, options);
}
