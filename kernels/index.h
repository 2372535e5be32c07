// Contract of the kernels that read or write at positions held in a tensor. Index tensors are i64
// or i32, of any strides. An index outside its axis raises an Error that names `op`, position,
// value and bound. The CPU throws before it writes. A CUDA device records the fault and continues
// (firn/runtime/kernel_support.h); the host throws at its next wait. Until then a read at such an
// index gives NaN in floating dtypes and 0 in others, and an addition there is skipped.
#pragma once

#include "kernels/dispatch.h"

namespace firn::kernels {

/// The ways in which put() combines an element with one at the same position.
enum class Meeting : std::uint8_t { last, sum, prod, max, min };

namespace cpu {

/// out[i, :] = table[index[i], :]; table [n, d], index [m], out [m, d] of the table's dtype.
void take_rows(const char* op, const ConstView& table, const ConstView& index, const View& out,
               Stream stream);
/// grad[index[i], :] += dy[i, :], in the order of i; grad [n, d] is zeroed first if beta is 0. Here
/// and in gather_backward, grad and dy have floating dtypes, which may differ. Long sums accumulate
/// in f64, short ones in f32; each is rounded once. Both backends add the terms of one element in
/// the same order, so their results are equal to the bit.
void add_rows(const char* op, const ConstView& dy, const ConstView& index, const View& grad,
              float beta, Stream stream);
/// out[..., j, ...] = x[..., index[..., j, ...], ...] along `axis`. index and out have one shape,
/// and along other axes their sizes are at most x's. An index that is repeated with stride 0 along
/// the other axes selects whole slices.
void gather(const char* op, const ConstView& x, const ConstView& index, const View& out, int axis,
            Stream stream);
/// grad[..., index[..., j, ...], ...] += dy[..., j, ...], in the order of j, as by add_rows().
void gather_backward(const char* op, const ConstView& dy, const ConstView& index, const View& grad,
                     int axis, float beta, Stream stream);
/// Combines out[..., index[..., j, ...], ...] with src[..., j, ...], in the order of j, on both
/// backends: the last one stays, or they are combined in the dtype itself. Both have one dtype: any
/// for `last`, integers for `sum` (wrapping), and f32, f64 and integers for the others.
void put(const char* op, const ConstView& src, const ConstView& index, const View& out, int axis,
         Meeting meeting, Stream stream);
/// The gradients of put() with `last`: dx becomes 0 at all indices, and dsrc takes what dx had
/// there at the last position of an index, else 0. dsrc has the index's shape, and dx's dtype.
void put_backward(const ConstView& index, const View& dx, const View& dsrc, int axis);
/// out [m, classes] is 1 at index[i], else 0.
void one_hot(const char* op, const ConstView& index, const View& out, Stream stream);
/// out[i] (i64, contiguous) = number of times that i is in index [n].
void count(const char* op, const ConstView& index, const View& out, Stream stream);

}  // namespace cpu

/// Bytes in a profile: the elements that are taken, not the whole tensor.
inline double taken_bytes(const char*, const ConstView&, const ConstView& index, const View& out,
                          const auto&...) {
  return detail::bytes_of(index) + 2 * detail::bytes_of(out);
}
FIRN_KERNEL_OF_ANY_DTYPE(take_rows, taken_bytes)
FIRN_KERNEL_WITH_WORKSPACE(add_rows)
FIRN_KERNEL_OF_ANY_DTYPE(gather, taken_bytes)
FIRN_KERNEL_WITH_WORKSPACE(gather_backward)
FIRN_KERNEL_WITH_WORKSPACE(put)
FIRN_KERNEL_CPU(put_backward)
FIRN_KERNEL(one_hot)
FIRN_KERNEL_WITH_WORKSPACE(count)

}  // namespace firn::kernels
