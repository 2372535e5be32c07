// Helpers of both passes of attention for a block of scores, [rows, keys] in the compute type C.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention/pair_mask.h"
#include "kernels/cpu/device/philox_words.h"
#include "kernels/cpu/device/tile.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Elements of a block of scores.
inline constexpr std::int64_t kBlockPairs = kQueryBlock * kKeyBlock;

/// Decides which probabilities dropout keeps.
struct AttentionDropout {
  RandomKey key;
  std::int64_t row_blocks;  ///< Philox blocks of a row
  std::uint32_t threshold;
  double share;  ///< factor of a kept probability
  bool on;

  AttentionDropout(const AttentionSizes& sizes, const AttentionArgs& args)
      : key(args.key),
        row_blocks(math::attention_row_words(sizes.keys) / 4),
        threshold(math::dropout_threshold(args.dropout)),
        share(1 / (1 - args.dropout)),
        on(args.dropout > 0) {}

  /// Writes word (r, c) of a block to out[r * kKeyBlock + c]. The block's first row is number `row`
  /// of [batch, heads, queries].
  void words(std::int64_t row, const PairBlock& block, std::uint32_t* out) const {
    static_assert(kPhiloxGroupWords % kKeyBlock == 0 && kBlockPairs % kPhiloxGroupWords == 0);
    constexpr std::int64_t kRows = kPhiloxGroupWords / kKeyBlock, kBlocks = kKeyBlock / 4;
    for (std::int64_t r = 0; r < block.rows; r += kRows) {
      const std::int64_t first = (row + r) * row_blocks + block.key / 4;
      const auto counter = [&](int i) {
        const std::int64_t at = first + i / kBlocks * row_blocks + i % kBlocks;
        return key.offset + static_cast<std::uint64_t>(at);
      };
      philox_group(counter, key.seed, out + r * kKeyBlock);
    }
  }
};

/// Returns the weights of a block, whose rows are `ld` apart, as a factor of the operands' dtype.
/// 16-bit ones are rounded into `rounded`.
template <class C>
Matrix as_factor(const C* weights, std::int64_t ld, const PairBlock& block, DType dtype,
                 void* rounded) {
  if (dtype == dtype_of<C>) return {weights, dtype, ld, 1};
  for (std::int64_t r = 0; r < block.rows; ++r)
    store_row(weights + r * ld, advance(rounded, dtype, r * ld), dtype, 1, block.cols);
  return {rounded, dtype, ld, 1};
}

/// Scratch memory in parts, each of which begins at a multiple of 64 bytes.
class Parts {
 public:
  /// Adds a part and returns where it begins.
  std::int64_t add(std::int64_t bytes) {
    const std::int64_t begin = bytes_;
    bytes_ += (bytes + 63) / 64 * 64;
    return begin;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

/// fold(fold(x0, x1), ...) of a tile's lanes. It folds halves first, so that the steps are few.
template <class C, class Fold>
C fold_lanes(Tile<C> x, Fold fold) {
  alignas(64) C lanes[Tile<C>::size];
  x.store(lanes);
#pragma GCC unroll 4
  for (int half = Tile<C>::size / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] = fold(lanes[i], lanes[i + half]);
  return lanes[0];
}

/// Calls fn(i) for the first number i of each tile of n. The rows of a block have room for whole
/// tiles.
template <class C, class Fn>
void for_tiles(std::int64_t n, Fn&& fn) {
  for (std::int64_t i = 0; i < n; i += Tile<C>::size) fn(i);
}

/// Writes new values of a row of a gradient, plus beta times the old ones.
template <class C>
void write_gradient(const View& grad, std::int64_t b, std::int64_t head, std::int64_t row,
                    float beta, C* values, C* buffer) {
  const std::int64_t at = b * grad.strides[0] + head * grad.strides[1] + row * grad.strides[2];
  void* const to = advance(grad.data, grad.dtype, at);
  const std::int64_t n = grad.shape[3], stride = grad.strides[3];
  if (beta != 0) {
    const C* const old = load_row<C>(to, grad.dtype, stride, n, buffer);
    for (std::int64_t i = 0; i < n; ++i) values[i] = C(beta) * old[i] + values[i];
  }
  store_row(values, to, grad.dtype, stride, n);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
