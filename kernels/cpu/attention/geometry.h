// The sizes of an attention call on the CPU, and its cut into blocks, which depends on shape alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/sequence/attention.h"
#include "kernels/cpu/attention/products.h"
#include "kernels/cpu/device/convert.h"
#include "kernels/math/sequence/attention.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Number of queries of a block, and largest number of its keys.
inline constexpr std::int64_t kQueryBlock = 64, kKeyBlock = 128;

/// Queries [query, query + rows) and keys [key, key + cols).
struct PairBlock {
  std::int64_t query, rows, key, cols;
};

struct AttentionSizes {
  std::int64_t batch, heads, key_heads, queries, keys, depth, value_depth;
  std::int64_t group;  ///< query heads of a key head
  /// Number of keys of a block, which is also the distance of two rows of its scores. The matrix
  /// unit needs long sums; with fewer keys, fewer pairs of a block are hidden by a causal mask.
  std::int64_t key_block;
  std::int64_t query_blocks, key_blocks;
  DType dtype;

  AttentionSizes(const ConstView& q, const ConstView& k, const ConstView& v)
      : batch(q.shape[0]),
        heads(q.shape[1]),
        key_heads(k.shape[1]),
        queries(q.shape[2]),
        keys(k.shape[2]),
        depth(q.shape[3]),
        value_depth(v.shape[3]),
        group(key_heads == 0 ? 0 : heads / key_heads),
        key_block(size_of(q.dtype) == 2 ? kKeyBlock : kKeyBlock / 2),
        query_blocks(math::ceil_div(queries, kQueryBlock)),
        key_blocks(math::ceil_div(keys, key_block)),
        dtype(q.dtype) {}

  std::int64_t rows_of(std::int64_t query_block) const {
    return std::min(kQueryBlock, queries - query_block * kQueryBlock);
  }
  /// Number of multiplications of one product of all pairs, for parallel_for.
  std::int64_t work() const { return batch * heads * queries * keys * (depth + value_depth); }
};

/// Returns the rows from `row` on of head `head` of a tensor [batch, heads, rows, depth].
inline Matrix rows_of(const ConstView& x, std::int64_t b, std::int64_t head, std::int64_t row) {
  const std::int64_t offset = b * x.strides[0] + head * x.strides[1] + row * x.strides[2];
  return {advance(x.data, x.dtype, offset), x.dtype, x.strides[2], 1};
}

/// True if all elements of the first rows of a matrix with contiguous rows are finite.
bool is_finite(const Matrix& x, std::int64_t rows, std::int64_t cols);

}  // namespace firn::kernels::cpu::FIRN_ISA
