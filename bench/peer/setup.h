// LibTorch's side: what is set inside of the process for its best, and a figure that takes the
// quicker of two ways of doing the same.
#pragma once

#include <immintrin.h>
#include <torch/torch.h>

#include "../harness.h"

namespace bench {

inline void set_up(const Options& options) {
  torch::set_num_threads(options.threads);
  torch::manual_seed(1);
  at::globalContext().setFlushDenormal(true);
#pragma omp parallel
  _mm_setcsr(_mm_getcsr() | 0x8040);  // subnormals are flushed in every thread
}

/// One of two ways, by name.
template <class Fn>
struct Way {
  const char* name;
  Fn call;
};
template <class Fn>
Way(const char*, Fn) -> Way<Fn>;

/// Calls before the clock starts: glibc's posix_memalign, which LibTorch allocates with, cuts new
/// memory for about the first nine requests of a size before it finds what it has freed.
inline constexpr int kWarmUp = 12;

/// Reports the way whose median is better, and names it on the standard error output.
template <class A, class B>
void report_better(const std::string& what, const char* unit, double amount, const Options& options,
                   Way<A> a, Way<B> b) {
  for (int i = 0; i < kWarmUp; ++i) {
    a.call();
    b.call();
  }
  const auto first = nanoseconds([&] { a.call(); }, options.repeats());
  const auto second = nanoseconds([&] { b.call(); }, options.repeats());
  const bool is_first = median(first) <= median(second);
  std::fprintf(stderr, "%s: %s (%.4g beside %.4g %s)\n", what.c_str(), is_first ? a.name : b.name,
               amount / median(is_first ? first : second),
               amount / median(is_first ? second : first), unit);
  report_rate(what, unit, amount, is_first ? first : second);
}

}  // namespace bench
