// Random numbers and dropout on the CPU. Work is cut into pieces of kRow elements; a piece's words
// depend on its position alone, so any thread may compute it.
#include <cmath>
#include <cstdint>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/philox_words.h"
#include "kernels/plan/uniform_range.h"
#include "kernels/random.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

static_assert(kRow % kPhiloxGroupWords == 0);

/// Calls fn(first, n, words) for every piece of n elements from `first` on. Their words are filled
/// to whole groups.
template <class Fn>
void for_pieces(std::int64_t numel, RandomKey key, Fn&& fn) {
  parallel_for(math::ceil_div(numel, kRow), numel * 8, [&](std::int64_t piece) {
    alignas(64) std::uint32_t words[kRow];
    const std::int64_t first = piece * kRow;
    const std::int64_t n = numel - first < kRow ? numel - first : kRow;
    for (std::int64_t i = 0; i < n; i += kPhiloxGroupWords) {
      const std::uint64_t from = key.offset + static_cast<std::uint64_t>((first + i) / 4);
      philox_group([from](int block) { return from + static_cast<std::uint64_t>(block); }, key.seed,
                   words + i);
    }
    fn(first, n, words);
  });
}

template <class T, class C>
void uniform_in(const View& dst, double low, double high, RandomKey key) {
  const UniformRange<T> range(low, high);
  const C least = static_cast<C>(range.least), most = static_cast<C>(range.most);
  const C from = static_cast<C>(low), width = static_cast<C>(high - low);
  for_pieces(dst.numel(), key, [&](std::int64_t first, std::int64_t n, const std::uint32_t* words) {
    alignas(64) C buffer[kRow];
    void* out = advance(dst.data, dst.dtype, first);
    C* y = row_target(out, dst.dtype, 1, buffer);
    for (std::int64_t i = 0; i < n; ++i)
      y[i] = math::scaled_uniform(words[i], from, width, least, most);
    store_row(y, out, dst.dtype, 1, n);
  });
}

template <class C>
void normal_in(const View& dst, double mean, double stddev, RandomKey key) {
  const C m = static_cast<C>(mean), s = static_cast<C>(stddev);
  for_pieces(dst.numel(), key, [&](std::int64_t first, std::int64_t n, const std::uint32_t* words) {
    alignas(64) C y[kRow];
    for (std::int64_t i = 0; i < n; i += 2) {  // kRow is even: y has room for the pair's second
      math::box_muller(words[i], words[i + 1], y[i], y[i + 1]);
      y[i] = std::fma(y[i], s, m);
      y[i + 1] = std::fma(y[i + 1], s, m);
    }
    store_row(y, advance(dst.data, dst.dtype, first), dst.dtype, 1, n);
  });
}

template <class C>
void dropout_in(const ConstView& x, const View& y, double p, RandomKey key, float beta) {
  const std::uint32_t threshold = math::dropout_threshold(p);
  const C scale = static_cast<C>(1 / (1 - p));
  for_pieces(x.numel(), key, [&](std::int64_t first, std::int64_t n, const std::uint32_t* words) {
    alignas(64) C in_buffer[kRow], out_buffer[kRow], old_buffer[kRow];
    void* dst = advance(y.data, y.dtype, first);
    const C* in = load_row(advance(x.data, x.dtype, first), x.dtype, 1, n, in_buffer);
    C* out = row_target(dst, y.dtype, 1, out_buffer);
    // The product is computed for every element: a branch would be mispredicted half of the time.
    const auto masked = [&](std::int64_t i) {
      const C scaled = in[i] * scale;
      return words[i] >= threshold ? scaled : C(0);
    };
    if (beta == 0) {
      for (std::int64_t i = 0; i < n; ++i) out[i] = masked(i);
    } else {
      const C* old = load_row(dst, y.dtype, 1, n, old_buffer);
      for (std::int64_t i = 0; i < n; ++i) out[i] = old[i] + masked(i);
    }
    store_row(out, dst, y.dtype, 1, n);
  });
}

}  // namespace

void uniform(const View& dst, double low, double high, RandomKey key, Stream) {
  switch (dst.dtype) {
    case DType::f16:
      return uniform_in<half, float>(dst, low, high, key);
    case DType::bf16:
      return uniform_in<bfloat16, float>(dst, low, high, key);
    case DType::f64:
      return uniform_in<double, double>(dst, low, high, key);
    default:
      return uniform_in<float, float>(dst, low, high, key);
  }
}

void normal(const View& dst, double mean, double stddev, RandomKey key, Stream) {
  dst.dtype == DType::f64 ? normal_in<double>(dst, mean, stddev, key)
                          : normal_in<float>(dst, mean, stddev, key);
}

void dropout(const ConstView& x, const View& y, double p, RandomKey key, float beta, Stream) {
  x.dtype == DType::f64 ? dropout_in<double>(x, y, p, key, beta)
                        : dropout_in<float>(x, y, p, key, beta);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
