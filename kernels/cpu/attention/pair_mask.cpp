#include "kernels/cpu/attention/pair_mask.h"

#include <cmath>
#include <string>

#include "firn/error.h"
#include "firn/runtime/kernel_support.h"
#include "kernels/cpu/index/index.h"

namespace firn::kernels::cpu::FIRN_ISA {

PairMasks::PairMasks(const AttentionSizes& sizes, const AttentionArgs& args)
    : band_{sizes.queries, sizes.keys, args.causal, args.window},
      key_block_(sizes.key_block),
      lengths_(static_cast<std::size_t>(sizes.batch), sizes.keys),
      mask_(args.mask) {
  if (!args.lengths.data || runtime::dry_run()) return;
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    const std::int64_t length = index_at(args.lengths, b * args.lengths.strides[0]);
    if (length < 0 || length > sizes.keys)
      throw Error("attention",
                  "lengths[" + std::to_string(b) + "] = " + std::to_string(length) +
                      " is outside [0, " + std::to_string(sizes.keys) + "]",
                  "a length is the number of leading keys that are valid");
    lengths_[static_cast<std::size_t>(b)] = length;
  }
}

Cover PairMasks::OfHead::cover(const PairBlock& block) const {
  std::int64_t seen = 0;
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const auto [first, end] = columns(block, r);
    if (!mask_) {
      seen += end - first;
      continue;
    }
    const std::uint8_t* const m = mask_ + (block.query + r) * row_ + block.key * column_;
    if (column_ == 1) {  // a case of its own, for vector instructions
      for (std::int64_t c = first; c < end; ++c) seen += m[c] != 0;
    } else {
      for (std::int64_t c = first; c < end; ++c) seen += m[c * column_] != 0;
    }
  }
  return seen == 0 ? Cover::none : seen == block.rows * block.cols ? Cover::all : Cover::some;
}

std::pair<std::int64_t, std::int64_t> PairMasks::OfHead::key_blocks(std::int64_t query,
                                                                    std::int64_t rows) const {
  const std::int64_t first = band_.first_key(query) / key_block_;
  const std::int64_t end = math::ceil_div(band_.end_key(query + rows - 1, length_), key_block_);
  return {std::min(first, end), end};
}

std::pair<std::int64_t, std::int64_t> PairMasks::OfHead::query_blocks(std::int64_t key,
                                                                      std::int64_t cols) const {
  if (key >= length_) return {0, 0};
  const std::int64_t first = band_.first_query(key) / kQueryBlock;
  const std::int64_t end = math::ceil_div(band_.end_query(key + cols - 1), kQueryBlock);
  return {std::min(first, end), end};
}

namespace {

/// Calls fn(r, c) for every pair of the block that is seen.
template <class Fn>
void for_seen(const PairMasks::OfHead& mask, const PairBlock& block, Fn&& fn) {
  for (std::int64_t r = 0; r < block.rows; ++r)
    for (std::int64_t c = 0; c < block.cols; ++c)
      if (mask.sees(block.query + r, block.key + c)) fn(r, c);
}

template <class C>
C element(const Matrix& x, std::int64_t row, std::int64_t column) {
  C buffer;
  return *load_row(advance(x.data, x.dtype, row * x.row + column * x.column), x.dtype, 1, 1,
                   &buffer);
}

template <class Word>
bool has_full_exponent(const void* row, std::int64_t n, Word exponent) {
  const Word* const x = static_cast<const Word*>(row);
  Word found = 0;
  for (std::int64_t i = 0; i < n; ++i) found |= (x[i] & exponent) == exponent;
  return found != 0;
}

}  // namespace

bool is_finite(const Matrix& x, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const void* const row = advance(x.data, x.dtype, r * x.row);
    const bool full = x.dtype == DType::f16    ? has_full_exponent<std::uint16_t>(row, cols, 0x7c00)
                      : x.dtype == DType::bf16 ? has_full_exponent<std::uint16_t>(row, cols, 0x7f80)
                      : x.dtype == DType::f32
                          ? has_full_exponent<std::uint32_t>(row, cols, 0x7f800000u)
                          : has_full_exponent<std::uint64_t>(row, cols, 0x7ffull << 52);
    if (full) return false;
  }
  return true;
}

template <class C>
void add_seen_rows(const PairMasks::OfHead& mask, const PairBlock& block, const C* weights,
                   std::int64_t ld, const Matrix& rows, std::int64_t depth, C* sum) {
  for_seen(mask, block, [&](std::int64_t r, std::int64_t c) {
    for (std::int64_t d = 0; d < depth; ++d)
      sum[r * depth + d] += weights[r * ld + c] * element<C>(rows, c, d);
  });
}

template <class C>
void add_seen_columns(const PairMasks::OfHead& mask, const PairBlock& block, const C* weights,
                      std::int64_t ld, const Matrix& rows, std::int64_t depth, C* sum,
                      std::int64_t key_step, std::int64_t step) {
  for_seen(mask, block, [&](std::int64_t r, std::int64_t c) {
    for (std::int64_t d = 0; d < depth; ++d)
      sum[c * key_step + d * step] += weights[r * ld + c] * element<C>(rows, r, d);
  });
}

#define FIRN_ADD_SEEN(C)                                                                          \
  template void add_seen_rows(const PairMasks::OfHead&, const PairBlock&, const C*, std::int64_t, \
                              const Matrix&, std::int64_t, C*);                                   \
  template void add_seen_columns(const PairMasks::OfHead&, const PairBlock&, const C*,            \
                                 std::int64_t, const Matrix&, std::int64_t, C*, std::int64_t,     \
                                 std::int64_t);
FIRN_ADD_SEEN(float)
FIRN_ADD_SEEN(double)
#undef FIRN_ADD_SEEN

}  // namespace firn::kernels::cpu::FIRN_ISA
