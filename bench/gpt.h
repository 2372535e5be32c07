// The small transformer that both sides train: its sizes, its command line and its tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

namespace bench::gpt {

constexpr std::int64_t kLayers = 4, kWidth = 256, kHeads = 4, kHead = kWidth / kHeads;
constexpr std::int64_t kLength = 128, kBatch = 8, kVocabulary = 1024;
/// Weights and biases of all layers; the head has no bias.
constexpr std::int64_t kParameters = 3'716'608;
constexpr double kRate = 1e-3;

/// [--threads N] [--epochs N] [--steps N]: an epoch is that many steps.
struct Options {
  int threads = 2, epochs = 3, steps = 40;

  Options(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string option = argv[i];
      if (option == "--threads") threads = std::atoi(argv[i + 1]);
      if (option == "--epochs") epochs = std::atoi(argv[i + 1]);
      if (option == "--steps") steps = std::atoi(argv[i + 1]);
    }
  }
  int all_steps() const { return epochs * steps; }
};

/// Input and target of every step, [kBatch, kLength] each, the target one token ahead. A sequence
/// follows s[i] = 3 s[i-1] + 5 s[i-2] + 7 mod 31 from a start of its own and shows 33 s[i] + 1,
/// but for one token in eight, which is any: two tokens before tell the next, if both were shown.
struct Tokens {
  std::vector<std::int64_t> input, target;

  explicit Tokens(int steps) {
    std::uint64_t state = 1;
    const auto random = [&state](std::uint64_t below) {  // Knuth's MMIX generator
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<std::int64_t>((state >> 33) % below);
    };
    for (std::int64_t sequence = 0; sequence < steps * kBatch; ++sequence) {
      std::int64_t last = random(31), before = random(31);
      for (std::int64_t i = 0; i <= kLength; ++i) {
        const std::int64_t next = (3 * last + 5 * before + 7) % 31;
        before = last;
        last = next;
        const std::int64_t token = random(8) == 0 ? random(kVocabulary) : 33 * next + 1;
        if (i < kLength) input.push_back(token);
        if (i > 0) target.push_back(token);
      }
    }
  }
  /// The tokens of one step, whose numbers are kBatch * kLength.
  std::int64_t* input_of(int step) { return input.data() + step * kBatch * kLength; }
  std::int64_t* target_of(int step) { return target.data() + step * kBatch * kLength; }
};

/// Of the last ten steps.
inline double mean_of_last(const std::vector<double>& losses) {
  const std::size_t n = std::min<std::size_t>(10, losses.size());
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(n), losses.end(), 0.0) /
         static_cast<double>(n);
}

}  // namespace bench::gpt
