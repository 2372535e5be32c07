// Operations that are bound by memory: 4096x4096 f32, with the machine's own rates.
//   bench_memory [--threads N] [--quick]
// Figures are GB/s of the least traffic: each input is read once, each output written once. So add,
// triad and all backward ops (two read, one written) count 3 times 64 MiB, sum counts one, cummax
// four (its positions are i64), and the others two. Weights, statistics and the lines that an
// ordinary store reads do not count. Each op allocates its result from memory that the previous op
// has freed. A backward figure walks a retained graph of the single op, with the initial gradient
// given. The leaf's gradient is removed before each walk, so that it is written and not added to.
// Layer norm's gradients are those of x, weight and bias.
#include <firn/firn.h>

#include "../harness.h"
#include "ceilings.h"

using namespace firn;

namespace {

constexpr std::int64_t kSide = 4096, kCount = kSide * kSide;
constexpr double kBytes = 4.0 * kCount;

void ceilings(const bench::Options& options) {
  // These are tensors, so that their pages are like those of the ops.
  const Tensor a = zeros({kSide, kSide}), b = ones({kSide, kSide}), c = ones({kSide, kSide});
  bench::Team team(options.threads);
  const auto rate = [&](const char* what, double bytes, const auto& work) {
    const std::function<void(int)> on_thread = work;
    bench::report_rate(what, "GB/s", bytes,
                       bench::nanoseconds([&] { team.run(on_thread); }, options.repeats()));
  };
  const auto share = [&](int t) {
    return bench::Share(kCount / bench::kVectorFloats, t, team.size());
  };
  float *const to = a.data<float>(), *const x = b.data<float>(), *const y = c.data<float>();
  rate("memory.copy", 2 * kBytes, [&](int t) { bench::copy_vectors(to, x, share(t)); });
  rate("memory.triad", 3 * kBytes,
       [&](int t) { bench::triad_vectors<false>(to, x, y, 0.5f, share(t)); });
  if (bench::kCanStream)
    rate("memory.triad_nt", 3 * kBytes,
         [&](int t) { bench::triad_vectors<true>(to, x, y, 0.5f, share(t)); });
  // Each thread copies 128 KiB to 128 KiB within the second-level cache.
  constexpr std::int64_t kNear = (128 << 10) / 4, kTimes = 200;
  rate("memory.copy_in_cache", 2.0 * 4 * kNear * kTimes * team.size(), [&](int t) {
    const bench::Share all(kNear / bench::kVectorFloats, 0, 1);
    for (std::int64_t i = 0; i < kTimes; ++i)
      bench::copy_vectors(to + t * kNear, x + t * kNear, all);
  });
}

struct Ops {
  const bench::Options& options;
  Tensor x = randn({kSide, kSide}), y = randn({kSide, kSide});
  Tensor weight = rand({kSide}), bias = randn({kSide});

  template <class Fn>
  void time(const char* what, double passes, Fn&& fn) const {
    bench::report_rate(what, "GB/s", passes * kBytes,
                       bench::nanoseconds([&] { fn(); }, options.repeats()));
  }

  void forward() const {
    const NoGrad guard;
    time("memory.add", 3, [&] { return add(x, y); });
    time("memory.relu", 2, [&] { return relu(x); });
    time("memory.exp", 2, [&] { return exp(x); });
    time("memory.gelu", 2, [&] { return gelu(x); });
    time("memory.gelu_tanh", 2, [&] { return gelu_tanh(x); });
    time("memory.softmax", 2, [&] { return softmax(x); });
    time("memory.layer_norm", 2, [&] { return layer_norm(x, weight, bias); });
    time("memory.sum", 1, [&] { return sum(x); });
    time("memory.cumsum", 2, [&] { return cumsum(x, 1); });
    time("memory.cumsum_columns", 2, [&] { return cumsum(x, 0); });
    time("memory.cummax", 4, [&] { return cummax(x, 1); });
    time("memory.transpose", 2, [&] { return contiguous(transpose(x, 0, 1)); });
  }

  template <class Fn>
  void backward_of(const char* what, std::vector<Tensor> leaves, Fn&& op) const {
    for (Tensor& leaf : leaves) leaf.set_requires_grad();
    const Tensor result = op();
    time(what, 3, [&] {
      for (const Tensor& leaf : leaves) leaf.set_grad({});
      firn::backward(result, {.initial_gradient = y, .retain_graph = true});
    });
    for (Tensor& leaf : leaves) leaf.set_grad({});
  }

  void backward() const {
    backward_of("memory.gelu_backward", {x}, [&] { return gelu(x); });
    backward_of("memory.softmax_backward", {x}, [&] { return softmax(x); });
    backward_of("memory.layer_norm_backward", {x, weight, bias},
                [&] { return layer_norm(x, weight, bias); });
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  set_num_threads(options.threads);
  manual_seed(1);
  ceilings(options);
  const Ops ops{options};
  ops.forward();
  ops.backward();
}
