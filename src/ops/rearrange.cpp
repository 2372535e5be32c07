// Operations that move elements, made of views, joins and reads at positions. They have no kernels
// of their own.
#include "firn/ops/rearrange.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "firn/ops/elementwise.h"
#include "firn/runtime/kernel_support.h"
#include "ops/gradient/again.h"
#include "ops/parts.h"

namespace firn {

using namespace ops;

namespace {

/// Returns two different axes of x.
std::pair<int, int> two_axes(const char* op, const Tensor& x, std::int64_t first,
                             std::int64_t second) {
  const int a = normalize_axis(op, first, x.rank()), b = normalize_axis(op, second, x.rank());
  FIRN_CHECK(a != b, op, "name two axes", "both are axis {} of {}", a, describe(x));
  return {a, b};
}

Tensor triangle(const char* op, const Tensor& x, std::int64_t diagonal, bool lower);

/// triangle() by the CPU's kernel.
Tensor written_triangle(const char* op, const Tensor& x, std::int64_t diagonal, bool lower) {
  const auto part = [=](const Tensor& t) {
    const Tensor y = empty(t.shape(), t.dtype(), t.device());
    kernels::triangle(t.view(), y.mutable_view(), lower, diagonal);
    return y;
  };
  const auto backward = [part](Backward& b) {
    const OwnerScope owner(Owner::workspace);
    b.accumulate(0, part(b.grad()));
  };
  return record(op, part(x), {&x}, {}, with_again(backward, [=](GraphBackward& b) {
                  b.add(0, triangle(op, b.grad(), diagonal, lower));
                }));
}

/// Returns x on one side of the diagonal, else 0. A recorder of calls gets operations that every
/// format has.
Tensor triangle(const char* op, const Tensor& x, std::int64_t diagonal, bool lower) {
  require_computed(op, x);
  FIRN_CHECK(x.rank() >= 2, op, "a matrix has two axes", "{} has no matrices", describe(x));
  const std::int64_t n = x.size(-2), m = x.size(-1);
  // Beyond the corners nothing changes, and the sum below stays in range.
  const std::int64_t border = std::clamp(diagonal, -n - 1, m + 1);
  const bool row_major = x.is_contiguous() || !x.is_channels_last();
  if (x.device().is_cpu() && row_major && !autograd::wants_attributes())
    return written_triangle(op, x, border, lower);
  const Tensor rows = unsqueeze(arange(n, i64, x.device()), 1) + static_cast<double>(border);
  const Tensor columns = arange(m, i64, x.device());
  return where(lower ? le(columns, rows) : ge(columns, rows), x, 0);
}

/// Returns, for each place of a padded axis, the position on x's axis of size n that it shows: i64.
Tensor shown_positions(std::int64_t n, std::int64_t before, std::int64_t after, PadMode mode,
                       Device device) {
  const Tensor place = arange(
      n + before + after, {.start = -static_cast<double>(before), .dtype = i64, .device = device});
  if (before == 0 && after == 0) return place;
  const auto last = static_cast<double>(n - 1);
  switch (mode) {
    case PadMode::reflect:
      return abs(last - abs(last - abs(place)));
    case PadMode::replicate:
      return minimum(maximum(place, 0), last);
    default:
      return remainder(place, static_cast<double>(n));
  }
}

/// pad() of a contiguous x by the CPU's kernels.
Tensor written_pad(const Tensor& x, const Axes& before, const Axes& after, PadMode mode) {
  const int step = mode == PadMode::reflect ? -1 : mode == PadMode::replicate ? 0 : 1;
  const Tensor y = empty(padded_shape("pad", x, before, after), x.dtype(), x.device());
  kernels::pad(x.view(), y.mutable_view(), before, step);
  const auto summed = [before, step, shape = x.shape()](const Tensor& dy) {
    const Tensor dx = empty(shape, dy.dtype(), dy.device());
    kernels::pad_backward(contiguous(dy).view(), dx.mutable_view(), before, step);
    return dx;
  };
  const auto backward = [summed](Backward& b) {
    const OwnerScope owner(Owner::workspace);
    b.accumulate(0, summed(b.grad()));
  };
  return record("pad", y, {&x}, {}, with_again(backward, [=](GraphBackward& b) {
                  b.add(0, transposed_map("pad_gradient", b.grad(), summed, [=](const Tensor& v) {
                          return pad(v, before, after, mode);
                        }));
                }));
}

}  // namespace

// ---- Views ----

Tensor narrow(const Tensor& x, std::int64_t axis, std::int64_t start, std::int64_t length) {
  require_defined("narrow", x);
  const int a = normalize_axis("narrow", axis, x.rank());
  const std::int64_t n = x.size(a), first = start < 0 ? start + n : start;
  FIRN_CHECK(first >= 0 && first <= n && length >= 0 && length <= n - first, "narrow",
             "slice() clips to the axis", "start {} and length {} on axis {} of {}", start, length,
             axis, describe(x));
  return slice(x, a, first, first + length);
}

std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t axis) try {
  require_defined("chunk", x);
  const std::int64_t n = x.size(normalize_axis("chunk", axis, x.rank()));
  FIRN_CHECK(chunks > 0 && chunks <= std::int64_t{1} << 24, "chunk", "1 to 2^24 pieces",
             "{} chunks", chunks);
  if (n == 0) return split(x, std::vector<std::int64_t>(static_cast<std::size_t>(chunks), 0), axis);
  return split(x, n / chunks + (n % chunks != 0 ? 1 : 0), axis);
}
FIRN_OUT_OF_MEMORY("chunk")

Tensor movedim(const Tensor& x, const Axes& from, const Axes& to) {
  require_defined("movedim", x);
  FIRN_CHECK(from.size() == to.size(), "movedim", "name a place for each axis",
             "axes {} to {} of {}", from, to, describe(x));
  Axes once = from, places = to;
  normalize_axes("movedim", once, x.rank());  // both throw on a repeated axis
  normalize_axes("movedim", places, x.rank());
  Axes order = Dims::filled(x.rank(), -1);
  std::vector<bool> moved(static_cast<std::size_t>(x.rank()));
  for (int i = 0; i < from.size(); ++i) {
    const int source = normalize_axis("movedim", from[i], x.rank());
    order[normalize_axis("movedim", to[i], x.rank())] = source;
    moved[static_cast<std::size_t>(source)] = true;
  }
  int next = 0;
  for (std::int64_t& axis : order) {
    if (axis >= 0) continue;
    while (moved[static_cast<std::size_t>(next)]) ++next;
    axis = next++;
  }
  return permute(x, order);
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  require_defined("broadcast_to", x);
  bool fits = broadcasts_to(x.shape(), shape);
  for (int i = 0; i < shape.size(); ++i) fits = fits && shape[i] >= 0;
  FIRN_CHECK(fits, "broadcast_to", "sizes agree from the last axis on, or are 1", "{} to shape {}",
             describe(x), shape);
  return expand(x, shape);
}

Tensor diagonal(const Tensor& x, std::int64_t offset, std::int64_t first, std::int64_t second) {
  require_defined("diagonal", x);
  const auto [a, b] = two_axes("diagonal", x, first, second);
  const std::int64_t n = x.size(a), m = x.size(b);
  offset = std::clamp(offset, -n, m);  // beyond the corners there is nothing
  const std::int64_t down = std::max<std::int64_t>(-offset, 0),
                     right = std::max<std::int64_t>(offset, 0);
  const std::int64_t count = std::max<std::int64_t>(std::min(n - down, m - right), 0);
  const auto part = [a = a, b = b, down, right, count](const Tensor& t) {
    Shape shape;
    Strides strides;
    for (int i = 0; i < t.rank(); ++i) {
      if (i == a || i == b) continue;
      shape.push_back(t.shape()[i]);
      strides.push_back(t.strides()[i]);
    }
    shape.push_back(count);
    strides.push_back(t.strides()[a] + t.strides()[b]);
    return t.as_strided(shape, strides,
                        count > 0 ? down * t.strides()[a] + right * t.strides()[b] : 0);
  };
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("diagonal", {{"first", a}, {"second", b}, {"offset", offset}});
  const auto again = [part, offset, a = a, b = b](GraphBackward& back) {
    const auto placed = [&](const Tensor& dy) {
      const Tensor dx = zeros(back.input_shape(0), dy.dtype(), dy.device());
      kernels::copy(dy.view(), part(dx).mutable_view(), stream_of(dx));
      return dx;
    };
    back.add(0, transposed_map("diagonal_gradient", back.grad(), placed,
                               [=](const Tensor& v) { return diagonal(v, offset, a, b); }));
  };
  return record("diagonal", part(x), {&x}, {},
                with_again([part](Backward& back) { accumulate_part(back, part); }, again));
}

std::vector<Tensor> meshgrid(std::initializer_list<Tensor> axes) { return meshgrid(span_of(axes)); }

std::vector<Tensor> meshgrid(std::span<const Tensor> axes) try {
  FIRN_CHECK(!axes.empty(), "meshgrid", "give one list for each axis", "no tensors given");
  Shape shape;
  for (const Tensor& t : axes) {
    require_same("meshgrid", axes[0], t, false);
    FIRN_CHECK(t.rank() <= 1, "meshgrid", "flatten it", "{} has more than one axis", describe(t));
    require_rank("meshgrid", shape.size() + 1, t);
    shape.push_back(t.numel());
  }
  checked_elements("meshgrid", shape);
  std::vector<Tensor> out;
  for (int i = 0; i < shape.size(); ++i) {
    Shape own = Dims::filled(shape.size(), 1);
    own[i] = shape[i];
    out.push_back(expand(reshape(axes[static_cast<std::size_t>(i)], own), shape));
  }
  return out;
}
FIRN_OUT_OF_MEMORY("meshgrid")

// ---- Copies ----

namespace {

/// Returns x from its last element on along these axes. Kernels of the CPU alone take such strides.
ConstView reversed(const Tensor& x, const Axes& axes) {
  ConstView v = x.view();
  std::int64_t last = 0;
  for (const std::int64_t a : axes) {
    last += (v.shape[a] - 1) * v.strides[a];
    v.strides[a] *= -1;
  }
  if (v.data)
    v.data = static_cast<const char*>(v.data) + last * static_cast<std::int64_t>(size_of(v.dtype));
  return v;
}

/// flip() by the CPU's kernels, in one pass.
Tensor written_flip(const Tensor& x, const Axes& axes) {
  const Tensor y = empty(x.shape(), x.dtype(), x.device());
  kernels::copy(reversed(x, axes), y.mutable_view(), stream_of(x));
  const auto backward = [axes](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    kernels::axpby(1, reversed(b.grad(), axes), beta, dx.mutable_view(), b.stream());
  };
  return record("flip", y, {&x}, {},
                with_again(backward, [axes](GraphBackward& b) { b.add(0, flip(b.grad(), axes)); }));
}

}  // namespace

Tensor flip(const Tensor& x, const Axes& axes) try {
  require_defined("flip", x);
  const Axes all = normalize_axes("flip", axes, x.rank());
  if (axes.empty() || x.numel() == 0) return clone(x);
  if (x.device().is_cpu() && !autograd::wants_attributes()) return written_flip(x, all);
  Tensor y = x;
  for (const std::int64_t axis : all) {
    const std::int64_t n = x.size(axis);
    y = index_select(
        y, axis,
        arange(
            n,
            {.start = static_cast<double>(n - 1), .step = -1, .dtype = i64, .device = x.device()}));
  }
  return y;
}
FIRN_OUT_OF_MEMORY("flip")

Tensor roll(const Tensor& x, std::int64_t shift, std::int64_t axis) {
  require_defined("roll", x);
  const int a = normalize_axis("roll", axis, x.rank());
  const std::int64_t n = x.size(a);
  if (n == 0) return clone(x);
  const std::int64_t first = (n - (shift % n + n) % n) % n;
  if (first == 0) return clone(x);
  return cat({slice(x, a, first, n), slice(x, a, 0, first)}, a);
}
Tensor roll(const Tensor& x, std::int64_t shift) {
  require_defined("roll", x);
  return reshape(roll(flatten(x), shift, 0), x.shape());
}

Tensor rot90(const Tensor& x, std::int64_t times, std::int64_t first, std::int64_t second) {
  require_defined("rot90", x);
  const auto [a, b] = two_axes("rot90", x, first, second);
  switch ((times % 4 + 4) % 4) {
    case 1:
      return flip(transpose(x, a, b), {a});
    case 2:
      return flip(x, {a, b});
    case 3:
      return flip(transpose(x, a, b), {b});
    default:
      return clone(x);
  }
}

Tensor repeat(const Tensor& x, const Shape& counts) {
  require_defined("repeat", x);
  const int lead = counts.size() - x.rank();
  FIRN_CHECK(lead >= 0, "repeat", "tile() takes fewer counts than axes", "{} counts for {}",
             counts.size(), describe(x));
  Shape result;
  for (int i = 0; i < counts.size(); ++i) {
    FIRN_CHECK(counts[i] >= 0, "repeat", "a count is 0 or more", "counts {} for {}", counts,
               describe(x));
    result.push_back(i < lead ? counts[i]
                              : checked_product("repeat", counts[i], x.shape()[i - lead]));
  }
  checked_elements("repeat", result);
  // Axis by axis, so that no tensor has more axes than x and counts: [1, n] is expanded to [count,
  // n].
  Tensor y = x;
  for (int i = 0; i < lead; ++i) y = unsqueeze(y, 0);
  for (int i = counts.size() - 1; i >= 0; --i) {
    if (counts[i] == 1) continue;
    const std::int64_t n = y.size(i);
    Shape rows{1}, repeated{counts[i]}, merged = y.shape();
    std::int64_t before = 1, after = 1;
    for (int k = 0; k < i; ++k) before *= y.size(k);
    for (int k = i + 1; k < y.rank(); ++k) after *= y.size(k);
    merged[i] = result[i];
    rows = {before, 1, n * after};
    repeated = {before, counts[i], n * after};
    y = reshape(expand(reshape(y, rows), repeated), merged);
  }
  return y.impl() == x.impl() || result == x.shape() ? clone(x) : y;
}

Tensor tile(const Tensor& x, const Shape& counts) try {
  require_defined("tile", x);
  Shape all = counts;
  while (all.size() < x.rank()) all.insert(0, 1);
  return repeat(x, all);
}
FIRN_AS_OP("tile")

Tensor repeat_interleave(const Tensor& x, std::int64_t count, std::int64_t axis) {
  require_defined("repeat_interleave", x);
  const int a = normalize_axis("repeat_interleave", axis, x.rank());
  FIRN_CHECK(count >= 0, "repeat_interleave", "a count is 0 or more", "count is {}", count);
  Shape result = x.shape();
  result[a] = checked_product("repeat_interleave", result[a], count);
  checked_elements("repeat_interleave", result);
  std::int64_t before = 1, after = 1;
  for (int i = 0; i <= a; ++i) before *= x.size(i);
  for (int i = a + 1; i < x.rank(); ++i) after *= x.size(i);
  const Tensor y = reshape(expand(reshape(x, {before, 1, after}), {before, count, after}), result);
  return count == 1 ? clone(x) : y;
}

Tensor repeat_interleave(const Tensor& x, std::span<const std::int64_t> counts,
                         std::int64_t axis) try {
  require_defined("repeat_interleave", x);
  const int a = normalize_axis("repeat_interleave", axis, x.rank());
  FIRN_CHECK(static_cast<std::int64_t>(counts.size()) == x.size(a), "repeat_interleave",
             "give one count for each slice", "{} counts for axis {} of {}", counts.size(), axis,
             describe(x));
  std::int64_t total = 0;
  for (const std::int64_t n : counts) {
    FIRN_CHECK(n >= 0, "repeat_interleave", "a count is 0 or more", "a count is {}", n);
    total = checked_sum("repeat_interleave", total, n);
  }
  Shape result = x.shape();
  result[a] = total;
  checked_elements("repeat_interleave", result);
  const Tensor positions = empty({total}, i64, Device::cpu());  // firn's memory has limits
  if (!runtime::dry_run()) {
    auto* to = positions.data<std::int64_t>();
    for (std::size_t i = 0; i < counts.size(); ++i)
      to = std::fill_n(to, counts[i], static_cast<std::int64_t>(i));
  }
  return index_select(x, a, to_device(positions, x.device()));
}
FIRN_OUT_OF_MEMORY("repeat_interleave")

Tensor tril(const Tensor& x, std::int64_t diagonal) { return triangle("tril", x, diagonal, true); }
Tensor triu(const Tensor& x, std::int64_t diagonal) { return triangle("triu", x, diagonal, false); }

Tensor diag(const Tensor& x, std::int64_t offset) {
  require_defined("diag", x);
  FIRN_CHECK(x.rank() == 1 || x.rank() == 2, "diag", "diagonal() takes any number of axes",
             "{} is neither a list nor a matrix", describe(x));
  if (x.rank() == 2) return diagonal(x, offset);
  FIRN_CHECK(offset > -kMaxElements, "diag", "a matrix has fewer diagonals", "offset is {}",
             offset);
  const std::int64_t n = x.numel();
  const std::int64_t size = checked_sum("diag", n, offset < 0 ? -offset : offset);
  checked_elements("diag", {size, size});
  const std::int64_t down = std::max<std::int64_t>(-offset, 0),
                     right = std::max<std::int64_t>(offset, 0);
  const auto part = [n, size, down, right](const Tensor& t) {
    return t.as_strided({n}, {size + 1}, n > 0 ? down * size + right : 0);
  };
  const Tensor y = zeros({size, size}, x.dtype(), x.device());
  kernels::copy(x.view(), part(y).mutable_view(), stream_of(x));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("diag", {{"offset", offset}});
  return record("diag", y, {&x}, {},
                with_again([part](Backward& b) { b.accumulate(0, part(contiguous(b.grad()))); },
                           [offset](GraphBackward& b) { b.add(0, diagonal(b.grad(), offset)); }));
}

// ---- Borders, pixels and channels ----

const char* to_string(PadMode mode) noexcept {
  switch (mode) {
    case PadMode::reflect:
      return "reflect";
    case PadMode::replicate:
      return "replicate";
    case PadMode::circular:
      return "circular";
    case PadMode::constant:
      return "constant";
    default:
      return "unknown mode";
  }
}

Tensor pad(const Tensor& x, const Axes& before, const Axes& after, PadMode mode) try {
  require_named("pad", "PadMode", mode, PadMode::circular);
  if (mode == PadMode::constant) return pad(x, before, after, 0.0);
  const Shape shape = padded_shape("pad", x, before, after);
  int first = x.rank(), last = -1;  // the axes that grow
  std::int64_t most_terms = 1;      // most places that show an element
  for (int i = 0; i < x.rank(); ++i) {
    const std::int64_t n = x.size(i), most = std::max(before[i], after[i]);
    if (most == 0) continue;
    FIRN_CHECK(n > 0, "pad", "pad with a number", "there is nothing to repeat on axis {} of {}", i,
               describe(x));
    FIRN_CHECK(mode != PadMode::reflect || most < n, "pad",
               "an axis has one neighbour fewer than elements to mirror",
               "reflect adds {} on axis {} of {}, which are not fewer than {}", most, i,
               describe(x), n);
    FIRN_CHECK(mode != PadMode::circular || most <= n, "pad", "tile() repeats more often",
               "circular adds {} on axis {} of {}, more than {}", most, i, describe(x), n);
    first = std::min(first, i);
    last = i;
    most_terms *= mode == PadMode::replicate ? 1 + before[i] + after[i] : 3;
  }
  if (last < 0) return clone(x);
  if (first >= 2 && x.is_channels_last() && !x.is_contiguous()) {  // pads in the order of memory
    const auto moved = [](Axes counts) {
      counts.erase(1);
      counts.push_back(0);
      return counts;
    };
    return movedim(pad(movedim(x, 1, -1), moved(before), moved(after), mode), -1, 1);
  }
  // Gradients of many terms are summed by an index, in f64 and by several threads.
  const bool few_terms = most_terms <= 64 && shape.product() / 8 < x.numel();
  if (few_terms && x.device().is_cpu() && !is_stored_only(x.dtype()) &&
      !autograd::wants_attributes())
    return written_pad(contiguous(x), before, after, mode);
  // One index over these axes and those between them, so that the elements are read once.
  Shape rows, own = Dims::filled(last + 1 - first, 1);
  Tensor index;
  std::int64_t step = 1;
  for (int i = last; i >= first; --i) {
    Shape along = own;
    along[i - first] = shape[i];
    const Tensor at =
        reshape(shown_positions(x.size(i), before[i], after[i], mode, x.device()), along) *
        static_cast<double>(step);
    index = index.defined() ? index + at : at;
    step *= x.size(i);
  }
  for (int i = 0; i < x.rank(); ++i)
    if (i <= first || i > last) rows.push_back(i == first ? step : x.size(i));
  return reshape(index_select(reshape(x, rows), first, flatten(index)), shape);
}
FIRN_AS_OP("pad")

Tensor pixel_shuffle(const Tensor& x, std::int64_t r) {
  constexpr const char* kOp = "pixel_shuffle";
  require_defined(kOp, x);
  FIRN_CHECK(x.rank() >= 3, kOp, "reshape it", "{} is not [..., c, h, w]", describe(x));
  const std::int64_t c = x.size(-3), h = x.size(-2), w = x.size(-1);
  FIRN_CHECK(r > 0, kOp, "1 changes nothing", "r = {} must be positive", r);
  const std::int64_t square = checked_product(kOp, r, r);
  FIRN_CHECK(c % square == 0, kOp, "r^2 channels become a square of pixels",
             "the {} channels of {} are no multiple of {}", c, describe(x), square);
  Shape shape = x.shape();
  const int at = shape.size() - 3;
  shape[at] = c / square;
  shape[at + 1] = checked_product(kOp, h, r);
  shape[at + 2] = checked_product(kOp, w, r);
  std::int64_t n = 1;
  for (int i = 0; i < at; ++i) n *= x.size(i);
  return reshape(permute(reshape(x, {n, c / square, r, r, h, w}), {0, 1, 4, 2, 5, 3}), shape);
}

Tensor pixel_unshuffle(const Tensor& x, std::int64_t r) {
  constexpr const char* kOp = "pixel_unshuffle";
  require_defined(kOp, x);
  FIRN_CHECK(x.rank() >= 3, kOp, "reshape it", "{} is not [..., c, h, w]", describe(x));
  const std::int64_t c = x.size(-3), h = x.size(-2), w = x.size(-1);
  FIRN_CHECK(r > 0 && h % r == 0 && w % r == 0, kOp, "a square of pixels becomes r^2 channels",
             "r = {} does not divide height and width of {}", r, describe(x));
  Shape shape = x.shape();
  const int at = shape.size() - 3;
  shape[at] = checked_product(kOp, c, checked_product(kOp, r, r));
  shape[at + 1] = h / r;
  shape[at + 2] = w / r;
  std::int64_t n = 1;
  for (int i = 0; i < at; ++i) n *= x.size(i);
  return reshape(permute(reshape(x, {n, c, h / r, r, w / r, r}), {0, 1, 3, 5, 2, 4}), shape);
}

Tensor channel_shuffle(const Tensor& x, std::int64_t groups) {
  constexpr const char* kOp = "channel_shuffle";
  require_defined(kOp, x);
  FIRN_CHECK(x.rank() >= 2, kOp, "axis 1 holds the channels", "{} is not [n, c, ...]", describe(x));
  const std::int64_t n = x.size(0), c = x.size(1);
  FIRN_CHECK(groups > 0 && c % groups == 0, kOp, "choose a divisor of the number of channels",
             "{} groups of the channels of {}", groups, describe(x));
  std::int64_t rest = 1;
  for (int i = 2; i < x.rank(); ++i) rest *= x.size(i);
  return reshape(transpose(reshape(x, {n, groups, c / groups, rest}), 1, 2), x.shape());
}

Tensor linspace(double start, double end, std::int64_t count, const LinspaceOptions& options) {
  const auto& [dtype, device] = options;
  FIRN_CHECK(is_floating(dtype), "linspace", "make it in f32 and cast", "dtype {}", dtype);
  FIRN_CHECK(count >= 0, "linspace", "a count is 0 or more", "count is {}", count);
  require_creatable("linspace", {count}, dtype);
  FIRN_CHECK(std::isfinite(start) && std::isfinite(end), "linspace", "both ends are finite",
             "from {} to {}", start, end);
  require_holds("linspace", dtype, start);
  require_holds("linspace", dtype, end);
  if (count == 1) return full({1}, start, dtype, device);
  // From both ends, so that both are exact and the middle is symmetric, as in PyTorch.
  const auto gaps = static_cast<double>(std::max<std::int64_t>(count - 1, 1));
  const double step = end / gaps - start / gaps;  // the difference may overflow
  const Tensor i = arange(count, f64, device);
  const auto last = static_cast<double>(count - 1);
  return cast(
      where(lt(i, static_cast<double>(count / 2)), start + step * i, end - step * (last - i)),
      dtype);
}

}  // namespace firn
