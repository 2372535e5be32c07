// Reading and adding at positions that tensors hold, beside gather(), index_select() and
// embedding() in ops.h.
#pragma once

#include <cstdint>
#include <optional>

#include "firn/ops/ops.h"
#include "firn/ops/sort.h"
#include "firn/tensor.h"

namespace firn {

// An index is i64 or i32 and on x's device; a negative one or one beyond the axis throws Error, on
// a CUDA device when the host next waits for it.

/// embedding() of which row `padding_idx` (negative: from the end) gets no gradient, such as that
/// of the token that fills up sequences.
Tensor embedding(const Tensor& table, const Tensor& index, std::int64_t padding_idx);

/// What embedding_bag() makes of the rows of a bag.
enum class BagMode : std::uint8_t {
  sum,   ///< their sum
  mean,  ///< their mean
  max,   ///< the largest element of each column; the gradient goes to the first largest
};
const char* to_string(BagMode mode) noexcept;
struct EmbeddingBagOptions {
  BagMode mode = BagMode::mean;  ///< what is made of a bag's rows
  Tensor offsets = {};           ///< [bags], where each begins in a list; ascending from 0 on
  Tensor per_sample_weights =
      {};  ///< of index's shape and table's dtype: factors of rows; sum only
  bool include_last_offset = false;  ///< offsets have one element more, the length of the list
  std::optional<std::int64_t> padding_idx = {};  ///< rows that do not count; negative: from the end
};
/// Rows of table [n, d] at `index`, reduced bag by bag: [bags, d]. index is [bags, length], or a
/// list [total] with `offsets` (both i64 or i32). A bag without rows gives 0. Sums run in f32 (f64
/// for f64) and are rounded once. The rows are taken before they are added, so memory holds total x
/// d elements. With offsets, max waits for the device: the longest bag decides a shape. Throws
/// Error if shapes do not fit together, and for offsets outside the list. Offsets that go back are
/// an Error on the CPU, and on a device for max.
Tensor embedding_bag(const Tensor& table, const Tensor& index,
                     const EmbeddingBagOptions& options = {});

/// gather() whose operands broadcast off `axis`: out[i][j] = x[i][index[i][j]] for axis 1. Both
/// have the same number of axes.
Tensor take_along(const Tensor& x, const Tensor& index, std::int64_t axis);
/// x with src added: out[index[i][j]][j] += src[i][j] for axis 0, and likewise for others. x, index
/// and src have one rank; index is at most as large as src, and off the axis as x. Floating dtypes.
/// Elements that meet are added in the order of the index, in f32 or wider, and rounded once: the
/// result has the same bits on every device. Gradients go to x and src.
Tensor scatter_add(const Tensor& x, std::int64_t axis, const Tensor& index, const Tensor& src);
/// x with `alpha` times src added: slice i of src to slice index[i] of x along `axis`. index is 1-D
/// with src's size there; off the axis src has x's sizes. Otherwise as scatter_add().
Tensor index_add(const Tensor& x, std::int64_t axis, const Tensor& index, const Tensor& src,
                 double alpha = 1);
/// The k-th smallest element of each line along `axis`, k from 1 on, and its index: of equal
/// elements the k-th in the order of sort(). The axis is removed, or kept with size 1.
Sorted kthvalue(const Tensor& x, std::int64_t k, std::int64_t axis = -1, bool keepdims = false);

// The number of elements decides these shapes: both wait for the device.
/// The positions of all elements that are not 0 (or false), in row-major order: i64 [count, rank].
Tensor nonzero(const Tensor& x);
/// The elements of x where mask (bool) holds, in row-major order, as a list. Both broadcast.
Tensor masked_select(const Tensor& x, const Tensor& mask);

}  // namespace firn
