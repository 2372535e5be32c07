// Hashes of values, on the CPU.
#include "kernels/value_hash.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/cpu/device/parallel.h"
#include "kernels/math/macros.h"
#include "kernels/math/value_hash.h"
#include "kernels/plan/walk.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kChunk = 65536;  // elements

/// Returns the hash of n contiguous elements, kPerWord to a word. `first` is the first one's
/// number.
template <int kPerWord>
std::uint64_t hash_run(const unsigned char* p, std::int64_t n, std::int64_t first) {
  constexpr std::int64_t kBytes = 8 / kPerWord;
  const std::int64_t words = n / kPerWord;
  auto number = static_cast<std::uint64_t>(first);
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < words; ++i) {
    std::uint64_t bits;
    std::memcpy(&bits, p + 8 * i, 8);
    sum += math::hash_term(bits, number + kPerWord * static_cast<std::uint64_t>(i));
  }
  const std::int64_t rest = n - words * kPerWord;
  if (rest > 0) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, p + 8 * words, static_cast<std::size_t>(rest * kBytes));
    sum += math::hash_term(bits, number + static_cast<std::uint64_t>(words * kPerWord));
  }
  return sum;
}

template <int kPerWord>
void hash_as(const ConstView& x, const View& sum) {
  constexpr std::int64_t kBytes = 8 / kPerWord;
  const Strides* const strides[] = {&x.strides};
  const Walk walk(x.shape, strides, 1);
  const auto* const base = static_cast<const unsigned char*>(x.data);
  const bool dense = walk.inner_stride(0) == 1;
  const std::int64_t n = x.numel();
  const std::atomic_ref<std::int64_t> total(*sum.as<std::int64_t>());
  parallel_for(math::ceil_div(n, kChunk), n, [&](std::int64_t chunk) {
    const std::int64_t begin = chunk * kChunk, end = std::min(n, begin + kChunk);
    std::uint64_t part = 0;
    std::int64_t first = begin;
    walk.runs(begin, end, dense ? kChunk : 1, [&](const std::int64_t* offsets, std::int64_t m) {
      part += hash_run<kPerWord>(base + offsets[0] * kBytes, m, first);
      first += m;
    });
    total.fetch_add(static_cast<std::int64_t>(part), std::memory_order_relaxed);
  });
}

}  // namespace

void value_hash(const ConstView& x, const View& sum, Stream) {
  if (x.numel() == 0) return;
  switch (size_of(x.dtype)) {
    case 1:
      return hash_as<8>(x, sum);
    case 2:
      return hash_as<4>(x, sum);
    case 4:
      return hash_as<2>(x, sum);
    default:
      return hash_as<1>(x, sum);
  }
}

void require_same_hash(const ConstView& now, const ConstView& before, const char* op, Stream) {
  if (*now.as<std::int64_t>() == *before.as<std::int64_t>()) return;
  throw Error(op, kOtherValues,
              "a function given to checkpoint() must compute the same again: do not change what "
              "it captures, and draw random numbers from firn's generators");
}

}  // namespace firn::kernels::cpu::FIRN_ISA
