// One AdamW step of 10 million parameters, in f32 and in f16 and bf16 with f32 masters. It is
// compared with a copy of as many bytes as the step has to move.
//   bench_optimizer [--threads N]
#include <firn/firn.h>

#include "../harness.h"

using namespace firn;

namespace {

constexpr std::int64_t kParameters = 10'000'000;

/// Returns the bytes that a step reads and writes. Per parameter, it reads the gradient for its
/// norm and once more, reads and writes weight or master and two moments, and writes the 16-bit
/// copy.
double bytes_of(DType dtype) {
  const double copy = dtype == f32 ? 0 : 2;
  return static_cast<double>(kParameters) * (4 + 4 + 8 + 16 + copy);
}

void step(DType dtype) {
  Tensor w = randn({kParameters}, dtype);
  w.set_requires_grad();
  optim::AdamW opt({w}, {.lr = 1e-3});
  const Tensor x = full({kParameters}, 1e-3, dtype);
  // Only the step is timed: a gradient is made before each step, with the clock stopped.
  std::vector<double> took;
  for (int i = 0; i < 12; ++i) {
    opt.backward(sum((w * x).to(f32)));
    const double start = bench::seconds();
    opt.step();
    if (i >= 3) took.push_back((bench::seconds() - start) * 1e3);
  }
  const std::string name = std::string("adamw_10m.") + to_string(dtype);
  bench::report(name, "ms", took);

  const auto half = static_cast<std::int64_t>(bytes_of(dtype) / 2 / 4);
  const Tensor from = full({half}, 1), to = empty({half});
  std::vector<double> copies;
  for (int i = 0; i < 8; ++i) {
    const double start = bench::seconds();
    copy_(to, from);
    if (i >= 2) copies.push_back((bench::seconds() - start) * 1e3);
  }
  bench::report(name + ".copy_of_as_many_bytes", "ms", copies);
}

}  // namespace

int main(int argc, char** argv) {
  set_num_threads(bench::Options(argc, argv).threads);
  for (const DType dtype : {f32, f16, bf16}) step(dtype);
}
