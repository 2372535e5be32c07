// Prints tensors as text.
#include <algorithm>
#include <cmath>
#include <ostream>

#include "base/check.h"
#include "firn/tensor.h"
#include "tensor/impl.h"

namespace firn {
namespace {

constexpr std::int64_t kEdge = 3;         // items shown at each end of a long axis
constexpr std::int64_t kSummarize = 200;  // elements above which axes are shortened

/// The number format for all values shown: plain integers, fixed or scientific.
struct NumberStyle {
  bool integral = true;
  bool scientific = false;
  std::size_t width = 1;

  std::string write(double v) const {
    if (!std::isfinite(v)) return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
    if (integral) return fmt::format("{:.0f}", v);
    return scientific ? fmt::format("{:.4e}", v) : fmt::format("{:.4f}", v);
  }
};

class Printer {
 public:
  explicit Printer(const Tensor& t)
      : shape_(t.shape()), strides_(contiguous_strides(t.shape())), dtype_(t.dtype()) {
    values_ = t.to_vector<double>();
    if (dtype_ == i64) integers_ = t.to_vector<std::int64_t>();
    shorten_ = static_cast<std::int64_t>(values_.size()) > kSummarize;
    choose_style();
  }

  std::string write() {
    write_axis(0, 0);
    return std::move(out_);
  }

 private:
  bool has_fractions() const { return is_floating(dtype_) || is_float8(dtype_); }

  bool hidden(std::int64_t i, std::int64_t n) const {
    return shorten_ && n > 2 * kEdge && i >= kEdge && i < n - kEdge;
  }

  template <class Fn>
  void for_shown(int axis, std::int64_t offset, Fn&& fn) const {
    if (axis == shape_.size()) return fn(static_cast<std::size_t>(offset));
    for (std::int64_t i = 0; i < shape_[axis]; ++i)
      if (!hidden(i, shape_[axis])) for_shown(axis + 1, offset + i * strides_[axis], fn);
  }

  void choose_style() {
    double largest = 0, smallest = INFINITY;
    for_shown(0, 0, [&](std::size_t at) {
      const double v = values_[at];
      if (!std::isfinite(v)) return;
      style_.integral &= v == std::nearbyint(v) && std::fabs(v) < 1e7;
      if (v != 0) {
        largest = std::fmax(largest, std::fabs(v));
        smallest = std::fmin(smallest, std::fabs(v));
      }
    });
    if (!has_fractions()) style_.integral = true;
    style_.scientific = !style_.integral && (largest >= 1e6 || smallest < 1e-3);
    for_shown(0, 0,
              [&](std::size_t at) { style_.width = std::max(style_.width, text(at).size()); });
  }

  std::string text(std::size_t at) const {
    if (dtype_ == i64) return std::to_string(integers_[at]);  // a double has 53 bits
    const double v = values_[at];
    if (dtype_ == DType::boolean) return v != 0 ? "true" : "false";
    std::string s = style_.write(v);
    if (style_.integral && has_fractions() && std::isfinite(v)) s += '.';
    return s;
  }

  void write_axis(int axis, std::int64_t offset) {
    if (axis == shape_.size()) {
      out_ += fmt::format("{:>{}}", text(static_cast<std::size_t>(offset)), style_.width);
      return;
    }
    const std::int64_t n = shape_[axis];
    const bool innermost = axis + 1 == shape_.size();
    const std::string line_break =
        innermost ? ", "
                  : fmt::format(",{:\n<{}}{:{}}", "", shape_.size() - axis - 1, "", axis + 1);
    out_ += '[';
    bool ellipsis = false;
    for (std::int64_t i = 0; i < n; ++i) {
      if (hidden(i, n)) {
        if (!ellipsis) out_ += line_break + "...";
        ellipsis = true;
        continue;
      }
      if (i > 0) out_ += line_break;
      write_axis(axis + 1, offset + i * strides_[axis]);
    }
    out_ += ']';
  }

  Shape shape_;
  Strides strides_;
  DType dtype_;
  std::vector<double> values_;
  std::vector<std::int64_t> integers_;
  bool shorten_ = false;
  NumberStyle style_;
  std::string out_;
};

}  // namespace

std::string describe(const Tensor& t) try {
  if (!t.defined()) return "undefined";
  return fmt::format("{} {} {}", t.shape(), t.dtype(), t.device());
}
FIRN_OUT_OF_MEMORY("the description of a tensor")

std::string to_string(const Tensor& t) try {
  if (!t.defined()) return "undefined tensor";
  const std::string values = t.numel() == 0 ? "[]" : Printer(t).write();
  return fmt::format("{}\n{}{}", values, describe(t), t.requires_grad() ? ", requires grad" : "");
}
FIRN_OUT_OF_MEMORY("the text of a tensor")

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << to_string(t); }

}  // namespace firn
