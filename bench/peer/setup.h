// LibTorch's side: the settings inside the process for its best results, and a figure that takes
// the faster of two ways. The programs compile against Debian's 1.13 and against the libraries
// inside PyPI's wheel.
#pragma once

#include <ATen/autocast_mode.h>
#include <immintrin.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "../harness.h"

#define FIRN_TORCH_2 (TORCH_VERSION_MAJOR >= 2)

namespace bench {

inline void set_up(const Options& options) {
  torch::set_num_threads(options.threads);
  torch::manual_seed(1);
  at::globalContext().setFlushDenormal(true);
#pragma omp parallel
  _mm_setcsr(_mm_getcsr() | 0x8040);  // subnormals are flushed in every thread
}

/// Returns the dtype of operands by the name in --precision.
inline torch::ScalarType dtype_of(const std::string& precision) {
  if (precision == "f32") return torch::kFloat32;
  if (precision == "bf16") return torch::kBFloat16;
  if (precision == "f16") return torch::kFloat16;
  throw std::invalid_argument("no such precision: " + precision);
}

/// Sets autocast while it exists, unless the precision is f32; casts of weights are kept until it
/// ends.
class Autocast {
 public:
  explicit Autocast(const std::string& precision) : on_(precision != "f32") {
    if (!on_) return;
#if FIRN_TORCH_2
    at::autocast::set_autocast_dtype(at::kCPU, dtype_of(precision));
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
#else
    throw std::invalid_argument("this LibTorch is too old for --precision " + precision);
#endif
  }
  ~Autocast() {
#if FIRN_TORCH_2
    if (!on_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
#endif
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
};

/// Computes causal attention over [..., head, position, d], as one operation if the version has it.
/// `mask` is minus infinity above the diagonal, else 0; the single operation does not need it.
inline torch::Tensor attend(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                            [[maybe_unused]] const torch::Tensor& mask) {
#if FIRN_TORCH_2
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
#else
  const auto flat = [](const torch::Tensor& x) { return x.flatten(0, 1); };
  // The product includes scale and mask.
  const auto scores = torch::baddbmm(mask, flat(q), flat(k).transpose(1, 2), 1,
                                     1 / std::sqrt(static_cast<double>(q.size(-1))));
  return torch::bmm(torch::softmax(scores, -1), flat(v)).view(v.sizes());
#endif
}
inline torch::Tensor causal_mask(std::int64_t length, torch::ScalarType dtype = torch::kFloat32) {
  return torch::full({length, length}, -std::numeric_limits<float>::infinity(), dtype).triu(1);
}

/// One of two ways to compute something, with its name.
template <class Fn>
struct Way {
  const char* name;
  Fn call;
};
template <class Fn>
Way(const char*, Fn) -> Way<Fn>;

/// Number of calls before the clock starts. LibTorch allocates with glibc's posix_memalign, which
/// cuts new memory for about the first nine requests of a size before it reuses freed memory.
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
