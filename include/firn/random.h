// Random numbers: counter-based Philox4x32-10 (Salmon et al., SC'11), the same bits on every
// device.
#pragma once

#include <cstdint>

namespace firn {

/// A place in a random stream. Element i of a tensor drawn at (seed, offset) uses word (i mod 4) of
/// the Philox block with counter offset + i/4 and key seed: which thread or device computes it does
/// not matter.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  ///< in Philox blocks of four 32-bit words
  /// In a captured graph: {seed, offset} in the device's memory, written before every replay. That
  /// seed counts instead of `seed`, and that offset is added to `offset`. Null: none.
  const std::uint64_t* base = nullptr;
};

/// A random stream: a seed and the next unused offset. Not thread safe; give each thread its own.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0) noexcept : key_{seed, 0, nullptr} {}

  /// Takes enough of the stream for `numbers` 32-bit words and returns where they start.
  RandomKey reserve(std::uint64_t numbers) noexcept {
    const RandomKey k = key_;
    key_.offset += (numbers + 3) / 4;
    return k;
  }
  /// Where the next reserve() will start; set() puts a stream back there, to the bit.
  RandomKey get() const noexcept { return key_; }
  void set(RandomKey key) noexcept { key_ = key; }

 private:
  RandomKey key_;
};

/// The stream that ops use where none is given.
Generator& default_generator() noexcept;

/// Restarts the default stream at `seed`. The same seed gives the same training run.
void manual_seed(std::uint64_t seed) noexcept;

}  // namespace firn
