#include "firn/data/permutation.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "data/scramble.h"
#include "kernels/math/philox.h"

namespace firn::data {
namespace {

constexpr std::uint64_t kMultiplier = 0xD2B74407B1CE6E93u;  // from Philox-2x64 (Salmon et al. 2011)
/// With halves of fewer than three bits a round would have too few different functions.
constexpr int kLeastBits = 6;

/// Hashes the left half. The key is applied before the product, so that all of its bits count. A
/// key added to the result would have only as many bits as the half.
/// key added to the result would have only as many bits as the half.
std::uint64_t hashed(std::uint64_t left, std::uint32_t key) noexcept {
  const std::uint64_t product = kMultiplier * (left ^ key);
  return (product ^ product >> 32) >> 16;
}

}  // namespace

Permutation::Permutation(std::int64_t n, std::uint64_t seed, std::int64_t epoch) : n_(n) {
  FIRN_CHECK(n >= 0 && n <= kLargest, "Permutation", "it permutes 0 to n - 1",
             "n must be in [0, 2^62], not {}", n);
  FIRN_CHECK(epoch >= 0, "Permutation", "epochs count from 0", "epoch {}", epoch);
  const int bits = std::max(kLeastBits, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(
                                            std::max<std::int64_t>(n, 1) - 1))));
  left_bits_ = bits / 2;
  right_bits_ = bits - left_bits_;
  const std::uint64_t key = seed_for(seed, Purpose::order);
  const auto high = static_cast<std::uint64_t>(epoch);
  for (int r = 0; r < kRounds; r += 4) {
    const math::PhiloxBlock block = math::philox(static_cast<std::uint64_t>(r), key, high);
    for (int i = 0; i < 4; ++i) keys_[static_cast<std::size_t>(r + i)] = block.word[i];
  }
  const math::PhiloxBlock last = math::philox(kRounds, key, high);
  rotation_ = static_cast<std::int64_t>(math::bounded(
      std::uint64_t{last.word[1]} << 32 | last.word[0], static_cast<std::uint64_t>(n)));
}

std::int64_t Permutation::operator[](std::int64_t i) const noexcept {
  const std::uint64_t left_mask = (std::uint64_t{1} << left_bits_) - 1;
  const std::uint64_t right_mask = (std::uint64_t{1} << right_bits_) - 1;
  const int wider = right_bits_ - left_bits_;
  auto x = static_cast<std::uint64_t>(i);
  do {
    std::uint64_t left = x >> right_bits_, right = x & right_mask;
    for (const std::uint32_t key : keys_) {
      // If `right` has one bit more, that bit becomes a low bit of the new right half.
      const std::uint64_t low = (left << wider | right >> left_bits_) & right_mask;
      left = (hashed(left, key) ^ right) & left_mask;
      right = low;
    }
    x = left << right_bits_ | right;
  } while (x >= static_cast<std::uint64_t>(n_));
  const auto at = static_cast<std::int64_t>(x);
  return at >= n_ - rotation_ ? at - (n_ - rotation_) : at + rotation_;
}

std::int64_t Permutation::at(std::int64_t i) const {
  FIRN_CHECK(i >= 0 && i < n_, "Permutation", "positions count from 0",
             "position {} of a permutation of {}", i, n_);
  return (*this)[i];
}

}  // namespace firn::data
