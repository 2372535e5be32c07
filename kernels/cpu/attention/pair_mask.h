// Masks that say which pairs of a query and a key of one head are seen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/attention/geometry.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Share of a block's pairs that are seen.
enum class Cover { none, some, all };

/// The options of a call that hide pairs.
class PairMasks {
 public:
  /// Throws Error in the name of `attention` on a length outside [0, keys].
  PairMasks(const AttentionSizes& sizes, const AttentionArgs& args);

  /// The mask of one batch entry and query head.
  class OfHead {
   public:
    OfHead(const PairMasks& all, std::int64_t b, std::int64_t head)
        : band_(all.band_),
          key_block_(all.key_block_),
          length_(all.lengths_[static_cast<std::size_t>(b)]) {
      if (!all.mask_.data) return;
      const Strides& strides = all.mask_.strides;
      mask_ = all.mask_.as<std::uint8_t>() + b * strides[0] + head * strides[1];
      row_ = strides[2];
      column_ = strides[3];
    }

    bool sees(std::int64_t query, std::int64_t key) const {
      return band_.sees(query, key, length_) &&
             (!mask_ || mask_[query * row_ + key * column_] != 0);
    }
    Cover cover(const PairBlock& block) const;
    /// Writes `value` to the elements of x, whose rows are `ld` apart, of pairs that are not seen.
    template <class C>
    void hide(const PairBlock& block, C* x, std::int64_t ld, C value) const {
      for (std::int64_t r = 0; r < block.rows; ++r, x += ld) {
        const auto [first, end] = columns(block, r);
        std::fill_n(x, first, value);
        std::fill_n(x + end, block.cols - end, value);
        if (!mask_) continue;
        const std::uint8_t* const m = mask_ + (block.query + r) * row_ + block.key * column_;
        if (column_ == 1) {
          for (std::int64_t c = first; c < end; ++c) x[c] = m[c] ? x[c] : value;
        } else {
          for (std::int64_t c = first; c < end; ++c) x[c] = m[c * column_] ? x[c] : value;
        }
      }
    }
    /// Returns the blocks of keys [first, second) that the band lets the queries of a block see.
    std::pair<std::int64_t, std::int64_t> key_blocks(std::int64_t query, std::int64_t rows) const;
    /// Returns the blocks of queries [first, second) that the band lets see a key of a block.
    std::pair<std::int64_t, std::int64_t> query_blocks(std::int64_t key, std::int64_t cols) const;

   private:
    /// Returns the columns [first, second) of the block's row r that are in the band.
    std::pair<std::int64_t, std::int64_t> columns(const PairBlock& block, std::int64_t r) const {
      const std::int64_t query = block.query + r;
      const std::int64_t first =
          std::clamp<std::int64_t>(band_.first_key(query) - block.key, 0, block.cols);
      return {first, std::clamp(band_.end_key(query, length_) - block.key, first, block.cols)};
    }

    math::AttentionBand band_;
    std::int64_t key_block_, length_;
    const std::uint8_t* mask_ = nullptr;
    std::int64_t row_ = 0, column_ = 0;
  };

  /// Number of keys of a batch entry that may be seen.
  std::int64_t length(std::int64_t b) const { return lengths_[static_cast<std::size_t>(b)]; }
  /// Number of these keys in a block: 0 or less if it begins beyond them. Other keys are never
  /// read.
  std::int64_t cols(std::int64_t b, std::int64_t block) const {
    return std::min(key_block_, length(b) - block * key_block_);
  }

 private:
  math::AttentionBand band_;
  std::int64_t key_block_;
  std::vector<std::int64_t> lengths_;
  ConstView mask_;
};

/// sum += weights rows over the pairs that are seen, one by one. It is for blocks with a row that
/// is not finite, which must not be multiplied by a weight of 0. The sum is [block.rows, depth],
/// weights are [block.rows, block.cols], and row c belongs to key c.
template <class C>
void add_seen_rows(const PairMasks::OfHead& mask, const PairBlock& block, const C* weights,
                   std::int64_t ld, const Matrix& rows, std::int64_t depth, C* sum);
/// sum += weights^T rows over these pairs, where row r belongs to query r. Element d of the sum of
/// key c is at sum[c * key_step + d * step].
template <class C>
void add_seen_columns(const PairMasks::OfHead& mask, const PairBlock& block, const C* weights,
                      std::int64_t ld, const Matrix& rows, std::int64_t depth, C* sum,
                      std::int64_t key_step, std::int64_t step);

}  // namespace firn::kernels::cpu::FIRN_ISA
