// A random order of any number of samples, computed element by element on demand.
#pragma once

#include <array>
#include <cstdint>

namespace firn::data {

/// A random permutation of [0, n) that depends on (n, seed, epoch) alone. It takes the same small
/// memory for every n, and any element is computed without the others:
///
///   const Permutation order(1'000'000'000, 1, 0);
///   order[123];  // the sample at position 123
///
/// It is a Feistel network on the smallest 2^k >= n numbers, at least 2^6. A round hashes one half
/// with its own key, and adds the result to the other half. A result outside [0, n) goes through
/// the network again (cycle walking: Black & Rogaway 2002), fewer than twice on average. A random
/// rotation then makes every sample equally likely at every position. Mitchell, Stokes, Frank &
/// Holmes shuffle by such a network in "Bandwidth-Optimal Random Shuffling for GPUs" (2022). Halves
/// of 3 and 4 bits mix most slowly. From 12 rounds on, counts of neighbouring pairs and triples
/// match those of uniform orders; the network has 16 rounds.
class Permutation {
 public:
  static constexpr std::int64_t kLargest = std::int64_t{1} << 62;  ///< largest n

  /// Throws Error unless 0 <= n <= kLargest and epoch >= 0.
  Permutation(std::int64_t n, std::uint64_t seed, std::int64_t epoch = 0);

  std::int64_t size() const noexcept { return n_; }
  /// Returns the sample at position i, which must be in [0, size()) and is not checked.
  std::int64_t operator[](std::int64_t i) const noexcept;
  /// Returns the sample at position i. Throws Error unless `i` is in [0, size()).
  std::int64_t at(std::int64_t i) const;

 private:
  static constexpr int kRounds = 16;

  std::int64_t n_;
  std::int64_t rotation_ = 0;  // in [0, n)
  int left_bits_ = 0;          // the network's halves have floor(k/2) and ceil(k/2) bits
  int right_bits_ = 0;
  std::array<std::uint32_t, kRounds> keys_{};
};

}  // namespace firn::data
