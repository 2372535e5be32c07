// Adds at positions that tensors hold, and finds positions that values decide.
#include <algorithm>

#include "firn/ops/index.h"
#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "kernels/copy.h"
#include "kernels/index.h"
#include "ops/common.h"
#include "ops/gradient/again.h"
#include "ops/index/positions.h"
#include "ops/reduce/reduction.h"

namespace firn {

using namespace ops;

namespace {

/// Returns the sizes to which both broadcast on the axes other than `axis`.
Shape shared_sizes(const char* op, const Tensor& x, const Tensor& index, int axis) {
  Shape out = x.shape();
  for (int i = 0; i < x.rank(); ++i) {
    if (i == axis) continue;
    const std::int64_t a = x.size(i), b = index.size(i);
    FIRN_CHECK(a == b || a == 1 || b == 1, op, "unsqueeze or slice the index",
               "axis {} does not broadcast: x {}, index {}", i, describe(x), describe(index));
    out[i] = a == 1 ? b : a;
  }
  return out;
}

/// The elements of a bool tensor that hold, found on the host, which waits for the device. By
/// shapes alone, all of them do.
class HeldElements {
 public:
  HeldElements(const char* op, const Tensor& mask) {
    if (autograd::wants_attributes()) [[unlikely]]
      thread_context.attributes->cannot_repeat(op, "the size of its result depends on the values",
                                               "where() keeps the shape");
    mask_ = to_device(contiguous(mask), Device::cpu());
    count_ = mask_.numel();
    if (runtime::dry_run()) return;
    const bool* const p = mask_.data<bool>();
    count_ = std::count(p, p + mask_.numel(), true);
  }
  std::int64_t count() const noexcept { return count_; }

  /// Calls fn(position) for each of them in row-major order. Does nothing in a dry run.
  template <class Fn>
  void for_each(Fn&& fn) const {
    if (runtime::dry_run()) return;
    constexpr std::int64_t kBlock = 1024;
    std::int32_t found[kBlock];
    const bool* const p = mask_.data<bool>();
    for (std::int64_t first = 0; first < mask_.numel(); first += kBlock) {
      const std::int64_t n = std::min(kBlock, mask_.numel() - first);
      int held = 0;  // counted without a branch, which would be mispredicted half of the time
      for (std::int32_t i = 0; i < n; ++i) {
        found[held] = i;
        held += p[first + i] ? 1 : 0;
      }
      for (int i = 0; i < held; ++i) fn(first + found[i]);
    }
  }

 private:
  Tensor mask_;
  std::int64_t count_ = 0;
};

/// Flat positions at which the mask holds, in row-major order: a list.
Tensor held_positions(const char* op, const Tensor& mask) {
  const HeldElements held(op, mask);
  const Tensor out = empty({held.count()}, i64, Device::cpu());
  std::int64_t* to = out.data<std::int64_t>();
  held.for_each([&](std::int64_t position) { *to++ = position; });
  return to_device(out, mask.device());
}

}  // namespace

Tensor ops::add_at(const char* op, const Tensor& x, const Tensor& index, const Tensor& src,
                   int axis) {
  const Tensor y = clone(x.detach());
  if (is_floating(x.dtype())) {
    kernels::gather_backward(op, src.view(), index.view(), y.mutable_view(), axis, 1, stream_of(x));
  } else {
    kernels::put(op, src.view(), index.view(), y.mutable_view(), axis, kernels::Meeting::sum,
                 stream_of(x));
  }
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"axis", axis}, {"index", &index}});
  const auto backward = [op, axis](Backward& b) {
    if (b.needs(0)) b.accumulate(0, b.grad());
    if (!b.needs(1)) return;
    const OwnerScope owner(Owner::workspace);
    const Tensor taken = empty(b.saved(0).shape(), b.grad().dtype(), b.grad().device());
    kernels::gather(op, b.grad().view(), b.saved(0).view(), taken.mutable_view(), axis, b.stream());
    b.accumulate(1, taken);
  };
  return record(op, y, {&x, &src}, {Saved::other(index)},
                with_again(backward, [axis](GraphBackward& b) {
                  b.add(0, b.grad());
                  if (b.needs(1)) b.add(1, gather(b.grad(), axis, b.saved(0)));
                }));
}

Tensor take_along(const Tensor& x, const Tensor& index, std::int64_t axis) {
  constexpr const char* kOp = "take_along";
  require_defined(kOp, x);
  require_index(kOp, index);
  require_same_device(kOp, x, index);
  FIRN_CHECK(index.rank() == x.rank(), kOp, "unsqueeze the index",
             "the index has x's number of axes: x {}, index {}", describe(x), describe(index));
  const int a = normalize_axis(kOp, axis, x.rank());
  Shape of_x = shared_sizes(kOp, x, index, a), of_index = of_x;
  of_index[a] = index.size(a);
  return ops::take_along(kOp, expand(x, of_x), a, expand(index, of_index));
}

Tensor scatter_add(const Tensor& x, std::int64_t axis, const Tensor& index, const Tensor& src) {
  constexpr const char* kOp = "scatter_add";
  require_numbers(kOp, x);
  const Placed at = elements_at(kOp, x, axis, index, src);
  return at.back(add_at(kOp, at.x, at.index, at.src, at.axis));
}

Tensor index_add(const Tensor& x, std::int64_t axis, const Tensor& index, const Tensor& src,
                 double alpha) {
  constexpr const char* kOp = "index_add";
  require_numbers(kOp, x);
  require_holds(kOp, x.dtype(), alpha);
  const Placed at = slices_at(kOp, x, axis, index, src);
  if (alpha == 1) return at.back(add_at(kOp, at.x, at.index, at.src, at.axis));
  return at.back(rounded_once(
      [&](const Tensor& to, const Tensor& from) {
        return add_at(kOp, to, at.index, mul(from, alpha), at.axis);
      },
      at.x, at.src));
}

Sorted kthvalue(const Tensor& x, std::int64_t k, std::int64_t axis, bool keepdims) {
  constexpr const char* kOp = "kthvalue";
  require_computed(kOp, x);
  if (x.rank() == 0) {
    const Sorted one = kthvalue(unsqueeze(x, 0), k, axis);
    return {one.values, one.indices};
  }
  const int a = normalize_axis(kOp, axis, x.rank());
  FIRN_CHECK(k >= 1 && k <= x.size(a), kOp, "k is 1 to the size of the axis",
             "k is {} on axis {} of {}", k, axis, describe(x));
  const Sorted least = topk(x, k, a, {.largest = false});
  const auto last = [&](const Tensor& t) {
    return keepdims ? slice(t, a, k - 1, k) : select(t, a, k - 1);
  };
  return {last(least.values), last(least.indices)};
}

Tensor nonzero(const Tensor& x) {
  require_computed("nonzero", x);
  const HeldElements held("nonzero", x.dtype() == DType::boolean ? x : ne(x, 0));
  const int rank = x.rank();
  const Tensor out = empty({held.count(), rank}, i64, Device::cpu());
  const std::int64_t width = rank > 0 ? x.size(-1) : 1;
  Dims at = Dims::filled(rank, 0);  // the first element of the last line that was met
  std::int64_t line = 0;
  std::int64_t* to = out.data<std::int64_t>();
  held.for_each([&](std::int64_t position) {
    if (position - line >= width) {
      std::int64_t number = position / width;
      line = number * width;
      for (int a = rank - 2; a >= 0; --a) {
        at[a] = number % x.size(a);
        number /= x.size(a);
      }
    }
    for (int a = 0; a + 1 < rank; ++a) *to++ = at[a];
    if (rank > 0) *to++ = position - line;
  });
  return to_device(out, x.device());
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  constexpr const char* kOp = "masked_select";
  require_defined(kOp, x);
  require_defined(kOp, mask);
  FIRN_CHECK(mask.dtype() == DType::boolean, kOp, "compare: gt(mask, 0)",
             "the mask is bool, got {}", describe(mask));
  require_same_device(kOp, x, mask);
  const Shape shape = broadcast_shapes(kOp, x.shape(), mask.shape());
  return index_select(flatten(expand(x, shape)), 0, held_positions(kOp, expand(mask, shape)));
}

}  // namespace firn
