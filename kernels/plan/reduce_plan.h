// The walk of a reduction over its operand: axes are sorted by stride, merged if memory allows, and
// one of them becomes the inner loop.
#pragma once

#include <array>
#include <cstdint>

#include "firn/view.h"

namespace firn::kernels {

/// An axis with the strides of x, of the output (0 if the axis is reduced), and of a second operand
/// with x's shape.
struct ReduceAxis {
  std::int64_t size = 1;
  std::int64_t x = 0;
  std::int64_t out = 0;
  std::int64_t other = 0;
};

/// Nested axes, outermost first. A flat index counts them in row-major order.
class AxisList {
 public:
  int size() const noexcept { return size_; }
  const ReduceAxis& operator[](int i) const noexcept { return axes_[i]; }
  const ReduceAxis& back() const noexcept { return axes_[size_ - 1]; }
  void push_back(const ReduceAxis& a) noexcept { axes_[size_++] = a; }
  ReduceAxis pop_back() noexcept { return axes_[--size_]; }
  ReduceAxis& back() noexcept { return axes_[size_ - 1]; }
  std::int64_t count() const noexcept {
    std::int64_t n = 1;
    for (int i = 0; i < size_; ++i) n *= axes_[i].size;
    return n;
  }
  /// Returns the offsets (in the fields x, out, other) of the element with this flat index.
  ReduceAxis at(std::int64_t index) const noexcept {
    ReduceAxis o;
    for (int i = size_ - 1; i >= 0; --i) {
      const ReduceAxis& a = axes_[i];
      const std::int64_t k = i == 0 ? index : index % a.size;
      index = i == 0 ? 0 : index / a.size;
      o.x += k * a.x;
      o.out += k * a.out;
      o.other += k * a.other;
    }
    return o;
  }
  /// Splits [begin, end) into runs along the last axis, and calls fn(offsets of the first, length,
  /// its flat index). Without axes there is one element.
  template <class Fn>
  void runs(std::int64_t begin, std::int64_t end, Fn&& fn) const {
    const std::int64_t length = size_ == 0 ? 1 : back().size;
    while (begin < end) {
      const std::int64_t left = length - (size_ <= 1 ? begin : begin % length);
      const std::int64_t n = left < end - begin ? left : end - begin;
      fn(at(begin), n, begin);
      begin += n;
    }
  }

 private:
  std::array<ReduceAxis, kMaxRank> axes_{};
  int size_ = 0;
};

struct ReducePlan {
  AxisList kept;           ///< outer axes of the output
  AxisList reduced;        ///< outer axes that are summed over
  ReduceAxis inner;        ///< the inner loop: reduced, or kept if `columns`
  bool columns = false;    ///< true if the inner axis is kept: rows are added to rows
  std::int64_t outputs;    ///< kept.count(): single outputs, or rows of them if `columns`
  std::int64_t reduction;  ///< elements per output
};

/// Returns the plan for x [..] reduced over the axes where out has size 1 and x does not. `other`
/// are the strides of a second operand of x's shape (a gradient).
ReducePlan plan_reduction(const ConstView& x, const ConstView& out, const Strides* other = nullptr);

/// Makes a kept axis the inner loop if `most` elements or fewer lie side by side in an output, or
/// in a row of outputs. So a loop runs over many outputs, and not over each one's few elements,
/// whose order stays. Returns false, with nothing done, if there are more elements, several reduced
/// axes outside of the rows, or few outputs.
bool run_across(ReducePlan& plan, std::int64_t most);

}  // namespace firn::kernels
