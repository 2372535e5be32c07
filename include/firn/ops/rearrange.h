// Operations that move elements: views of parts, repetitions, reversals, triangles and diagonals,
// borders, shuffles, windows.
// They work on every dtype unless said otherwise, and throw Error on an axis that does not exist.
// Gradients go back to where an element came from.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "firn/ops/conv.h"
#include "firn/tensor.h"

namespace firn {

// ---- Views ----
/// `length` elements of an axis from `start` on, a view; a negative start counts from the end.
/// Throws unless they lie on the axis.
Tensor narrow(const Tensor& x, std::int64_t axis, std::int64_t start, std::int64_t length);
/// At most `chunks` (2^24 or fewer) views of equal size along `axis`, of which the last may be
/// smaller: pieces of the rounded-up quotient, as in PyTorch, so there may be fewer.
std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t axis = 0);
/// Axes `from`, a number or a list, become axes `to`, in the order given; the others keep their
/// order. A view.
Tensor movedim(const Tensor& x, const Axes& from, const Axes& to);
/// x with axes of size 1 repeated to `shape`, a view: as expand(), but every size is given.
Tensor broadcast_to(const Tensor& x, const Shape& shape);
/// The diagonal of axes `first` and `second`, as a new last axis: a view of the elements whose
/// position on `second` is `offset` more than on `first`; none if that is beyond the corners.
Tensor diagonal(const Tensor& x, std::int64_t offset = 0, std::int64_t first = 0,
                std::int64_t second = 1);
/// Windows of `size` positions along an axis, `step` apart, as a view: that axis counts the
/// windows, floor((n - size) / step) + 1 of them, and a new last axis has their positions. This is
/// torch.Tensor.unfold. A scalar has one window, [1]. Windows that overlap share memory, so the
/// view can be read but not written. Throws Error unless 0 <= size <= n and step > 0.
Tensor unfold_axis(const Tensor& x, std::int64_t axis, std::int64_t size, std::int64_t step);
/// Views of 1-D tensors, or scalars, of one dtype, that broadcast each along an axis of its own:
/// output i has the values of input i along axis i. With n inputs all have the shape [sizes...] of
/// n axes. This is PyTorch's indexing="ij"; for "xy" transpose the first two axes.
std::vector<Tensor> meshgrid(std::span<const Tensor> axes);
std::vector<Tensor> meshgrid(std::initializer_list<Tensor> axes);

/// The slices along `axis`, without it: views.
std::vector<Tensor> unbind(const Tensor& x, std::int64_t axis = 0);
/// `pieces` views along `axis`, of which the first ones have one element more if the size is no
/// multiple; or the views between ascending positions, which are clipped to the axis as by slice().
std::vector<Tensor> tensor_split(const Tensor& x, std::int64_t pieces, std::int64_t axis = 0);
std::vector<Tensor> tensor_split(const Tensor& x, std::span<const std::int64_t> positions,
                                 std::int64_t axis = 0);
/// `axis` as several axes of these sizes, one of which may be -1. A view if strides allow it.
Tensor unflatten(const Tensor& x, std::int64_t axis, const Shape& sizes);

// ---- Copies ----
/// cat() along axis 1, or along axis 0 for lists; scalars count as lists of one element.
Tensor hstack(std::span<const Tensor> parts);
Tensor hstack(std::initializer_list<Tensor> parts);
/// cat() along axis 0, where a list [n] counts as a row [1, n] and a scalar as [1, 1].
Tensor vstack(std::span<const Tensor> parts);
Tensor vstack(std::initializer_list<Tensor> parts);
/// cat() along axis 2: [n] counts as [1, n, 1], and [m, n] as [m, n, 1].
Tensor dstack(std::span<const Tensor> parts);
Tensor dstack(std::initializer_list<Tensor> parts);
/// cat() along axis 1, where a list [n] counts as a column [n, 1].
Tensor column_stack(std::span<const Tensor> parts);
Tensor column_stack(std::initializer_list<Tensor> parts);
/// Matrices with the last axis of x [..., n] on their diagonal `offset`, else 0: sizes n + |offset|
/// at axes `first` and `second` of the result. x's dtype must support arithmetic.
Tensor diag_embed(const Tensor& x, std::int64_t offset = 0, std::int64_t first = -2,
                  std::int64_t second = -1);
/// The elements along each of `axes` in reverse order.
Tensor flip(const Tensor& x, const Axes& axes);
/// Elements move `shift` positions up along `axis`; those that leave the end come in at the front.
Tensor roll(const Tensor& x, std::int64_t shift, std::int64_t axis);
/// roll() of the flattened x, in x's shape.
Tensor roll(const Tensor& x, std::int64_t shift);
/// `times` quarter turns, from axis `first` towards axis `second`.
Tensor rot90(const Tensor& x, std::int64_t times = 1, std::int64_t first = 0,
             std::int64_t second = 1);
/// x repeated counts[i] times along axis i. counts may be longer than x's rank: the first ones are
/// then for new axes. Each is 0 or more.
Tensor repeat(const Tensor& x, const Shape& counts);
/// Works as repeat(), but counts may also be shorter: the first axes are then not repeated.
Tensor tile(const Tensor& x, const Shape& counts);
/// Each slice of `axis` repeated `count` times in place, or counts[i] times slice i.
Tensor repeat_interleave(const Tensor& x, std::int64_t count, std::int64_t axis);
Tensor repeat_interleave(const Tensor& x, std::span<const std::int64_t> counts, std::int64_t axis);
/// The lower triangle of the last two axes, or the upper one by triu(); others are 0. `diagonal`
/// moves the border up (to the right). x's dtype must support arithmetic.
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);
/// A matrix [n + |offset|, n + |offset|] with x [n] on its diagonal `offset`; the diagonal of a
/// matrix, as a view.
Tensor diag(const Tensor& x, std::int64_t offset = 0);

// ---- Borders, pixels and channels ----
/// Elements that pad() adds around x.
enum class PadMode : std::uint8_t {
  constant,   ///< zeros
  reflect,    ///< x mirrored at its edge, which is not repeated: c b [a b c] b a
  replicate,  ///< the element at the edge: a a [a b c] c c
  circular,   ///< x from its other end: b c [a b c] a b
};
const char* to_string(PadMode mode) noexcept;
/// Adds `before[i]` and `after[i]` elements around axis i, as `mode` says; both lists have x's
/// rank. pad() of shape.h adds a number. The elements are read once, whatever the number of axes,
/// and channels-last memory stays so. Throws Error if reflect adds x's size or more, circular more
/// than that, or if an axis without elements is to grow.
Tensor pad(const Tensor& x, const Axes& before, const Axes& after, PadMode mode);
/// [..., c r^2, h, w] -> [..., c, h r, w r]: r^2 channels become the pixels of a square (Shi et al.
/// 2016). Throws Error unless r > 0 and r^2 divides the channels.
Tensor pixel_shuffle(const Tensor& x, std::int64_t r);
/// The inverse of pixel_shuffle(): [..., c, h r, w r] -> [..., c r^2, h, w]. Throws Error unless r
/// > 0 divides height and width.
Tensor pixel_unshuffle(const Tensor& x, std::int64_t r);
/// The channels of x [n, c, ...] in the order 0, c/g, 2c/g, ..., 1, c/g + 1, ... with g `groups`
/// (Zhang et al. 2018), so that the next grouped convolution sees all groups. Throws Error unless
/// groups > 0 divides c.
Tensor channel_shuffle(const Tensor& x, std::int64_t groups);

// ---- Windows ----
/// Options of unfold() and fold(), in PyTorch's order.
struct WindowOptions {
  Size2 dilation = 1;  ///< distance between a window's positions
  Size2 padding = 0;   ///< zeros around the image
  Size2 stride = 1;    ///< distance between windows
};
/// The windows of images as columns (im2col): x [n, c, h, w] or [c, h, w] ->
/// [n, c window.h window.w, l] or without n, with l = p q windows, where
/// p = (h + 2 padding - dilation (window.h - 1) - 1) / stride + 1. Column l holds window l channel
/// by channel, each row by row. Throws Error if there is no window.
Tensor unfold(const Tensor& x, Size2 window, const WindowOptions& options = {});
/// The gradient of unfold() as an operation (col2im): the sum of all windows at their places in
/// images of out.h x out.w. x [n, c window.h window.w, l] or without n, floating ->
/// [n, c, out.h, out.w]. Sums of f16 and bf16 are rounded once. Throws Error unless x has the
/// columns that unfold() gives for such images.
Tensor fold(const Tensor& x, Size2 out, Size2 window, const WindowOptions& options = {});

struct LinspaceOptions {
  DType dtype = f32;  ///< floating
  Device device = default_device();
};
/// `count` numbers from `start` to `end`, both included, at equal distances; [count].
Tensor linspace(double start, double end, std::int64_t count, const LinspaceOptions& options = {});

}  // namespace firn
