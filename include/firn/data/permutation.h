// A random order of any number of samples, computed where it is asked for.
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
/// A Feistel network with the rounds of Philox on the smallest 2^k >= n numbers (VariablePhilox:
/// Mitchell, Stokes, Frank & Holmes, "Bandwidth-Optimal Random Shuffling for GPUs", 2022). A result
/// outside of [0, n) goes through it again (cycle walking: Black & Rogaway 2002), fewer than twice
/// on average. A random rotation then makes every sample equally likely at every position. The
/// paper has 24 rounds; with 12, every order of a few samples is as likely as any other (tested).
class Permutation {
 public:
  static constexpr std::int64_t kLargest = std::int64_t{1} << 62;  ///< of n

  /// Throws Error unless 0 <= n <= kLargest and epoch >= 0.
  Permutation(std::int64_t n, std::uint64_t seed, std::int64_t epoch = 0);

  std::int64_t size() const noexcept { return n_; }
  /// The sample at position i. `i` must be in [0, size()): it is not checked.
  std::int64_t operator[](std::int64_t i) const noexcept;
  /// The same; throws Error if there is no position i.
  std::int64_t at(std::int64_t i) const;

 private:
  static constexpr int kRounds = 12;

  std::int64_t n_;
  std::int64_t rotation_ = 0;  // in [0, n)
  int left_bits_ = 0;          // of the network's two halves: floor and ceiling of k/2
  int right_bits_ = 0;
  std::array<std::uint32_t, kRounds> keys_{};
};

}  // namespace firn::data
