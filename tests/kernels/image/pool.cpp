// Pooling and resizing against plain loops over windows, on the device under test: every option,
// dtype and order in memory, ties and NaN, sinks with something in them, and the bits for any
// number of threads and in every order of a device's threads.
#include "kernels/pool.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/resample.h"
#include "support/catch.h"
#include "support/device/simulator.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using kernels::PoolWindows;
using Values = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();

Stream here() { return current_stream(default_device()); }

constexpr Layout kLayouts[] = {Layout::contiguous, Layout::channels_last, Layout::transposed,
                               Layout::stepped};

struct Case {
  std::string name;
  Shape in, out;
  PoolWindows windows;
};

/// Windows drawn at random over images with about `channels` channels.
Case random_case(Rng& rng, std::int64_t channels, bool dilated) {
  Case c;
  c.in = {rng.below(3) + 1, channels, rng.below(9) + 1, rng.below(9) + 1};
  c.out = {c.in[0], channels, 0, 0};
  c.windows.count_padding = rng.below(2) == 0;
  c.windows.adaptive = rng.below(4) == 0;
  c.name = c.windows.adaptive ? "adaptive" : c.windows.count_padding ? "" : "without padding";
  for (int axis = 0; axis < 2; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    const std::int64_t in = c.in[2 + axis];
    std::int64_t& out = c.out[2 + axis];
    if (c.windows.adaptive) {
      out = rng.below(7) + 1;
      continue;
    }
    const std::int64_t size = rng.below(std::min<std::int64_t>(in, 4)) + 1;
    const std::int64_t padding = rng.below(size / 2 + 1), stride = rng.below(4) + 1;
    std::int64_t dilation = dilated ? rng.below(3) + 1 : 1;
    if (dilation * (size - 1) + 1 > in + 2 * padding) dilation = 1;
    out =
        (in + 2 * padding - dilation * (size - 1) - 1 + (rng.below(2) ? stride - 1 : 0)) / stride +
        1;
    if ((out - 1) * stride >= in + padding) --out;
    c.windows.size[a] = size;
    c.windows.padding[a] = padding;
    c.windows.stride[a] = stride;
    c.windows.dilation[a] = dilation;
    c.name += " " + std::to_string(size) + "/" + std::to_string(stride) + " padding " +
              std::to_string(padding) + " dilation " + std::to_string(dilation);
  }
  c.name += " of " + to_string(c.in) + " to " + to_string(c.out);
  return c;
}

/// Calls fn(case) for cases of all kinds.
void for_cases(const char* seed, bool dilated, const std::function<void(const Case&)>& fn) {
  Rng rng(seed_of(seed));
  for (const std::int64_t channels : {1, 2, 7, 16, 33}) {
    for (int k = 0; k < 12; ++k) fn(random_case(rng, channels, dilated));
  }
  fn(random_case(rng, 300, dilated));  // more than one span of channels
  // More windows in a row than one span; a window of more rows than are folded in one pass.
  Case wide;
  wide.name = "wide";
  wide.in = {1, 2, 3, 700};
  wide.out = {1, 2, 2, 350};
  wide.windows.size = {2, 3};
  wide.windows.stride = {1, 2};
  wide.windows.padding = {0, 1};
  fn(wide);
  Case large;
  large.name = "large window";
  large.in = {2, 19, 7, 8};
  large.out = {2, 19, 2, 2};
  large.windows.size = {6, 7};
  fn(large);
}

/// Calls fn(window's output, position) for every position in the image of every window.
void each_tap(const Case& c,
              const std::function<void(std::size_t, std::int64_t, std::size_t)>& fn) {
  const auto positions = [&](int axis, std::int64_t i) {
    const auto a = static_cast<std::size_t>(axis);
    const std::int64_t in = c.in[2 + axis], out = c.out[2 + axis];
    std::vector<std::int64_t> p;
    if (c.windows.adaptive) {
      for (std::int64_t k = i * in / out; k * out < (i + 1) * in; ++k) p.push_back(k);
      return p;
    }
    for (std::int64_t k = 0; k < c.windows.size[a]; ++k) {
      const std::int64_t at =
          i * c.windows.stride[a] - c.windows.padding[a] + k * c.windows.dilation[a];
      if (at >= 0 && at < in) p.push_back(at);
    }
    return p;
  };
  const std::int64_t height = c.in[2], width = c.in[3];
  for (std::int64_t image = 0; image < c.in[0] * c.in[1]; ++image) {
    for (std::int64_t i = 0; i < c.out[2]; ++i) {
      for (std::int64_t j = 0; j < c.out[3]; ++j) {
        const auto o = static_cast<std::size_t>((image * c.out[2] + i) * c.out[3] + j);
        for (const std::int64_t h : positions(0, i))
          for (const std::int64_t w : positions(1, j))
            fn(o, h * width + w, static_cast<std::size_t>((image * height + h) * width + w));
      }
    }
  }
}

/// The count that a mean divides by, by its definition: positions of the padded image, or of the
/// image.
double divisor(const Case& c, std::size_t o) {
  const std::int64_t plane = c.out[2] * c.out[3];
  const std::int64_t ij[2] = {static_cast<std::int64_t>(o) % plane / c.out[3],
                              static_cast<std::int64_t>(o) % c.out[3]};
  std::int64_t count = 1;
  for (int axis = 0; axis < 2; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    const std::int64_t in = c.in[2 + axis], out = c.out[2 + axis], i = ij[axis];
    std::int64_t n = 0;
    if (c.windows.adaptive) {
      n = ((i + 1) * in + out - 1) / out - i * in / out;
    } else {
      const std::int64_t around = c.windows.count_padding ? c.windows.padding[a] : 0;
      for (std::int64_t k = 0; k < c.windows.size[a]; ++k) {
        const std::int64_t at = i * c.windows.stride[a] - c.windows.padding[a] + k;
        n += at >= -around && at < in + around;
      }
    }
    count *= n;
  }
  return static_cast<double>(count);
}

struct Maxima {
  Values y, index;
};
Maxima naive_max(const Case& c, const Values& x) {
  const auto n = static_cast<std::size_t>(c.out.product());
  Maxima m{Values(n, -kInf), Values(n, -1)};
  each_tap(c, [&](std::size_t o, std::int64_t position, std::size_t at) {
    const double v = x[at], best = m.y[o];
    if (m.index[o] < 0 || v > best || (std::isnan(v) && !std::isnan(best))) {
      m.y[o] = v;
      m.index[o] = static_cast<double>(position);
    }
  });
  return m;
}

/// Whole numbers with ties, and now and then a NaN or an infinity.
Values with_specials(Rng& rng, std::int64_t count) {
  Values v(static_cast<std::size_t>(count));
  for (double& x : v) {
    x = static_cast<double>(rng.below(5)) - 2;
    const std::int64_t special = rng.below(40);
    if (special == 0) x = std::nan("");
    if (special == 1) x = -kInf;
  }
  return v;
}
Values whole_numbers(Rng& rng, std::int64_t count) {
  Values v(static_cast<std::size_t>(count));
  for (double& x : v) x = static_cast<double>(rng.below(9)) - 4;
  return v;
}

TEST_CASE("max_pool is the largest of each window and its first place, to the bit") {
  for_cases("max", true, [](const Case& c) {
    Rng rng(seed_of(c.name));
    const Values x = with_specials(rng, c.in.product());
    const Maxima want = naive_max(c, x);
    for (const DType t : {f32, f16, bf16, f64}) {
      for (const Layout layout : kLayouts) {
        if (t != f32 && layout == Layout::transposed) continue;
        const std::string what = c.name + " " + to_string(t) + " " + to_string(layout);
        const Tensor y = make(Values(want.y.size(), 9), c.out, t, layout);
        const Tensor index = make(Values(want.y.size(), 9), c.out, i32, layout);
        const Tensor tx = make(x, c.in, t, layout);
        kernels::max_pool(tx.view(), c.windows, y.mutable_view(), index.mutable_view(), here());
        expect_same(what, values_of(y), want.y);
        expect_same("index, " + what, values_of(index), want.index);
        // From one order into another, without an index.
        const Tensor other = make(Values(want.y.size(), 9), c.out, t, Layout::channels_last);
        kernels::max_pool(tx.view(), c.windows, other.mutable_view(), View{}, here());
        expect_same("channels-last, " + what, values_of(other), want.y);
      }
    }
  });
}

/// Runs `backward(dy, dx, beta)` with sinks of the dtype and the compute dtype, empty or not, in
/// all orders, and compares with `want`, sums of whole numbers or numbers near them.
void check_sinks(const Case& c, const Values& dy, const Values& want, double tolerance,
                 const std::function<void(const Tensor& dy, const Tensor& dx, float beta, DType t,
                                          Layout layout)>& backward) {
  Rng rng(seed_of(c.name + " before"));
  const Values before = whole_numbers(rng, c.in.product());
  Values sum = want;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
  const double size = largest(want) + largest(before);
  for (const DType t : {f32, f16, bf16, f64}) {
    for (const Layout layout : kLayouts) {
      if (t != f32 && layout == Layout::transposed) continue;
      const std::string what = c.name + " " + to_string(t) + " " + to_string(layout);
      const Tensor tdy = make(dy, c.out, t, layout);
      const auto bound = [&](const Values& v) {
        Values b(v.size());
        for (std::size_t i = 0; i < b.size(); ++i)
          b[i] = tolerance * (8 * epsilon_of(f32) * size + 2 * epsilon_of(t) * std::abs(v[i]) +
                              (t == f16 ? 0x1p-25 : 0));
        return b;
      };
      const Tensor fresh = make(Values(want.size(), std::nan("")), c.in, t, layout);
      backward(tdy, fresh, 0, t, layout);
      expect_close("gradient, " + what, values_of(fresh), want, bound(want));
      const Tensor added = make(before, c.in, compute_dtype(t), layout);
      backward(tdy, added, 1, t, layout);
      expect_close("gradient added, " + what, values_of(added), sum, bound(sum));
    }
  }
}

TEST_CASE("max_pool_backward gives each window's gradient to its largest position") {
  for_cases("max backward", true, [](const Case& c) {
    Rng rng(seed_of(c.name));
    const Maxima m = naive_max(c, with_specials(rng, c.in.product()));
    const Values dy = whole_numbers(rng, c.out.product());
    Values want(static_cast<std::size_t>(c.in.product()), 0.0);
    each_tap(c, [&](std::size_t o, std::int64_t position, std::size_t at) {
      if (m.index[o] == static_cast<double>(position)) want[at] += dy[o];
    });
    check_sinks(c, dy, want, 0,
                [&](const Tensor& d, const Tensor& dx, float beta, DType, Layout l) {
                  const Tensor index = make(m.index, c.out, i32, l);
                  kernels::max_pool_backward(d.view(), index.view(), c.windows, dx.mutable_view(),
                                             beta, here());
                });
  });
}

TEST_CASE("avg_pool is the mean of each window") {
  for_cases("avg", false, [](const Case& c) {
    Rng rng(seed_of(c.name));
    const Values x = whole_numbers(rng, c.in.product());
    Values want(static_cast<std::size_t>(c.out.product()), 0.0);
    each_tap(c, [&](std::size_t o, std::int64_t, std::size_t at) { want[o] += x[at]; });
    for (std::size_t o = 0; o < want.size(); ++o) want[o] /= divisor(c, o);
    for (const DType t : {f32, f16, bf16, f64}) {
      for (const Layout layout : kLayouts) {
        if (t != f32 && layout == Layout::transposed) continue;
        const Tensor y = make(Values(want.size(), 9), c.out, t, layout);
        kernels::avg_pool(make(x, c.in, t, layout).view(), c.windows, y.mutable_view(), here());
        Values bound(want.size());
        for (std::size_t o = 0; o < bound.size(); ++o)
          bound[o] = 1.01 * epsilon_of(t) * std::abs(want[o]) + (t == f16 ? 0x1p-25 : 0);
        // Sums of whole numbers are exact, and the quotient is rounded once, or twice to 16 bits.
        expect_close(c.name + " " + to_string(t) + " " + to_string(layout), values_of(y), want,
                     bound);
      }
    }
  });
}

TEST_CASE("avg_pool_backward shares each window's gradient out") {
  for_cases("avg backward", false, [](const Case& c) {
    Rng rng(seed_of(c.name));
    const Values dy = whole_numbers(rng, c.out.product());
    Values want(static_cast<std::size_t>(c.in.product()), 0.0);
    each_tap(
        c, [&](std::size_t o, std::int64_t, std::size_t at) { want[at] += dy[o] / divisor(c, o); });
    check_sinks(c, dy, want, 1, [&](const Tensor& d, const Tensor& dx, float beta, DType, Layout) {
      kernels::avg_pool_backward(d.view(), c.windows, dx.mutable_view(), beta, here());
    });
  });
}

// ---- Resizing ----

using kernels::Resampling;
using math::ResizeKind;

struct Kind {
  const char* name;
  Resampling how;
};
constexpr Kind kKinds[] = {{"nearest", {ResizeKind::nearest, false}},
                           {"nearest_exact", {ResizeKind::nearest_exact, false}},
                           {"bilinear", {ResizeKind::linear, false}},
                           {"bilinear corners", {ResizeKind::linear, true}},
                           {"bicubic", {ResizeKind::cubic, false}},
                           {"bicubic corners", {ResizeKind::cubic, true}}};

/// Cubic convolution (Keys 1981) with a = -0.75.
double cubic_weight(double x) {
  if (x <= 1) return ((1.25 * x - 2.25) * x) * x + 1;
  return x < 2 ? ((-0.75 * x + 3.75) * x - 6) * x + 3 : 0;
}

/// Calls fn(output, source, weight) for all that a resized image reads, by the definition.
void each_source(const Case& c, const Resampling& how,
                 const std::function<void(std::size_t, std::size_t, double)>& fn) {
  struct Source {
    std::int64_t at;
    double weight;
  };
  const auto sources = [&](int axis, std::int64_t i) -> std::vector<Source> {
    const std::int64_t in = c.in[2 + axis], out = c.out[2 + axis];
    const auto size = static_cast<double>(in), made = static_cast<double>(out);
    if (how.kind == ResizeKind::nearest) return {{i * in / out, 1}};
    if (how.kind == ResizeKind::nearest_exact) return {{(2 * i + 1) * in / (2 * out), 1}};
    double at = (static_cast<double>(i) + 0.5) * size / made - 0.5;
    if (how.align_corners) at = out == 1 ? 0 : static_cast<double>(i) * (size - 1) / (made - 1);
    if (how.kind == ResizeKind::linear) at = std::max(0.0, at);
    const double floor = std::floor(at + 1e-12), t = at - floor;
    const auto low = static_cast<std::int64_t>(floor);
    if (how.kind == ResizeKind::linear) return {{low, 1 - t}, {std::min(low + 1, in - 1), t}};
    std::vector<Source> four;
    for (std::int64_t k = -1; k < 3; ++k)
      four.push_back({std::clamp<std::int64_t>(low + k, 0, in - 1),
                      cubic_weight(std::abs(t - static_cast<double>(k)))});
    return four;
  };
  for (std::int64_t image = 0; image < c.in[0] * c.in[1]; ++image)
    for (std::int64_t i = 0; i < c.out[2]; ++i)
      for (std::int64_t j = 0; j < c.out[3]; ++j)
        for (const Source& h : sources(0, i))
          for (const Source& w : sources(1, j))
            fn(static_cast<std::size_t>((image * c.out[2] + i) * c.out[3] + j),
               static_cast<std::size_t>((image * c.in[2] + h.at) * c.in[3] + w.at),
               h.weight * w.weight);
}

void for_sizes(const std::function<void(const Case&)>& fn) {
  Rng rng(12);
  for (const std::int64_t channels : {1, 3, 16, 21}) {
    for (int k = 0; k < 9; ++k) {
      Case c;
      c.in = {rng.below(2) + 1, channels, rng.below(8) + 1, rng.below(8) + 1};
      c.out = {c.in[0], channels, rng.below(12) + 1, rng.below(12) + 1};
      c.name = to_string(c.in) + " to " + to_string(c.out);
      fn(c);
    }
  }
  fn({"many channels", {1, 300, 2, 3}, {1, 300, 3, 2}, {}});
  fn({"wider", {1, 2, 2, 3}, {1, 2, 3, 700}, {}});
  fn({"narrower", {1, 2, 2, 700}, {1, 2, 1, 3}, {}});
}

TEST_CASE("resampled images read the sources of their definition, and give their gradient back") {
  int turn = 0;
  for_sizes([&](const Case& c) {
    for (const Kind& kind : kKinds) {
      const Resampling how = kind.how;
      const bool one = how.kind == ResizeKind::nearest || how.kind == ResizeKind::nearest_exact;
      const bool cubic = how.kind == ResizeKind::cubic;
      const bool always = !how.align_corners && !cubic && how.kind != ResizeKind::nearest_exact;
      if (!always && ++turn % 3 != 0) continue;  // a third of the cases, in turn
      Case named = c;
      named.name += std::string(" ") + kind.name;
      Rng rng(seed_of(named.name));
      const Values x = whole_numbers(rng, c.in.product()), dy = whole_numbers(rng, c.out.product());
      Values want(dy.size(), 0.0), gradient(x.size(), 0.0);
      each_source(c, how, [&](std::size_t o, std::size_t at, double weight) {
        want[o] += weight * x[at];
        gradient[at] += weight * dy[o];
      });
      for (const DType t : {f32, f16, bf16, f64}) {
        for (const Layout layout : kLayouts) {
          if (t != f32 && layout == Layout::transposed) continue;
          const Tensor y = make(Values(want.size(), 9), c.out, t, layout);
          kernels::resample(make(x, c.in, t, layout).view(), how, y.mutable_view(), here());
          Values bound(want.size(), 0.0);
          for (std::size_t o = 0; !one && o < bound.size(); ++o)
            bound[o] = (cubic ? 40 : 10) * epsilon_of(f32) * 4 +  // |x| <= 4
                       2 * epsilon_of(t) * std::abs(want[o]) + (t == f16 ? 0x1p-25 : 0);
          expect_close(named.name + " " + to_string(t), values_of(y), want, bound);
        }
      }
      // A wide output sums hundreds of terms for a source.
      const double tolerance = (cubic ? 4 : 1) * (1 + static_cast<double>(dy.size()) / 100.0);
      check_sinks(named, dy, gradient, tolerance,
                  [&](const Tensor& d, const Tensor& dx, float beta, DType, Layout) {
                    kernels::resample_backward(d.view(), how, dx.mutable_view(), beta, here());
                  });
    }
  });
}

// ---- The same bits ----

/// What all kernels make of one problem, as one list.
Values all_kernels(const Shape& in, Layout layout) {
  const Shape out = {in[0], in[1], (in[2] - 1) / 2 + 1, (in[3] - 1) / 2 + 1};
  PoolWindows windows;
  windows.size = {3, 3};
  windows.stride = {2, 2};
  windows.padding = {1, 1};
  Rng rng(5);
  const auto drawn = [&](const Shape& s) {
    return make(rng.uniforms(s.product(), -1, 1), s, f32, layout);
  };
  const auto blank = [&](const Shape& s, DType t) {
    return make(Values(static_cast<std::size_t>(s.product()), 0.0), s, t, layout);
  };
  const Tensor x = drawn(in), dy = drawn(out);
  const Tensor y = blank(out, f32), index = blank(out, i32), dx = drawn(in), mean = blank(out, f32);
  const Tensor shared = drawn(in), smaller = blank(out, f32), spread = drawn(in);
  kernels::max_pool(x.view(), windows, y.mutable_view(), index.mutable_view(), here());
  kernels::max_pool_backward(dy.view(), index.view(), windows, dx.mutable_view(), 1, here());
  kernels::avg_pool(x.view(), windows, mean.mutable_view(), here());
  kernels::avg_pool_backward(dy.view(), windows, shared.mutable_view(), 1, here());
  const Resampling cubic{ResizeKind::cubic, false};
  kernels::resample(x.view(), cubic, smaller.mutable_view(), here());
  kernels::resample_backward(dy.view(), cubic, spread.mutable_view(), 1, here());
  Values all;
  for (const Tensor& t : {y, index, dx, mean, shared, smaller, spread}) {
    const Values v = values_of(t);
    all.insert(all.end(), v.begin(), v.end());
  }
  return all;
}

TEST_CASE("pooling and resizing have the same bits for any number of threads", "[host]") {
  for (const Layout layout : kLayouts) {
    Values want;
    for (const int n : {1, 2, 3}) {
      const Threads threads(n);
      const Values got = all_kernels({6, 40, 25, 26}, layout);
      if (n == 1) want = got;
      expect_same(std::to_string(n) + " threads", got, want);
    }
  }
}

TEST_CASE("pooling and resizing on a device agree with the CPU", "[gpu]") {
  for (const Layout layout : kLayouts) {
    const Values got = all_kernels({2, 18, 9, 12}, layout);
    Values want;
    {
      const DeviceScope scope(Device::cpu());
      want = all_kernels({2, 18, 9, 12}, layout);
    }
    // Positions and maxima are equal; means and mixtures differ by the rounding of fused products.
    expect_close(to_string(layout), got, want, 2e-6);
  }
}

#ifdef FIRN_HAS_CUSIM
TEST_CASE("pooling and resizing have the same bits in every order of threads and blocks", "[gpu]") {
  expect_same_in_every_order([] { return all_kernels({2, 9, 9, 12}, Layout::channels_last); });
}
#endif

}  // namespace
}  // namespace firn::testing
