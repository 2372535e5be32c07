// ../cpu/product.cpp with LibTorch, into existing tensors and into new ones; the faster of the two
// is the figure.
//   bench_torch_product [--threads N] [--precision f32|bf16|f16] [--quick]
#include "../shapes.h"
#include "setup.h"

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  const auto dtype = bench::dtype_of(options.precision);
  bench::set_up(options);
  const torch::NoGradGuard guard;
  for (const int threads : bench::thread_counts(options.threads)) {
    torch::set_num_threads(threads);
    for (const bench::Product& p : bench::kProducts) {
      auto a =
          p.a_transposed() ? torch::randn({p.k, p.m}, dtype).t() : torch::randn({p.m, p.k}, dtype);
      auto b =
          p.b_transposed() ? torch::randn({p.n, p.k}, dtype).t() : torch::randn({p.k, p.n}, dtype);
      auto c = torch::zeros({p.m, p.n}, dtype);
      bench::report_better("product." + p.name(threads), "GFLOP/s", p.flops(), options,
                           bench::Way{"new result", [&] { return at::mm(a, b); }},
                           bench::Way{"out=", [&] { at::mm_out(c, a, b); }});
    }
  }
}
