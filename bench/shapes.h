// Shapes of the single operations that firn's programs and the peer's time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

struct AttentionShape {
  std::int64_t batch, heads, length, width;

  std::string name() const {
    return "b" + std::to_string(batch) + "_h" + std::to_string(heads) + "_s" +
           std::to_string(length) + "_d" + std::to_string(width);
  }
};
inline constexpr AttentionShape kAttentionShapes[] = {
    {8, 12, 1024, 64}, {1, 1, 4096, 64}, {8, 4, 128, 64}};

/// [m, k] times [k, n]; `form` says which factor is stored transposed: nn, nt or tn.
struct Product {
  std::int64_t m, n, k;
  const char* form;

  bool a_transposed() const { return form[0] == 't'; }
  bool b_transposed() const { return form[1] == 't'; }
  double flops() const { return 2.0 * static_cast<double>(m * n * k); }
  std::string name(int threads) const {
    return "t" + std::to_string(threads) + "_" + std::to_string(m) + "x" + std::to_string(n) + "x" +
           std::to_string(k) + "_" + form;
  }
};
/// The three products of the MLP's layers, one with a wider batch, and square ones.
inline constexpr Product kProducts[] = {{64, 512, 784, "nt"},     {64, 512, 512, "nn"},
                                        {512, 784, 64, "tn"},     {256, 512, 784, "nt"},
                                        {1024, 1024, 1024, "nn"}, {1024, 1024, 1024, "nt"},
                                        {2048, 2048, 2048, "nn"}};

/// Returns one thread and, if `threads` is more, that number too.
inline std::vector<int> thread_counts(int threads) {
  return threads > 1 ? std::vector<int>{1, threads} : std::vector<int>{1};
}

/// Draws numbers in [-1, 1) and places in [0, bound), equal in the programs of both sides.
inline std::uint64_t next_bits(std::uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return state >> 33;
}
inline std::vector<float> reals(std::int64_t n) {
  std::vector<float> out;
  std::uint64_t state = 1;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<float>(next_bits(state)) * 0x1p-30f - 1.f);
  return out;
}
inline std::vector<std::int64_t> places(std::int64_t n, std::int64_t bound) {
  std::vector<std::int64_t> out;
  std::uint64_t state = 2;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<std::int64_t>(next_bits(state)) % bound);
  return out;
}

}  // namespace bench
