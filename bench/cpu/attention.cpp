// Causal attention, forward and backward, in milliseconds.
//   bench_attention [--threads N] [--precision f32|bf16|f16] [--quick]
// attention.b8_h12_s1024_d64: batch 8, 12 heads, 1024 positions, 64 numbers a head. The gradient of
// the result is given; each call makes new gradients of q, k and v.
#include <firn/firn.h>

#include "../harness.h"
#include "../shapes.h"
#include "precision.h"

using namespace firn;

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  const DType dtype = bench::dtype_of(options.precision);
  set_num_threads(options.threads);
  manual_seed(1);
  for (const bench::AttentionShape& s : bench::kAttentionShapes) {
    const Shape shape{s.batch, s.heads, s.length, s.width};
    Tensor leaves[3];
    for (Tensor& leaf : leaves) leaf = randn(shape, dtype).set_requires_grad();
    const Tensor dy = randn(shape, dtype);
    const auto both = [&] {
      for (const Tensor& leaf : leaves) leaf.set_grad({});
      backward(attention(leaves[0], leaves[1], leaves[2], {.causal = true}),
               {.initial_gradient = dy});
    };
    bench::report_ms(options.named("attention") + "." + s.name(),
                     bench::nanoseconds(both, options.repeats()));
  }
}
