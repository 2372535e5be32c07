// One AdamW step of 10 million f32 parameters with LibTorch.
//   bench_torch_optimizer [--threads N]
#include "setup.h"

int main(int argc, char** argv) {
  bench::set_up(bench::Options(argc, argv));
  auto w = torch::randn({10'000'000});
  w.requires_grad_();
  torch::optim::AdamW opt({w}, torch::optim::AdamWOptions(1e-3));
  std::vector<double> took;
  for (int i = 0; i < 12; ++i) {
    w.mutable_grad() = torch::full_like(w, 1e-3);
    const double start = bench::seconds();
    opt.step();
    if (i >= 3) took.push_back((bench::seconds() - start) * 1e3);
  }
  bench::report("adamw_10m.f32", "ms", took);
}
