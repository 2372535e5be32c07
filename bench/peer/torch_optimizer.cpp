// One AdamW step of 10 million f32 parameters with LibTorch.
//   bench_torch_optimizer [--threads N]
#include <torch/torch.h>

#include <cstring>

#include "../harness.h"

int main(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2)
    if (!std::strcmp(argv[i], "--threads")) torch::set_num_threads(std::atoi(argv[i + 1]));
  at::globalContext().setFlushDenormal(true);
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
