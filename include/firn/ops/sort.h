// Sorting, the largest elements, and counting integers.
#pragma once

#include <concepts>
#include <cstdint>

#include "firn/tensor.h"

namespace firn {

/// Elements in order, and their positions before.
struct Sorted {
  Tensor values;   ///< has the operand's dtype; the gradient goes back to an element's old position
  Tensor indices;  ///< i64, positions along the axis; no gradient
};

// Dtypes of operands must support arithmetic. The order is PyTorch's: -inf first, NaN above all
// numbers, -0 equal to 0. Equal elements keep the order of their positions, in descending order
// too. A scalar is sorted as if it had one axis of size 1. Throws Error on an axis that does not
// exist.

struct SortOptions {
  bool descending = false;  ///< largest first
};
/// The lines of x along `axis` in order; values and indices have x's shape. The sort is always
/// stable, as PyTorch's is with stable=True.
Sorted sort(const Tensor& x, std::int64_t axis = -1, const SortOptions& options = {});
/// The indices of sort(), i64 of x's shape; no gradient.
Tensor argsort(const Tensor& x, std::int64_t axis = -1, const SortOptions& options = {});
Sorted sort(const Tensor&, std::same_as<bool> auto) = delete;  // sort(x, -1, {.descending = true})
Tensor argsort(const Tensor&,  // argsort(x, -1, {.descending = true})
               std::same_as<bool> auto) = delete;

struct TopkOptions {
  bool largest = true;  ///< false: the smallest elements
  bool sorted = true;   ///< the first of the order first; false: in the order of their positions
};
/// The first k elements of each line of x along `axis`, in descending order, or in ascending order
/// with `largest` off. Values and indices have x's shape, but for size k at `axis`. Among equal
/// elements at the end, those with the lower positions are taken. Throws Error unless k is in [0,
/// x.size(axis)].
Sorted topk(const Tensor& x, std::int64_t k, std::int64_t axis = -1,
            const TopkOptions& options = {});
Sorted topk(const Tensor&,  // topk(x, k, -1, {.largest = false})
            std::int64_t, std::same_as<bool> auto) = delete;

/// Number of elements of an ascending list that are less than each of `values`, i64 of values'
/// shape: the position of insertion. `right`: less or equal, so behind its equals. `sorted` is a
/// list [n], or has a line [..., n] for each line of values [..., m]. The order is that of sort(),
/// so NaN comes last. Both have one dtype, which must support arithmetic; no gradient. An unsorted
/// list gives positions without meaning.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false);
/// The bucket of each element of x between ascending boundaries [n]: searchsorted(boundaries, x).
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right = false);

struct BincountOptions {
  Tensor weights = {};          ///< weights of elements, of x's shape; undefined: 1 each
  std::int64_t min_length = 0;  ///< the least size of the result
};
/// Count of each of 0 to max(x) in x, a list of non-negative i64, i32 or u8: i64 of shape
/// [max(max(x) + 1, min_length)]. With weights: their sums, in the weights' dtype, or f64 for
/// integers; each is added in the order of the list. No gradient. Waits for the device, since the
/// values decide the shape. Throws Error on a negative element.
Tensor bincount(const Tensor& x, const BincountOptions& options = {});

}  // namespace firn
