// The arithmetic of windows and of resized axes against its definition, for every small size.
#include "kernels/math/image/window.h"
#include "kernels/math/image/resize.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "support/catch.h"

namespace firn::testing {
namespace {

using math::Range;
using math::ResizeAxis;
using math::WindowAxis;

bool within(Range r, std::int64_t i) { return r.begin <= i && i < r.end; }

/// The positions in the image that window i of an axis holds, by its definition.
std::vector<std::int64_t> positions_of(const WindowAxis& a, std::int64_t i) {
  std::vector<std::int64_t> p;
  if (a.adaptive) {
    for (std::int64_t k = 0; k < a.in; ++k)
      if (k >= i * a.in / a.out && k * a.out < (i + 1) * a.in) p.push_back(k);
    return p;
  }
  for (std::int64_t k = 0; k < a.size; ++k) {
    const std::int64_t at = i * a.stride - a.padding + k * a.dilation;
    if (at >= 0 && at < a.in) p.push_back(at);
  }
  return p;
}

bool right(const WindowAxis& a) {
  bool good = true;
  std::vector<std::vector<std::int64_t>> windows;
  for (std::int64_t i = 0; i < a.out; ++i) {
    windows.push_back(positions_of(a, i));
    const Range r = a.positions(i);
    std::vector<std::int64_t> got;
    for (std::int64_t p = r.begin; p < r.end; p += a.dilation) got.push_back(p);
    good = good && got == windows.back();
    if (a.dilation == 1 && !got.empty()) {
      good = good && a.divisor(i, false) == static_cast<std::int64_t>(got.size());
      // Of the padded image [-padding, in + padding), what the window covers.
      std::int64_t padded = 0;
      for (std::int64_t k = 0; k < a.size; ++k) padded += a.first(i) + k < a.in + a.padding;
      good = good && a.divisor(i, true) == (a.adaptive ? r.end - r.begin : padded);
    }
  }
  for (std::int64_t p = 0; p < a.in; ++p) {
    const Range r = a.windows(p);
    good = good && r.begin >= 0 && r.end <= a.out;
    for (std::int64_t i = 0; i < a.out; ++i) {
      const auto& w = windows[static_cast<std::size_t>(i)];
      const bool holds = std::find(w.begin(), w.end(), p) != w.end();
      good = good && (within(r, i) && a.holds(i, p)) == holds;
    }
  }
  if (a.disjoint()) {
    std::int64_t next = 0;  // territories follow each other, and hold their windows
    for (std::int64_t i = 0; i < a.out; ++i) {
      const Range t = a.territory(i);
      good = good && t.begin == next && t.end >= t.begin;
      next = t.end;
      for (const std::int64_t p : windows[static_cast<std::size_t>(i)]) good = good && within(t, p);
    }
    good = good && next == a.in;
  }
  for (std::int64_t k = 0; !a.adaptive && k < a.size; ++k) {
    for (const Range among : {Range{0, a.in}, Range{a.in / 2, a.in}, Range{1, 2}}) {
      for (std::int64_t i = 0; i < a.out; ++i) {
        const std::int64_t p = a.first(i) + k * a.dilation;
        good = good && within(a.windows_with(k, among), i) == within(among, p);
      }
    }
  }
  return good;
}

TEST_CASE("windows hold the positions of their definition, and positions know their windows",
          "[host]") {
  std::int64_t checked = 0;
  for (std::int64_t in = 1; in <= 9; ++in) {
    for (std::int64_t size = 1; size <= 4; ++size) {
      for (std::int64_t stride = 1; stride <= 4; ++stride) {
        for (std::int64_t padding = 0; padding <= size / 2; ++padding) {
          for (std::int64_t dilation = 1; dilation <= 3; ++dilation) {
            const std::int64_t room = in + 2 * padding - dilation * (size - 1) - 1;
            // One window more than fits: ceil_mode.
            for (std::int64_t out = 1; room >= 0 && out <= room / stride + 2; ++out) {
              if ((out - 1) * stride >= in + padding) continue;  // it would begin behind the image
              const WindowAxis a{in, out, size, stride, padding, dilation, false};
              CAPTURE(in, out, size, stride, padding, dilation);
              if (!right(a)) FAIL("wrong");
              ++checked;
            }
          }
        }
      }
    }
  }
  CHECK(checked > 1000);
}

TEST_CASE("adaptive windows cover the image and know who holds a position", "[host]") {
  for (std::int64_t in = 1; in <= 20; ++in) {
    for (std::int64_t out = 1; out <= 20; ++out) {
      WindowAxis a;
      a.in = in;
      a.out = out;
      a.adaptive = true;
      CAPTURE(in, out);
      if (!right(a)) FAIL("wrong");
    }
  }
}

TEST_CASE("resized axes read the sources of their definition, and sources know their readers",
          "[host]") {
  using math::ResizeKind;
  const auto right = [](const ResizeAxis& a) {
    bool good = true;
    for (std::int64_t i = 0; i < a.out; ++i) {
      if (a.taps() == 1) {
        for (std::int64_t p = 0; p < a.in; ++p)
          good = good && within(a.nearest_outputs(p), i) == (a.nearest(i) == p);
        continue;
      }
      const double x = static_cast<double>(i), in = static_cast<double>(a.in),
                   out = static_cast<double>(a.out);
      double at = a.align_corners ? (a.out == 1 ? 0 : x * (in - 1) / (out - 1))
                                  : (x + 0.5) * in / out - 0.5;
      if (a.kind == ResizeKind::linear) at = std::max(0.0, at);
      const auto b = a.between(i);
      const double part = static_cast<double>(b.part) / static_cast<double>(a.divisor());
      good = good && part >= 0 && part < 1;
      good = good && std::abs(static_cast<double>(b.low) + part - at) < 1e-12;
      double total = 0;
      for (std::int64_t p = 0; p < a.in; ++p) {
        bool read = false;
        for (int k = 0; k < a.taps(); ++k) read = read || a.source(b, k) == p;
        const double share = a.weight_of<double>(i, p);
        total += share;
        good = good && (share == 0 || read) && within(a.outputs(p), i) == read;
      }
      good = good && std::abs(total - 1) < 1e-14;
    }
    return good;
  };
  for (const ResizeKind kind :
       {ResizeKind::nearest, ResizeKind::nearest_exact, ResizeKind::linear, ResizeKind::cubic})
    for (const bool align : {false, true})
      for (std::int64_t in = 1; in <= 24; ++in)
        for (std::int64_t out = 1; out <= 24; ++out) {
          CAPTURE(static_cast<int>(kind), align, in, out);
          if (!right(ResizeAxis(in, out, kind, align))) FAIL("wrong");
        }
}

TEST_CASE("division of numbers beyond 32 bits", "[host]") {
  const std::int64_t big = std::int64_t{5} << 40;
  CHECK(math::floor_div(big + 3, 4) == (big + 3) / 4);
  CHECK(math::floor_div(7, big) == 0);
  CHECK(math::ceil_div(big + 1, 2) == big / 2 + 1);
  CHECK(math::ceil_div(-5, 3) == 0);
  CHECK(math::ceil_div(0, 3) == 0);
  CHECK(math::floor_div(0xffffffff, 2) == 0x7fffffff);
}

}  // namespace
}  // namespace firn::testing
