// Matrix products in GFLOP/s, on one thread and on all.
//   bench_product [--threads N] [--precision f32|bf16|f16|bf16x3] [--quick]
// product.t2_64x512x784_nt: on two threads, [64, 784] times [512, 784] transposed. This is a
// layer's forward pass: linear() with a constant weight. nn is matmul() of plain factors, and tn
// that of a transposed left one, as in data and weight gradients. Results have the factors' dtype.
#include <firn/firn.h>

#include "../harness.h"
#include "../shapes.h"
#include "precision.h"

using namespace firn;

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  const DType dtype = bench::dtype_of(options.precision);
  manual_seed(1);
  const NoGrad guard;
  for (const int threads : bench::thread_counts(options.threads)) {
    set_num_threads(threads);
    for (const bench::Product& p : bench::kProducts) {
      const Tensor a = p.a_transposed() ? randn({p.k, p.m}, dtype) : randn({p.m, p.k}, dtype);
      const Tensor b = p.b_transposed() ? randn({p.n, p.k}, dtype) : randn({p.k, p.n}, dtype);
      const auto multiply = [&] {
        if (p.b_transposed()) return linear(a, b);
        return matmul(p.a_transposed() ? transpose(a, 0, 1) : a, b);
      };
      bench::report_rate(options.named("product") + "." + p.name(threads), "GFLOP/s", p.flops(),
                         bench::nanoseconds(multiply, options.repeats()));
    }
  }
}
