// Separates the random streams of data from each other, and from the stream that initialises
// weights from an equal seed.
#pragma once

#include <cstdint>

namespace firn::data {

/// splitmix64's finalizer (Steele, Lea & Flood 2014).
constexpr std::uint64_t scramble(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Purpose of a stream. Numbers from `inner` on belong to sets inside other sets, and those from
/// `window` on to windows by length.
enum class Purpose : std::uint64_t {
  order = 1,
  sample = 2,
  split = 3,
  draw = 4,
  augment = 5,
  inner = 16,
  window = std::uint64_t{1} << 63,
};

constexpr std::uint64_t seed_for(std::uint64_t seed, Purpose purpose,
                                             std::uint64_t number = 0) noexcept {
  return scramble(scramble(seed) + static_cast<std::uint64_t>(purpose) + number);
}

}  // namespace firn::data
