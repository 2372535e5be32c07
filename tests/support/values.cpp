#include "support/values.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "support/catch.h"
#include "support/thread_check.h"

namespace firn::testing {

std::vector<double> Rng::uniforms(std::int64_t count, double low, double high) {
  std::vector<double> v(static_cast<std::size_t>(count));
  for (double& x : v) x = uniform(low, high);
  return v;
}

std::uint64_t seed_of(std::string_view name) noexcept {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

const char* to_string(Layout layout) noexcept {
  constexpr const char* names[] = {"contiguous", "transposed", "channels-last",
                                   "stepped",    "offset",     "expanded"};
  return names[static_cast<int>(layout)];
}

namespace {

struct Geometry {
  Strides strides;
  std::int64_t offset = 0;
  std::int64_t length = 0;  // elements of memory
};

Geometry geometry_of(const Shape& shape, Layout layout) {
  Geometry g{contiguous_strides(shape), 0, 0};
  const int rank = shape.size();
  if (layout == Layout::channels_last && rank >= 3 && rank <= 5) {
    g.strides = strides_in(shape, MemoryFormat::channels_last);
  } else if (layout == Layout::transposed || layout == Layout::channels_last) {
    std::int64_t step = 1;
    for (int i = 0; i < rank; ++i) {
      g.strides[i] = step;
      step *= shape[i] > 0 ? shape[i] : 1;
    }
  } else if (layout == Layout::stepped && rank > 0) {
    Shape longer = shape;
    longer.back() += 1;
    g.strides = contiguous_strides(longer);
    for (auto& s : g.strides) s *= 2;
  } else if (layout == Layout::offset) {
    g.offset = 1;
  } else if (layout == Layout::expanded && rank > 0) {
    g.strides[0] = 0;
  }
  std::int64_t last = 0;
  for (int i = 0; i < rank; ++i) last += (shape[i] > 0 ? shape[i] - 1 : 0) * g.strides[i];
  g.length = g.offset + last + 1;
  return g;
}

template <class T>
void write(const Tensor& buffer, const std::vector<double>& values, const Shape& shape,
           const Geometry& g) {
  T* data = buffer.data<T>();
  for (std::int64_t i = 0; i < g.length; ++i) {
    if constexpr (!std::is_integral_v<T>) {
      data[i] = T(std::nanf(""));
    } else if constexpr (std::is_same_v<T, bool>) {
      data[i] = true;
    } else {
      data[i] = static_cast<T>(T(1) << (sizeof(T) * 8 - 2));
    }
  }
  Shape index = Shape::filled(shape.size(), 0);
  for (double value : values) {
    std::int64_t at = g.offset;
    for (int i = 0; i < shape.size(); ++i) at += index[i] * g.strides[i];
    if constexpr (!std::is_arithmetic_v<T>) {
      data[at] = T(static_cast<float>(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      data[at] = value != 0;
    } else {
      data[at] = static_cast<T>(value);
    }
    for (int i = shape.size() - 1; i >= 0 && ++index[i] == shape[i]; --i) index[i] = 0;
  }
}

}  // namespace

Tensor make(const std::vector<double>& values, const Shape& shape, DType dtype, Layout layout,
            Device device) {
  FIRN_CHECK(static_cast<std::int64_t>(values.size()) == shape.product(), "testing::make", "",
             "{} values for shape {}", values.size(), shape);
  const Geometry g = geometry_of(shape, layout);
  const Tensor buffer = empty({g.length}, dtype, Device::cpu());
  visit(dtype, [&]<class T>() { write<T>(buffer, values, shape, g); });
  return to_device(buffer, device).as_strided(shape, g.strides, g.offset);
}

std::vector<double> values_of(const Tensor& t) { return t.to_vector<double>(); }

const void* address_of(const Tensor& t) { return t.view().data; }

std::vector<double> rounded(std::vector<double> values, DType dtype) {
  for (double& v : values) {
    if (dtype == f16) v = half(static_cast<float>(v));
    if (dtype == bf16) v = bfloat16(static_cast<float>(v));
    if (dtype == f32) v = static_cast<float>(v);
    if (!is_floating(dtype)) v = std::trunc(v);
  }
  return values;
}

std::vector<double> repeated_along_first_axis(std::vector<double> values, const Shape& shape) {
  if (shape.empty() || shape[0] == 0) return values;
  const std::size_t inner = values.size() / static_cast<std::size_t>(shape[0]);
  for (std::size_t i = inner; i < values.size(); ++i) values[i] = values[i - inner];
  return values;
}

namespace {

bool both_special(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (std::isinf(a) && a == b);
}

void report(const std::string& what, const std::vector<double>& got,
            const std::vector<double>& want, const auto& bound) {
  if (got.size() != want.size()) {
    FAIL_CHECK(fmt::format("{}: {} values, expected {}", what, got.size(), want.size()));
    return;
  }
  std::size_t bad = 0, worst = 0;
  double worst_excess = -1;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (both_special(got[i], want[i])) continue;
    const double error = std::fabs(got[i] - want[i]);
    if (error <= bound(i)) continue;
    ++bad;
    // A NaN on one side only is the worst there is.
    const double excess = std::isfinite(error) ? error / (bound(i) + 1e-300) : HUGE_VAL;
    if (excess > worst_excess) worst = i, worst_excess = excess;
  }
  if (bad == 0) {
    SUCCEED();
    return;
  }
  FAIL_CHECK(
      fmt::format("{}: {} of {} values beyond their bound; worst at {}: got {:.17g}, want {:.17g}, "
                  "error {:.3g}, bound {:.3g}",
                  what, bad, got.size(), worst, got[worst], want[worst],
                  std::fabs(got[worst] - want[worst]), bound(worst)));
}

}  // namespace

void expect_close(const std::string& what, const std::vector<double>& got,
                  const std::vector<double>& want, const std::vector<double>& bound) {
  report(what, got, want, [&](std::size_t i) { return bound[i]; });
}

void expect_close(const std::string& what, const std::vector<double>& got,
                  const std::vector<double>& want, double bound) {
  report(what, got, want, [&](std::size_t) { return bound; });
}

void expect_same(const std::string& what, const std::vector<double>& got,
                 const std::vector<double>& want) {
  report(what, got, want,
         [&](std::size_t i) { return std::signbit(got[i]) == std::signbit(want[i]) ? 0.0 : -1.0; });
}

double largest(const std::vector<double>& values) noexcept {
  double m = 0;
  for (double v : values) m = std::fmax(m, std::fabs(v));
  return m;
}

std::string detail::no_error() {
  if (!on_main_thread()) thread_check(false, "a firn::Error is thrown");
  FAIL_CHECK("no firn::Error was thrown");
  return {};
}

}  // namespace firn::testing
