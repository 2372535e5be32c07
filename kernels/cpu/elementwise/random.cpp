// Random numbers and dropout on the CPU. Work is cut into pieces of kRow elements; a piece's words
// depend on its position alone, so any thread may compute it.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/philox_words.h"
#include "kernels/cpu/device/tile_functions.h"
#include "kernels/plan/uniform_range.h"
#include "kernels/random.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

static_assert(kRow % kPhiloxGroupWords == 0);

// ---- Normal numbers in f32 ----
//
// Logarithm, sine and cosine are those of Arm's Optimized Routines (Copyright (c) 2017-2019, Arm
// Limited; MIT License), which the GNU C library has too. So numbers have the bits that
// math::box_muller has with that library. Roundings in f64 change no result for any word: the bits
// depend neither on the instruction set nor on contractions of a*b + c.

using tiles::detail::bits, tiles::detail::from_bits, tiles::detail::kPi, tiles::detail::kRound;
using Words = TileD::Bits;
/// f32 numbers, as many as a tile has of f64.
typedef float Floats __attribute__((vector_size(tiles::kTileBytes / 2)));

Floats floats(TileD x) { return __builtin_convertvector(x.v, Floats); }
TileD doubles(Floats x) { return TileD(__builtin_convertvector(x, TileD::Vec)); }

/// Returns table[i] in each lane.
TileD entries(const double (&table)[16], Words i) {
#if defined(__AVX512F__)
  return TileD(_mm512_permutex2var_pd(_mm512_load_pd(table), std::bit_cast<__m512i>(i),
                                      _mm512_load_pd(table + 8)));
#else
  TileD y;
  for (int lane = 0; lane < TileD::size; ++lane) y.v[lane] = table[i[lane]];
  return y;
#endif
}

/// log u for u in (0, 1]. With u = 2^k z and the entries 1/c and log c for the sixteenth of
/// [0.699, 1.398) that has z, it is k ln 2 + log c + log(z/c).
TileD logarithm(TileD u) {
  // clang-format off
  alignas(64) static constexpr double kInverse[16] = {
      0x1.661ec79f8f3bep+0, 0x1.571ed4aaf883dp+0, 0x1.49539f0f010bp+0, 0x1.3c995b0b80385p+0,
      0x1.30d190c8864a5p+0, 0x1.25e227b0b8eap+0, 0x1.1bb4a4a1a343fp+0, 0x1.12358f08ae5bap+0,
      0x1.0953f419900a7p+0, 0x1p+0, 0x1.e608cfd9a47acp-1, 0x1.ca4b31f026aap-1,
      0x1.b2036576afce6p-1, 0x1.9c2d163a1aa2dp-1, 0x1.886e6037841edp-1, 0x1.767dcf5534862p-1};
  alignas(64) static constexpr double kLog[16] = {
      -0x1.57bf7808caadep-2, -0x1.2bef0a7c06ddbp-2, -0x1.01eae7f513a67p-2, -0x1.b31d8a68224e9p-3,
      -0x1.6574f0ac07758p-3, -0x1.1aa2bc79c81p-3, -0x1.a4e76ce8c0e5ep-4, -0x1.1973c5a611cccp-4,
      -0x1.252f438e10c1ep-5, 0, 0x1.aa5aa5df25984p-5, 0x1.c5e53aa362eb4p-4,
      0x1.526e57720db08p-3, 0x1.bc2860d22477p-3, 0x1.1058bc8a07ee1p-2, 0x1.4043057b6ee09p-2};
  // clang-format on
  const Words from = bits(u) - bits(TileD(0.69921875)), k = from >> 52, i = (from >> 48) & 15;
  const TileD n = from_bits<double>(bits(TileD(kRound)) + k) - TileD(kRound);
  const TileD r = from_bits<double>(bits(u) - (k << 52)) * entries(kInverse, i) - TileD(1);
  const TileD start = entries(kLog, i) + n * TileD(tiles::detail::kLn2), r2 = r * r;
  const TileD y = TileD(0x1.5575b0be00b6ap-2) * r - TileD(0x1.ffffef20a4123p-2);
  return (TileD(-0x1.00ea348b88334p-2) * r2 + y) * r2 + (start + r);
}

/// Writes 2 TileD::size numbers, from pairs of words as math::box_muller<float> does.
void box_muller(const std::uint32_t* words, float* to) {
  // A lane of 64 bits has a pair, the first in its lower half. Whole numbers in the lower bits of
  // 2^52 are converted by a subtraction.
  Words pair;
  std::memcpy(&pair, words, sizeof pair);
  const TileD whole(0x1p52);
  const TileD first = from_bits<double>((pair & 0xffffffff) | bits(whole)) - whole;
  const TileD second = from_bits<double>((pair >> 40 & 0xffffff) | bits(whole)) - whole;
  const Floats u = (floats(first) + 1.0f) * 0x1p-32f;
  Floats radius = -2.0f * floats(logarithm(doubles(u)));
  for (int i = 0; i < TileD::size; ++i) radius[i] = std::sqrt(radius[i]);
  const TileD angle = doubles(6.283185307179586f * (floats(second) * 0x1p-24f));
  const TileD shifted = angle * TileD(2 / kPi) + TileD(kRound);  // in quarter turns
  const TileD r = angle - (shifted - TileD(kRound)) * TileD(kPi / 2);
  const TileD r2 = r * r, r3 = r * r2, r4 = r2 * r2;
  const TileD s = (r + r3 * TileD(-0x1.555545995a603p-3)) +
                  r3 * r2 * (TileD(0x1.1107605230bc4p-7) + r2 * TileD(-0x1.994eb3774cf24p-13));
  const TileD c = (TileD(1) + r2 * TileD(-0x1.ffffffd0c621cp-2)) +
                  r4 * TileD(0x1.55553e1068f19p-5) +
                  r4 * r2 * (TileD(-0x1.6c087e89a359dp-10) + r2 * TileD(0x1.99343027bf8c3p-16));
  const tiles::Mask<double> odd{(bits(shifted) & 1) != 0};
  // A number's bits with the sign for its quarter, in the lower half of a lane.
  const auto number = [&](TileD y, Words quarter) {
    const TileD x = from_bits<double>(bits(y) ^ ((quarter & 2) << 62));
    typedef std::uint32_t Bits __attribute__((vector_size(sizeof(Floats))));
    return __builtin_convertvector(std::bit_cast<Bits>(radius * floats(x)), Words);
  };
  pair = number(where(odd, s, c), bits(shifted) + 1) | number(where(odd, c, s), bits(shifted))
                                                           << 32;
  std::memcpy(to, &pair, sizeof pair);
}

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
    alignas(64) C y[kRow];  // with room for the numbers of the last pairs
    if constexpr (std::is_same_v<C, float>) {
      for (std::int64_t i = 0; i < n; i += 2 * TileD::size) box_muller(words + i, y + i);
    } else {
      for (std::int64_t i = 0; i < n; i += 2)
        math::box_muller(words[i], words[i + 1], y[i], y[i + 1]);
    }
    for (std::int64_t i = 0; i < n; ++i) y[i] = std::fma(y[i], s, m);
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
  visit(dst.dtype, [&]<class T>() {
    using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
    if constexpr (is_floating(dtype_of<T>)) uniform_in<T, C>(dst, low, high, key);
  });
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
