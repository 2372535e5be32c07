// The transformers that firn's and the peer's programs train: their sizes and their tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench::gpt {

struct Sizes {
  const char* name;
  std::int64_t layers, width, heads, length, batch, vocabulary;
  bool tied;  ///< the head multiplies by the table of tokens, which then starts smaller
  double rate;
  /// Number of weights and biases of all layers; the head has no bias.
  std::int64_t parameters;

  std::int64_t head() const { return width / heads; }
  std::int64_t tokens() const { return batch * length; }
};
inline constexpr Sizes kGpt{"gpt", 4, 256, 4, 128, 8, 1024, false, 1e-3, 3'716'608};
/// The smallest GPT-2 (Radford et al. 2019), with positions only for these short sequences.
inline constexpr Sizes kGpt2{"gpt2", 12, 768, 12, 64, 4, 50304, true, 3e-4, 123'738'624};
inline constexpr double kTiedDeviation = 0.02;  ///< for a table of tokens that the head shares

/// Returns the sizes by the word on the command line; no word means gpt.
inline const Sizes& sizes_of(const std::string& work) {
  if (work == kGpt2.name) return kGpt2;
  if (work.empty() || work == kGpt.name) return kGpt;
  throw std::invalid_argument("no such model: " + work);
}

/// Input and target of every step, [batch, length] each, with the target one token ahead. A
/// sequence follows s[i] = 3 s[i-1] + 5 s[i-2] + 7 mod 31 from its own start and shows 33 s[i] + 1.
/// One token in eight is random instead. Two tokens determine the next one, if both show the
/// sequence.
struct Tokens {
  std::vector<std::int64_t> input, target;
  std::int64_t of_a_step;

  Tokens(const Sizes& sizes, int steps) : of_a_step(sizes.tokens()) {
    std::uint64_t state = 1;
    const auto random = [&state](std::uint64_t below) {  // Knuth's MMIX generator
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<std::int64_t>((state >> 33) % below);
    };
    const auto bound = static_cast<std::uint64_t>(sizes.vocabulary);
    for (std::int64_t sequence = 0; sequence < steps * sizes.batch; ++sequence) {
      std::int64_t last = random(31), before = random(31);
      for (std::int64_t i = 0; i <= sizes.length; ++i) {
        const std::int64_t next = (3 * last + 5 * before + 7) % 31;
        before = last;
        last = next;
        const std::int64_t token = random(8) == 0 ? random(bound) : 33 * next + 1;
        if (i < sizes.length) input.push_back(token);
        if (i > 0) target.push_back(token);
      }
    }
  }
  std::int64_t* input_of(int step) { return input.data() + step * of_a_step; }
  std::int64_t* target_of(int step) { return target.data() + step * of_a_step; }
};

/// Returns the mean of the last ten steps.
inline double mean_of_last(const std::vector<double>& losses) {
  const std::size_t n = std::min<std::size_t>(10, losses.size());
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(n), losses.end(), 0.0) /
         static_cast<double>(n);
}

}  // namespace bench::gpt
