// The last layer of a language model and its loss, forward and backward. Compares
// linear_cross_entropy with cross_entropy of linear, on 4096 rows of 768 numbers and 50,304
// classes.
//   bench_vocabulary [--threads N] [--precision P] [--quick]
// The two alternate, since the logits of the composed form are large. `ratio` is that of each pair;
// `extra` is the largest memory besides operands and gradients. The weight's gradient goes to the
// f32 arena of an optimizer. --quick: 1024 rows and 12,576 classes.
#include <firn/firn.h>

#include "../harness.h"
#include "precision.h"

using namespace firn;

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  const bench::Precision precision(options.precision);
  set_num_threads(options.threads);
  manual_seed(1);
  const std::int64_t rows = options.quick ? 1024 : 4096, width = 768,
                     classes = options.quick ? 12576 : 50304;
  const Tensor x = randn({rows, width}, precision.model).set_requires_grad();
  const Tensor w = (0.02 * randn({classes, width})).to(precision.model).set_requires_grad();
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < rows; ++i) numbers.push_back(i * 7919 % classes);
  const Tensor target = tensor(numbers, {rows});
  optim::SGD opt({w}, {.lr = 0}, precision.step());
  x.set_grad(zeros(x.shape(), x.dtype()));  // it exists in both forms

  constexpr const char* kForms[] = {"composed", "fused"};
  std::vector<double> times[2], ratios;
  double extra[2] = {};
  for (int turn = 0; turn < (options.quick ? 3 : 5) + 1; ++turn) {  // the first one warms up
    double taken[2];
    for (const int fused : {0, 1}) {
      reset_peak_memory();
      const std::size_t before = memory_stats().total.current;
      const double start = bench::seconds();
      opt.backward(precision.run([&] {
        return fused ? linear_cross_entropy(x, w, target) : cross_entropy(linear(x, w), target);
      }));
      taken[fused] = bench::seconds() - start;
      extra[fused] = static_cast<double>(memory_stats().total.peak - before) / (1 << 20);
      opt.zero_grad();
      if (turn > 0) times[fused].push_back(1e3 * taken[fused]);
    }
    if (turn > 0) ratios.push_back(taken[1] / taken[0]);
  }
  const std::string name = options.named("vocabulary") + ".";
  for (const int fused : {0, 1}) {
    bench::report(name + kForms[fused], "ms", times[fused]);
    bench::report(name + kForms[fused] + ".extra", "MiB", {extra[fused]});
  }
  bench::report(name + "ratio", "x", ratios);
}
