// ../cpu/attention.cpp with LibTorch.
//   bench_torch_attention [--threads N] [--precision f32|bf16|f16] [--quick]
#include "../shapes.h"
#include "setup.h"

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  const auto dtype = bench::dtype_of(options.precision);
  bench::set_up(options);
  for (const bench::AttentionShape& s : bench::kAttentionShapes) {
    torch::Tensor leaves[3];
    for (auto& leaf : leaves)
      leaf = torch::randn({s.batch, s.heads, s.length, s.width}, dtype).requires_grad_();
    const auto dy = torch::randn_like(leaves[0]).detach();
    const auto mask = bench::causal_mask(s.length, dtype);
    const auto both = [&] {
      for (auto& leaf : leaves) leaf.mutable_grad() = torch::Tensor();
      bench::attend(leaves[0], leaves[1], leaves[2], mask).backward(dy);
    };
    bench::report_ms("attention." + s.name(), bench::nanoseconds(both, options.repeats()));
  }
}
