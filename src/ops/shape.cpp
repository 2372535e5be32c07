// Views and joins. A view's gradient is written directly into the same view of its input's
// gradient. Views only move elements, so autocast keeps their dtype; joins take the widest dtype.
#include <algorithm>

#include "base/checked.h"
#include "firn/ops/index.h"
#include "kernels/copy.h"
#include "ops/gradient/again.h"
#include "ops/parts.h"

namespace firn {

using namespace ops;

namespace {

/// Computes the strides of `x` viewed as `shape`; returns false if that needs a copy. Axes of x are
/// merged into runs without gaps in memory; each run must split into whole axes of the new shape.
bool view_strides(const Tensor& x, const Shape& shape, Strides& out) {
  if (x.is_contiguous()) {
    out = contiguous_strides(shape);
    return true;
  }
  out = Dims::filled(shape.size(), 0);
  int to = shape.size() - 1;
  for (int i = x.rank() - 1; i >= 0;) {
    std::int64_t run = x.shape()[i];
    const std::int64_t step = x.strides()[i];
    while (i > 0 && (x.shape()[i - 1] == 1 || x.strides()[i - 1] == step * run))
      run *= x.shape()[--i];
    --i;
    std::int64_t taken = 1;
    while (to >= 0 && (taken < run || shape[to] == 1)) {
      out[to] = taken * step;
      taken *= shape[to--];
    }
    if (taken != run) return false;
  }
  return true;
}

/// Largest number of pieces that split() makes: each is a tensor of its own.
constexpr std::int64_t kMostPieces = std::int64_t{1} << 24;

Shape infer_shape(const Tensor& x, Shape shape) {
  const Shape wanted = shape;
  int unknown = -1;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1) continue;
    FIRN_CHECK(unknown < 0, "reshape", "leave out one size at most", "two sizes are -1 in {}",
               wanted);
    unknown = i;
    shape[i] = 1;
  }
  const std::int64_t known = checked_elements("reshape", shape), numel = x.numel();
  const bool fits = unknown < 0 ? known == numel : known > 0 && numel % known == 0;
  FIRN_CHECK(fits, "reshape", "the number of elements must stay",
             "{} has {} elements and cannot become {}", describe(x), numel, wanted);
  if (unknown >= 0) shape[unknown] = numel / known;
  return shape;
}

Tensor slice_view(const Tensor& x, int axis, std::int64_t start, std::int64_t count,
                  std::int64_t step) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  const std::int64_t offset = start * strides[axis];
  shape[axis] = count;
  if (count > 1) strides[axis] *= step;  // else no step is taken, so it may have any size
  return x.as_strided(shape, strides, offset);
}

Tensor permute_view(const Tensor& x, const Axes& order) {
  Shape shape;
  Strides strides;
  for (auto a : order) {
    shape.push_back(x.shape()[static_cast<int>(a)]);
    strides.push_back(x.strides()[static_cast<int>(a)]);
  }
  return x.as_strided(shape, strides);
}

/// Returns zeros of `shape` with t at first, first + step, ... along an axis, with recording.
Tensor placed(const Tensor& t, const Shape& shape, int axis, std::int64_t first,
              std::int64_t step) {
  if (step == 1 || t.size(axis) <= 1) {
    Axes before = Dims::filled(shape.size(), 0), after = before;
    before[axis] = t.size(axis) > 0 ? first : shape[axis];
    after[axis] = shape[axis] - before[axis] - t.size(axis);
    return pad(t, before, after);
  }
  const Tensor at = arange(t.size(axis), {.start = static_cast<double>(first),
                                          .step = static_cast<double>(step),
                                          .dtype = i64,
                                          .device = t.device()});
  return index_add(zeros(shape, t.dtype(), t.device()), axis, at, t);
}

/// cat(), and stack() of unsqueezed parts.
Tensor join(const char* op, std::span<const Tensor> operands, std::int64_t axis) try {
  FIRN_CHECK(!operands.empty(), op, "give one tensor at least", "no tensors given");
  std::vector<Tensor> promoted;
  if (autocast_on()) promoted = autocasted(Policy::promote, operands);
  const std::span<const Tensor> parts = promoted.empty() ? operands : promoted;
  const Tensor& first = parts[0];
  require_defined(op, first);
  FIRN_CHECK(first.rank() > 0, op, "stack() makes a new axis", "{} has no axis to join along",
             describe(first));
  const int a = normalize_axis(op, axis, first.rank());
  Shape shape = first.shape();
  shape[a] = 0;
  for (const Tensor& p : parts) {
    require_same(op, first, p);
    FIRN_CHECK(p.rank() == first.rank(), op, "unsqueeze() the one with fewer axes",
               "{} and {} have {} and {} axes", describe(first), describe(p), first.rank(),
               p.rank());
    Shape off_axis = p.shape();
    off_axis[a] = first.shape()[a];
    FIRN_CHECK(off_axis == first.shape(), op, "shapes must agree off the axis",
               "{} and {} on axis {}", describe(first), describe(p), axis);
    shape[a] = checked_sum(op, shape[a], p.shape()[a]);
  }
  Tensor y = empty(shape, first.dtype(), first.device());
  std::vector<std::int64_t> starts{0};
  for (const Tensor& p : parts) {
    const Tensor target = slice_view(y, a, starts.back(), p.shape()[a], 1);
    kernels::copy(p.view(), target.mutable_view(), stream_of(y));
    starts.push_back(starts.back() + p.shape()[a]);
  }
  const std::vector<Tensor> inputs(parts.begin(), parts.end());
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"axis", a}});
  const auto again = [a, starts](GraphBackward& b) {
    for (std::size_t i = 0; i + 1 < starts.size(); ++i)
      if (b.needs(static_cast<int>(i)))
        b.add(static_cast<int>(i), slice(b.grad(), a, starts[i], starts[i + 1]));
  };
  const auto backward = [a, starts = std::move(starts)](Backward& b) {
    for (std::size_t i = 0; i + 1 < starts.size(); ++i)
      if (b.needs(static_cast<int>(i)))
        b.accumulate(static_cast<int>(i),
                     slice_view(b.grad(), a, starts[i], starts[i + 1] - starts[i], 1));
  };
  return record(op, y, inputs, {}, with_again(backward, again));
}
FIRN_OUT_OF_MEMORY(op)

}  // namespace

Shape ops::padded_shape(const char* op, const Tensor& x, const Axes& before, const Axes& after) {
  require_defined(op, x);
  FIRN_CHECK(before.size() == x.rank() && after.size() == x.rank(), op,
             "give both counts for every axis", "before {} and after {} for {}", before, after,
             describe(x));
  Shape shape = x.shape();
  for (int i = 0; i < x.rank(); ++i) {
    FIRN_CHECK(before[i] >= 0 && after[i] >= 0, op, "slice() takes elements away",
               "before {} and after {}", before, after);
    shape[i] = checked_sum(op, shape[i], checked_sum(op, before[i], after[i]));
  }
  checked_elements(op, shape);
  return shape;
}

Tensor reshape(const Tensor& x, const Shape& wanted) {
  require_defined("reshape", x);
  const Shape shape = infer_shape(x, wanted);
  Strides strides;
  if (!view_strides(x, shape, strides)) return reshape(contiguous(x), shape);
  Tensor y = x.as_strided(shape, strides);
  const auto backward = [](Backward& b) {
    const Tensor grad = contiguous(b.grad());
    const Shape& to = b.input_shape(0);
    b.accumulate(0, grad.as_strided(to, contiguous_strides(to)));
  };
  return record("reshape", y, {&x}, {}, with_again(backward, [](GraphBackward& b) {
                  b.add(0, reshape(b.grad(), b.input_shape(0)));
                }));
}

Tensor flatten(const Tensor& x, std::int64_t from, std::int64_t to) {
  require_defined("flatten", x);
  if (x.rank() == 0) return reshape(x, {1});
  const int first = normalize_axis("flatten", from, x.rank());
  const int last = normalize_axis("flatten", to, x.rank());
  FIRN_CHECK(first <= last, "flatten", "name the first axis first", "axes {} to {} of {}", from, to,
             describe(x));
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i > first && i <= last) {
      shape.back() *= x.shape()[i];
    } else {
      shape.push_back(x.shape()[i]);
    }
  }
  return reshape(x, shape);
}

Tensor permute(const Tensor& x, const Axes& order) {
  require_defined("permute", x);
  FIRN_CHECK(order.size() == x.rank(), "permute", "name every axis once", "order {} for {}", order,
             describe(x));
  Axes forward = order, inverse = order;
  for (int i = 0; i < x.rank(); ++i) forward[i] = normalize_axis("permute", order[i], x.rank());
  normalize_axes("permute", forward, x.rank());  // throws on a repeated axis
  for (int i = 0; i < x.rank(); ++i) inverse[static_cast<int>(forward[i])] = i;
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("permute", {{"order", forward}});
  return record(
      "permute", permute_view(x, forward), {&x}, {},
      with_again([inverse](Backward& b) { b.accumulate(0, permute_view(b.grad(), inverse)); },
                 [inverse](GraphBackward& b) { b.add(0, permute(b.grad(), inverse)); }));
}

Tensor transpose(const Tensor& x, std::int64_t a, std::int64_t b) {
  require_defined("transpose", x);
  const int i = normalize_axis("transpose", a, x.rank());
  const int j = normalize_axis("transpose", b, x.rank());
  Axes order;
  for (int k = 0; k < x.rank(); ++k) order.push_back(k);
  std::swap(order[i], order[j]);
  return permute(x, order);
}

Tensor unsqueeze(const Tensor& x, std::int64_t axis) {
  require_defined("unsqueeze", x);
  require_rank("unsqueeze", x.rank() + 1, x);
  Shape shape = x.shape();
  shape.insert(normalize_axis("unsqueeze", axis, x.rank() + 1), 1);
  return reshape(x, shape);
}

Tensor squeeze(const Tensor& x, std::int64_t axis) {
  require_defined("squeeze", x);
  const int a = normalize_axis("squeeze", axis, x.rank());
  FIRN_CHECK(x.shape()[a] == 1, "squeeze", "only an axis of size 1 can vanish", "axis {} of {}",
             axis, describe(x));
  Shape shape = x.shape();
  shape.erase(a);
  return reshape(x, shape);
}

Tensor expand(const Tensor& x, const Shape& wanted) {
  require_defined("expand", x);
  Shape shape = wanted;
  const int lead = shape.size() - x.rank();
  FIRN_CHECK(lead >= 0, "expand", "axes can be added, not dropped", "{} to {}", describe(x),
             wanted);
  for (int i = 0; i < x.rank(); ++i) {
    if (shape[lead + i] == -1) shape[lead + i] = x.shape()[i];
    FIRN_CHECK(shape[lead + i] == x.shape()[i] || x.shape()[i] == 1, "expand",
               "only axes of size 1 can be repeated", "{} to {}", describe(x), wanted);
  }
  checked_elements("expand", shape);
  if (shape == x.shape()) return x;
  const ConstView v = broadcast_to(x.view(), shape);
  return record("expand", x.as_strided(v.shape, v.strides), {&x}, {},
                with_again([](Backward& b) { accumulate_broadcast(b, 0, b.grad()); },
                           [](GraphBackward& b) { b.add(0, b.grad()); }));
}

Tensor slice(const Tensor& x, std::int64_t axis, std::int64_t start, std::int64_t stop,
             std::int64_t step) {
  require_defined("slice", x);
  const int a = normalize_axis("slice", axis, x.rank());
  FIRN_CHECK(step > 0, "slice", "take a positive step", "step {} for {}", step, describe(x));
  const std::int64_t n = x.shape()[a];
  const auto clip = [n](std::int64_t p) {
    return std::clamp<std::int64_t>(p < 0 ? p + n : p, 0, n);
  };
  const std::int64_t first = clip(start), last = clip(stop);
  const std::int64_t count = last > first ? (last - first - 1) / step + 1 : 0;
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("slice", {{"axis", a}, {"first", first}, {"last", last}, {"step", step}});
  const auto backward = [=](Backward& b) {
    accumulate_part(b, [&](const Tensor& g) { return slice_view(g, a, first, count, step); });
  };
  return record("slice", slice_view(x, a, first, count, step), {&x}, {},
                with_again(backward, [=](GraphBackward& b) {
                  b.add(0, placed(b.grad(), b.input_shape(0), a, first, step));
                }));
}

Tensor select(const Tensor& x, std::int64_t axis, std::int64_t index) {
  require_defined("select", x);
  const int a = normalize_axis("select", axis, x.rank());
  const std::int64_t n = x.shape()[a];
  FIRN_CHECK(index >= -n && index < n, "select", "indices count from 0, or from -1 backwards",
             "index {} on axis {} of {}", index, axis, describe(x));
  const std::int64_t at = index < 0 ? index + n : index;
  const auto part = [a, at](const Tensor& t) {
    Shape shape = t.shape();
    Strides strides = t.strides();
    const std::int64_t offset = at * strides[a];
    shape.erase(a);
    strides.erase(a);
    return t.as_strided(shape, strides, offset);
  };
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("select", {{"axis", a}, {"index", at}});
  return record("select", part(x), {&x}, {},
                with_again([part](Backward& b) { accumulate_part(b, part); },
                           [a, at](GraphBackward& b) {
                             b.add(0, placed(unsqueeze(b.grad(), a), b.input_shape(0), a, at, 1));
                           }));
}

std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes,
                          std::int64_t axis) try {
  require_defined("split", x);
  const int a = normalize_axis("split", axis, x.rank());
  std::int64_t total = 0;
  for (auto s : sizes) {
    FIRN_CHECK(s >= 0, "split", "sizes are 0 or more", "a piece of size {}", s);
    total = checked_sum("split", total, s);
  }
  FIRN_CHECK(total == x.shape()[a], "split", "sizes must sum to the axis",
             "sizes sum to {} on axis {} of {}", total, axis, describe(x));
  std::vector<Tensor> out;
  std::int64_t at = 0;
  for (auto s : sizes) {
    out.push_back(slice(x, a, at, at + s));
    at += s;
  }
  return out;
}
FIRN_OUT_OF_MEMORY("split")

std::vector<Tensor> split(const Tensor& x, std::initializer_list<std::int64_t> sizes,
                          std::int64_t axis) {
  return split(x, std::span<const std::int64_t>(sizes.begin(), sizes.size()), axis);
}

std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t axis) try {
  require_defined("split", x);
  FIRN_CHECK(size > 0, "split", "give the size of a piece", "pieces of size {}", size);
  const std::int64_t n = x.shape()[normalize_axis("split", axis, x.rank())];
  const std::int64_t pieces = n > 0 ? (n - 1) / size + 1 : 1;
  FIRN_CHECK(pieces <= kMostPieces, "split", "take larger pieces",
             "pieces of size {} along axis {} of {} would be {} tensors", size, axis, describe(x),
             pieces);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(pieces), size);
  sizes.back() = n - (pieces - 1) * size;
  return split(x, sizes, axis);
}
FIRN_OUT_OF_MEMORY("split")

Tensor cat(std::span<const Tensor> parts, std::int64_t axis) { return join("cat", parts, axis); }
Tensor cat(std::initializer_list<Tensor> parts, std::int64_t axis) {
  return cat(span_of(parts), axis);
}

Tensor stack(std::initializer_list<Tensor> parts, std::int64_t axis) {
  return stack(span_of(parts), axis);
}

Tensor stack(std::span<const Tensor> parts, std::int64_t axis) try {
  FIRN_CHECK(!parts.empty(), "stack", "give one tensor at least", "no tensors given");
  require_defined("stack", parts[0]);
  require_rank("stack", parts[0].rank() + 1, parts[0]);
  const int a = normalize_axis("stack", axis, parts[0].rank() + 1);
  std::vector<Tensor> rows;
  for (const Tensor& p : parts) {
    require_defined("stack", p);
    FIRN_CHECK(p.shape() == parts[0].shape(), "stack",
               "all shapes must agree; cat() joins along an axis they have",
               "shapes differ: {} and {}", describe(parts[0]), describe(p));
    rows.push_back(unsqueeze(p, a));
  }
  return join("stack", rows, a);
}
FIRN_OUT_OF_MEMORY("stack")

Tensor pad(const Tensor& x, const Axes& before, const Axes& after, double value) try {
  const Shape shape = padded_shape("pad", x, before, after);
  const auto inside = [before](const Tensor& t, const Shape& inner) {
    std::int64_t offset = 0;
    for (int i = 0; i < inner.size(); ++i) offset += before[i] * t.strides()[i];
    return t.as_strided(inner, t.strides(), offset);
  };
  Tensor y = full(shape, value, x.dtype(), x.device());
  kernels::copy(x.view(), inside(y, x.shape()).mutable_view(), stream_of(x));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("pad", {{"before", before}, {"after", after}, {"value", value}});
  return record(
      "pad", y, {&x}, {},
      with_again([inside](Backward& b) { b.accumulate(0, inside(b.grad(), b.input_shape(0))); },
                 [before](GraphBackward& b) {
                   Tensor part = b.grad();
                   for (int i = 0; i < before.size(); ++i)
                     part = slice(part, i, before[i], before[i] + b.input_shape(0)[i]);
                   b.add(0, part);
                 }));
}
FIRN_AS_OP("pad")

}  // namespace firn
