// Operations that read, write and add at positions that tensors hold.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "firn/ops/sort.h"
#include "firn/tensor.h"

namespace firn {

// ---- One index tensor ----
/// Rows of `table` [n, d...] at `index` (i64 or i32, any shape): shape index.shape + [d...].
/// Throws on an index outside [0, n). Rows with the same index sum their gradients in index order.
Tensor embedding(const Tensor& table, const Tensor& index);
/// x at positions `index` (1-D) of `axis`.
Tensor index_select(const Tensor& x, std::int64_t axis, const Tensor& index);
/// out[i][j] = x[i][index[i][j]] for axis 1, and likewise for the others. index has x's rank; its
/// sizes on the other axes are at most x's.
Tensor gather(const Tensor& x, std::int64_t axis, const Tensor& index);
/// 1 at position index[...] of a new last axis of size `classes`, else 0; no gradient. `dtype` must
/// support arithmetic.
Tensor one_hot(const Tensor& index, std::int64_t classes, DType dtype = f32);

// Elements of an index tensor are i64 or i32, on x's device. One that is negative or beyond the
// axis throws Error, on a CUDA device when the host next waits for it.

/// embedding() whose row `padding_idx` (negative: from the end) has no gradient. It is the row of
/// the token that pads sequences.
Tensor embedding(const Tensor& table, const Tensor& index, std::int64_t padding_idx);

/// Reduction of the rows of a bag by embedding_bag().
enum class BagMode : std::uint8_t {
  sum,   ///< their sum
  mean,  ///< their mean
  max,   ///< the largest element of each column; the gradient goes to the first largest
};
const char* to_string(BagMode mode) noexcept;
struct EmbeddingBagOptions {
  BagMode mode = BagMode::mean;  ///< reduction of a bag's rows
  Tensor offsets = {};           ///< [bags], start of each bag in a list; ascending from 0 on
  Tensor per_sample_weights =
      {};  ///< factors of rows, of index's shape and table's dtype; sum only
  bool include_last_offset = false;  ///< offsets are [bags + 1]; the last is the list's length
  std::optional<std::int64_t> padding_idx = {};  ///< rows that do not count; negative: from the end
};
/// Rows of table [n, d] at `index`, reduced bag by bag: [bags, d]. index is [bags, length], or a
/// list [total] with `offsets` (both i64 or i32). A bag without rows gives 0. Sums run in f32 (f64
/// for f64) and are rounded once. The rows are taken before they are added, so memory holds total x
/// d elements. With offsets, max waits for the device: the longest bag decides a shape. Throws
/// Error if shapes do not fit together, and for offsets outside the list. Offsets must start at 0
/// and never descend; equal ones make an empty bag. Throws Error otherwise, but sum and mean do not
/// check it on a CUDA device.
Tensor embedding_bag(const Tensor& table, const Tensor& index,
                     const EmbeddingBagOptions& options = {});

/// gather() whose operands broadcast along all axes but `axis`: out[i][j] = x[i][index[i][j]] for
/// axis 1. Both have the same number of axes.
Tensor take_along(const Tensor& x, const Tensor& index, std::int64_t axis);
/// x with src added: out[index[i][j]][j] += src[i][j] for axis 0, and likewise for others. x, index
/// and src have one rank. index is at most as large as src, and as x on the other axes; scalars
/// count as lists of one. Elements with the same target are added in the order of the index, in f32
/// or wider, and rounded once: the result has the same bits on every device. Integers wrap around.
/// Gradients go to x and src.
[[nodiscard]] Tensor scatter_add(const Tensor& x, std::int64_t axis, const Tensor& index,
                                 const Tensor& src);
/// x with `alpha` times src added: slice i of src to slice index[i] of x along `axis`. index is 1-D
/// with src's size there; on the other axes src has x's sizes. Otherwise as scatter_add().
[[nodiscard]] Tensor index_add(const Tensor& x, std::int64_t axis, const Tensor& index,
                               const Tensor& src, double alpha = 1);

// ---- Writing at positions ----
// These functions do not change x: the result is x with elements replaced. x and src have one
// dtype, which must support arithmetic; take() has every dtype. If several indices name one
// element, the last in the order of the index stays, on every device and for any number of threads
// (PyTorch leaves it open). The gradient of x is 0 where elements were replaced, and the gradient
// of src is 0 for elements that did not stay.

/// out[index[i][j]][j] = src[i][j] for axis 0, and likewise for others. Shapes as scatter_add().
[[nodiscard]] Tensor scatter(const Tensor& x, std::int64_t axis, const Tensor& index,
                             const Tensor& src);
[[nodiscard]] Tensor scatter(const Tensor& x, std::int64_t axis, const Tensor& index, double value);
/// x with slice i of src in the place of slice index[i] along `axis`. Shapes as index_add().
[[nodiscard]] Tensor index_copy(const Tensor& x, std::int64_t axis, const Tensor& index,
                                const Tensor& src);
/// x with `value` in all slices index[i] along `axis`; index is 1-D. A tensor as value has 0 axes.
[[nodiscard]] Tensor index_fill(const Tensor& x, std::int64_t axis, const Tensor& index,
                                double value);
[[nodiscard]] Tensor index_fill(const Tensor& x, std::int64_t axis, const Tensor& index,
                                const Tensor& value);
/// Index of one axis: a tensor, a number, or nothing. Elements of a tensor must not be negative; a
/// negative number counts from the end. Nothing (`{}` or an undefined tensor) is the whole axis.
class Index {
 public:
  Index() = default;
  Index(Tensor positions) : positions_(std::move(positions)) {}  // NOLINT: meant to convert
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) Index(Integer number)  // NOLINT: meant to convert
      : number_(static_cast<std::int64_t>(number)) {}
  /// Returns the positions as a tensor, for an axis of `size`. A number gives i64 [] on `device`,
  /// and a negative one counts from the end; the whole axis gives an undefined tensor. Throws
  /// Error, in the name of `op`, for a number outside the axis.
  Tensor on(const char* op, Device device, std::int64_t size) const;

 private:
  Tensor positions_;
  std::optional<std::int64_t> number_;
};
/// The indices of the first axes of a tensor, as x[{}, rows, 2] in Python: {{}, rows, 2}.
class IndexList {
 public:
  IndexList(std::initializer_list<Index> indices);
  IndexList(const std::vector<Tensor>& indices);  // NOLINT: meant to convert
  IndexList(std::vector<Index> indices);          // NOLINT: meant to convert
  /// Returns one index for each of the first axes; a mask stands for several.
  const std::vector<Index>& indices() const noexcept { return indices_; }

 private:
  std::vector<Index> indices_;
};
/// x[indices[0], indices[1], ...]: elements at positions, as a copy. Axes without an index are
/// whole; the indices broadcast together to a shape B, which stands in the place of the indexed
/// axes if they are adjacent, else in front. A bool mask stands for the positions at which it
/// holds, one list for each of its axes, and waits for the device. Takes every dtype. Gradients of
/// elements that are read several times add up as in index_add().
Tensor index(const Tensor& x, const IndexList& indices);
/// x[indices[0], indices[1], ...] = values, or += with `accumulate`, which adds as index_add().
/// `values` broadcasts to the shape of index(x, indices). A single mask with one number as values
/// does not wait for the device.
[[nodiscard]] Tensor index_put(const Tensor& x, const IndexList& indices, const Tensor& values,
                               bool accumulate = false);
[[nodiscard]] Tensor index_put(const Tensor& x, const IndexList& indices, double value,
                               bool accumulate = false);
/// x with src at flat positions of its row-major elements: src has the index's number of elements.
/// With `accumulate` they are added as by scatter_add().
[[nodiscard]] Tensor put(const Tensor& x, const Tensor& index, const Tensor& src,
                         bool accumulate = false);
/// The elements at flat positions of x's row-major elements, in the index's shape.
Tensor take(const Tensor& x, const Tensor& index);
/// x with the elements of src, in row-major order, where mask (bool) holds. The mask broadcasts to
/// x. If src has too few elements, it throws Error as for a bad index.
[[nodiscard]] Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& src);
/// x with src in the place of select(x, axis, index), whose shape it has.
[[nodiscard]] Tensor select_scatter(const Tensor& x, const Tensor& src, std::int64_t axis,
                                    std::int64_t index);
/// x with src in the place of slice(x, axis, start, stop, step), whose shape it has.
[[nodiscard]] Tensor slice_scatter(const Tensor& x, const Tensor& src, std::int64_t axis,
                                   std::int64_t start, std::int64_t stop, std::int64_t step = 1);
/// x with src in the place of diagonal(x, offset, first, second), whose shape it has.
[[nodiscard]] Tensor diagonal_scatter(const Tensor& x, const Tensor& src, std::int64_t offset = 0,
                                      std::int64_t first = 0, std::int64_t second = 1);

/// Reduction of the elements with one target by scatter_reduce() and index_reduce().
enum class ScatterReduce : std::uint8_t {
  sum,   ///< their sum, as scatter_add()
  prod,  ///< their product, in the order of the index
  mean,  ///< their sum over their number; floating dtypes
  amax,  ///< the largest; NaN wins. Equal ones that take part share the gradient evenly
  amin   ///< the smallest, likewise
};
const char* to_string(ScatterReduce how) noexcept;
/// x with each element reduced with the elements of src that `index` sends there, in f32 or wider,
/// rounded once. Without include_self, x's own element takes no part where others arrive. Shapes as
/// scatter_add(). Dtypes are floating, or i64, i32 and u8, which wrap around. Without include_self,
/// elements of src share the whole gradient of amax and amin. PyTorch gives them less if x's own
/// element is equal to the result. A product with zeros has the gradient of the other factors,
/// without a second derivative.
[[nodiscard]] Tensor scatter_reduce(const Tensor& x, std::int64_t axis, const Tensor& index,
                                    const Tensor& src, ScatterReduce how, bool include_self = true);
/// Reduces slices: slice i of src goes to slice index[i]. Shapes as index_add().
[[nodiscard]] Tensor index_reduce(const Tensor& x, std::int64_t axis, const Tensor& index,
                                  const Tensor& src, ScatterReduce how, bool include_self = true);

/// The k-th smallest element of each line along `axis`, k from 1 on, and its index: among equal
/// elements the k-th in the order of sort(). The axis is removed, or kept with size 1. x's dtype
/// must support arithmetic.
Sorted kthvalue(const Tensor& x, std::int64_t k, std::int64_t axis = -1, bool keepdims = false);
Sorted kthvalue(const Tensor&,  // kthvalue(x, k, axis, keepdims)
                std::int64_t, std::same_as<bool> auto) = delete;

// The number of elements decides these shapes: both wait for the device.
/// The positions of all elements that are not 0 (or false), in row-major order: i64 [count, rank].
/// x's dtype must support arithmetic.
Tensor nonzero(const Tensor& x);
/// The elements of x where mask (bool) holds, in row-major order, as a list. Both broadcast.
Tensor masked_select(const Tensor& x, const Tensor& mask);

}  // namespace firn
