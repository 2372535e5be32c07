// Compares steps with 8-bit states and steps with f32 states on equal gradients. They alternate, so
// that a slow minute of the machine affects both. The ratio is that of neighbouring steps.
//   bench_optim8 [--threads N] [--quick]
#include <firn/firn.h>

#include "../harness.h"

using namespace firn;

namespace {

template <class Opt>
double step_ms(Opt& opt, const Tensor& w, const Tensor& x) {
  opt.backward(sum(w * x));  // outside of the clock
  const double start = bench::seconds();
  opt.step();
  return (bench::seconds() - start) * 1e3;
}

template <class Opt>
void compare(const std::string& name, std::int64_t parameters, int repeats) {
  Tensor full = randn({parameters}), small = full.clone();
  full.set_requires_grad();
  small.set_requires_grad();
  Opt f32_states({full}, {.lr = 1e-3});
  Opt byte_states({small}, {.lr = 1e-3, .state = optim::StatePrecision::bits8});
  std::vector<double> wide, narrow, ratio;
  for (int i = -3; i < repeats; ++i) {
    const Tensor x = 1e-3 * randn({parameters});
    const double a = step_ms(f32_states, full, x), b = step_ms(byte_states, small, x);
    if (i < 0) continue;
    wide.push_back(a);
    narrow.push_back(b);
    ratio.push_back(b / a);
  }
  bench::report("optim8." + name + ".f32", "ms", wide);
  bench::report("optim8." + name + ".bits8", "ms", narrow);
  bench::report("optim8." + name + ".bits8_over_f32", "times", ratio);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  set_num_threads(options.threads);
  manual_seed(1);
  compare<optim::AdamW>("adamw_1mi", 1 << 20, options.quick ? 5 : 60);
  compare<optim::AdamW>("adamw_16mi", 1 << 24, options.quick ? 2 : 15);
  compare<optim::Lion>("lion_1mi", 1 << 20, options.quick ? 5 : 60);
  compare<optim::Lion>("lion_16mi", 1 << 24, options.quick ? 2 : 15);
}
