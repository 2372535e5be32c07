// Operations that change a shape. Results are views if the strides allow it, else one copy.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "firn/tensor.h"

namespace firn {

/// One size may be -1: it is inferred.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Merges axes `from` to `to` (inclusive) into one.
Tensor flatten(const Tensor& x, std::int64_t from = 0, std::int64_t to = -1);
/// Axis i of the result is axis order[i] of x.
Tensor permute(const Tensor& x, const Axes& order);
/// Exchanges two axes.
Tensor transpose(const Tensor& x, std::int64_t a, std::int64_t b);
/// Inserts a new axis of size 1 before `axis`; after the last one for -1.
Tensor unsqueeze(const Tensor& x, std::int64_t axis);
/// Removes `axis`, whose size must be 1.
Tensor squeeze(const Tensor& x, std::int64_t axis);
/// Repeats axes of size 1, and new leading axes, without a copy; -1 keeps a size.
Tensor expand(const Tensor& x, const Shape& shape);
/// Elements [start, stop) of an axis, every step-th (step > 0); negative positions count from the
/// end; positions are clipped to the axis as in Python.
Tensor slice(const Tensor& x, std::int64_t axis, std::int64_t start, std::int64_t stop,
             std::int64_t step = 1);
/// The sub-tensor at `index` of `axis`; the axis is removed.
Tensor select(const Tensor& x, std::int64_t axis, std::int64_t index);
/// Pieces of `size` along `axis`; the last may be shorter. An axis of size 0 gives one empty piece,
/// as in PyTorch.
std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t axis = 0);
std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes,
                          std::int64_t axis = 0);
std::vector<Tensor> split(const Tensor& x, std::initializer_list<std::int64_t> sizes,
                          std::int64_t axis = 0);
/// Concatenates the parts along `axis`; stack() joins them along a new axis.
Tensor cat(std::span<const Tensor> parts, std::int64_t axis = 0);
Tensor cat(std::initializer_list<Tensor> parts, std::int64_t axis = 0);
Tensor stack(std::span<const Tensor> parts, std::int64_t axis = 0);
Tensor stack(std::initializer_list<Tensor> parts, std::int64_t axis = 0);
/// Adds `before[i]` and `after[i]` elements of `value` around axis i; both lists have x's rank.
Tensor pad(const Tensor& x, const Axes& before, const Axes& after, double value = 0);

}  // namespace firn
