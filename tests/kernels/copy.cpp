// Copies, fills and sequences: the CPU against the definition, CUDA devices against the CPU.
#include "kernels/copy.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/twins.h"
#include "support/catch.h"
#include "support/device/run_kernel.h"

namespace {

using namespace firn;
namespace run = firn::testing::run;

/// Number `i` as an element of T that differs from its neighbours.
template <class T>
T number(std::int64_t i) {
  if constexpr (std::is_same_v<T, bool>) {
    return i % 3 == 0;
  } else if constexpr (sizeof(T) <= 2) {
    return static_cast<T>(static_cast<float>(i % 200));
  } else {
    return static_cast<T>(i);
  }
}

template <class T>
void check_copy(const Shape& shape, const Strides& from, const Strides& to) {
  std::int64_t from_size = 1, to_size = 1;
  for (int i = 0; i < shape.size(); ++i) {
    from_size += (shape[i] - 1) * from[i];
    to_size += (shape[i] - 1) * to[i];
  }
  const auto src = std::make_unique<T[]>(static_cast<std::size_t>(from_size));
  const auto dst = std::make_unique<T[]>(static_cast<std::size_t>(to_size));
  for (std::int64_t i = 0; i < from_size; ++i) src[i] = number<T>(i);
  run::copy({src.get(), dtype_of<T>, Device(), shape, from},
            {dst.get(), dtype_of<T>, Device(), shape, to});
  std::int64_t index[kMaxRank] = {};
  int bad = 0;
  for (std::int64_t i = 0; i < shape.product(); ++i) {
    std::int64_t f = 0, t = 0;
    for (int d = 0; d < shape.size(); ++d) f += index[d] * from[d], t += index[d] * to[d];
    bad += static_cast<double>(dst[t]) != static_cast<double>(src[f]);
    for (int d = shape.size() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
  INFO(to_string(dtype_of<T>) << " " << to_string(shape) << " from " << to_string(from) << " to "
                              << to_string(to));
  CHECK(bad == 0);
}

template <class T>
void check_copies() {
  check_copy<T>({}, {}, {});
  check_copy<T>({5}, {1}, {1});
  check_copy<T>({50'000}, {1}, {1});
  check_copy<T>({301}, {3}, {2});
  check_copy<T>({100}, {0}, {1});
  check_copy<T>({97, 131}, {1, 97}, {131, 1});  // transpose
  check_copy<T>({97, 131}, {131, 1}, {1, 97});  // and back
  check_copy<T>({3, 97, 40}, {4000, 1, 100}, {3880, 40, 1});
  check_copy<T>({2, 9, 3, 10}, {270, 1, 90, 9}, {270, 30, 10, 1});
  check_copy<T>({7, 5}, {1, 7}, {5, 1});
  check_copy<T>({0, 3}, {3, 1}, {3, 1});
}

}  // namespace

TEST_CASE("copies within a dtype, any strides") {
  check_copies<half>();
  check_copies<bfloat16>();
  check_copies<float>();
  check_copies<double>();
  check_copies<std::int32_t>();
  check_copies<std::int64_t>();
  check_copies<std::uint8_t>();
  check_copies<bool>();
}

TEST_CASE("copies move bits, and casts keep subnormals") {
  const std::uint32_t payload[] = {0x7fc12345u, 0x7f812345u, 0x00000001u, 0x80000007u};
  std::uint32_t moved[4];
  const Shape four{4};
  run::copy({payload, f32, Device(), four, {1}}, {moved, f32, Device(), four, {1}});
  CHECK(std::equal(moved, moved + 4, payload));

  const float tiny[] = {std::numeric_limits<float>::denorm_min(), -1e-40f, 1e-39f, 1.f};
  double wide[4];
  float back[4];
  run::copy({tiny, f32, Device(), four, {1}}, {wide, f64, Device(), four, {1}});
  run::copy({wide, f64, Device(), four, {1}}, {back, f32, Device(), four, {1}});
  for (int i = 0; i < 4; ++i) {
    CHECK(wide[i] == static_cast<double>(tiny[i]));
    CHECK(back[i] == tiny[i]);
  }
}

TEST_CASE("every dtype casts to every other") {
  const double values[] = {0, 1, 2, 7, 100};
  for (int s = 0; s < 8; ++s) {
    for (int d = 0; d < 8; ++d) {
      alignas(8) char a[40], b[40];
      double out[5];
      const auto from = static_cast<DType>(s), to = static_cast<DType>(d);
      const Shape five{5};
      run::copy({values, f64, Device(), five, {1}}, {a, from, Device(), five, {1}});
      run::copy({a, from, Device(), five, {1}}, {b, to, Device(), five, {1}});
      run::copy({b, to, Device(), five, {1}}, {out, f64, Device(), five, {1}});
      for (int i = 0; i < 5; ++i) {
        const bool flags = from == boolean || to == boolean;
        INFO(to_string(from) << " to " << to_string(to) << ": " << values[i]);
        CHECK(out[i] == (flags ? (values[i] != 0 ? 1 : 0) : values[i]));
      }
    }
  }
  const std::int64_t big[] = {(std::int64_t{1} << 62) + 1};
  std::int64_t same[1];
  run::copy({big, i64, Device(), {1}, {1}}, {same, i64, Device(), {1}, {1}});
  CHECK(same[0] == big[0]);
}

TEST_CASE("fill and arange") {
  std::vector<float> x(12, -1.f);
  run::fill({x.data(), f32, Device(), {2, 3}, {6, 2}}, 2.5);
  CHECK(x == std::vector<float>{2.5, -1, 2.5, -1, 2.5, -1, 2.5, -1, 2.5, -1, 2.5, -1});
  std::vector<half> h(70'000);
  run::fill({h.data(), f16, Device(), {70'000}, {1}}, -0.1);
  CHECK(h.front().bits == half(-0.1f).bits);
  CHECK(h.back().bits == half(-0.1f).bits);
  std::vector<std::uint8_t> flags(3);
  run::fill({flags.data(), boolean, Device(), {3}, {1}}, 0.5);
  CHECK(flags == std::vector<std::uint8_t>{1, 1, 1});

  std::vector<std::int64_t> n(3000);
  run::arange({n.data(), i64, Device(), {3000}, {1}}, 9007199254740992.0, -3);
  CHECK(n[2999] == 9007199254740992 - 3 * 2999);
  std::vector<float> f(5);
  run::arange({f.data(), f32, Device(), {5}, {1}}, 1, 0.25);
  CHECK(f == std::vector<float>{1, 1.25, 1.5, 1.75, 2});
}

namespace firn::testing {
namespace {

/// A copy's shape and the strides and first elements of both sides.
struct Geometry {
  Shape shape;
  Strides from, to;
  std::int64_t from_offset = 0, to_offset = 0;

  static std::int64_t elements(const Shape& shape, const Strides& strides, std::int64_t offset) {
    std::int64_t n = offset + 1;
    for (int i = 0; i < shape.size(); ++i)
      n += std::max<std::int64_t>(shape[i] - 1, 0) * strides[i];
    return n;
  }
  std::int64_t from_elements() const { return elements(shape, from, from_offset); }
  std::int64_t to_elements() const { return elements(shape, to, to_offset); }
};

const Geometry kGeometries[] = {
    {{}, {}, {}},
    {{0}, {1}, {1}},
    {{1}, {1}, {1}},
    {{7}, {1}, {1}},
    {{1000}, {1}, {1}},
    {{4099}, {1}, {1}},
    {{1000}, {1}, {1}, 1, 0},
    {{1000}, {1}, {1}, 0, 1},
    {{1000}, {1}, {1}, 3, 3},
    {{301}, {3}, {2}},
    {{100}, {0}, {1}},
    {{64, 48}, {0, 1}, {48, 1}},   // rows repeated
    {{64, 48}, {1, 0}, {48, 1}},   // columns repeated
    {{40, 64}, {96, 1}, {64, 1}},  // rows out of longer ones, in 16 bytes at a time
    {{40, 64}, {97, 1}, {80, 1}},  // and one by one
    {{97, 131}, {1, 97}, {131, 1}},
    {{97, 131}, {131, 1}, {1, 97}},
    {{33, 65}, {2, 70}, {65, 1}},
    {{32, 64}, {1, 33}, {65, 1}, 1, 1},
    {{3, 97, 40}, {4000, 1, 100}, {3880, 40, 1}},
    {{2, 9, 3, 10}, {270, 1, 90, 9}, {270, 30, 10, 1}},
    {{5, 3, 2, 7}, {1, 5, 15, 30}, {42, 14, 7, 1}},
    {{5, 3, 2, 7}, {84, 28, 14, 2}, {126, 42, 21, 3}},
};

void compare_copies(DType from, DType to, const Geometry& g, std::vector<double> values) {
  const auto n = static_cast<std::size_t>(g.from_elements());
  while (values.size() < n) values.insert(values.end(), values.begin(), values.end());
  values.resize(n);
  const Twins src(from, values);
  const Twins dst(to, std::vector<double>(static_cast<std::size_t>(g.to_elements()), 77.0));
  kernels::copy(src.host(g.shape, g.from, g.from_offset), dst.host(g.shape, g.to, g.to_offset),
                Stream{});
  kernels::copy(src.device(g.shape, g.from, g.from_offset), dst.device(g.shape, g.to, g.to_offset),
                device_stream());
  dst.expect_same(fmt::format("{} to {}, {} from {} to {}", to_string(from), to_string(to),
                              to_string(g.shape), to_string(g.from), to_string(g.to)));
}

}  // namespace

TEST_CASE("a device copies and casts any strides to the CPU's bits", "[gpu]") {
  if (!has_device()) return;
  std::vector<double> values(257);  // in the range of every dtype, with fractions
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * i % 503) / 4;
  for (const DType from : kAllDTypes) {
    for (const DType to : kAllDTypes) {
      for (const Geometry& g : kGeometries) compare_copies(from, to, g, values);
    }
  }
}

TEST_CASE("a device rounds once from every dtype to every floating one", "[gpu]") {
  if (!has_device()) return;
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> values{0.0,
                             -0.0,
                             inf,
                             -inf,
                             65504,
                             65519.99999,
                             65520,
                             1e39,
                             -1e39,
                             3.3e38,
                             3.4e38,
                             1 + 0x1p-11,
                             1 + 0x1p-11 + 0x1p-40,
                             1 + 0x1p-11 - 0x1p-40,
                             1 + 0x1p-8 + 0x1p-40,
                             1 + 0x1p-24 + 0x1p-50,
                             0x1p-24,
                             0x1p-25,
                             0x1p-25 + 0x1p-60,
                             0x1p-126,
                             0x1p-130,
                             0x1p-149,
                             0x1p-150,
                             1e-300};
  Rng rng(5);
  for (int i = 0; i < 2000; ++i) {
    values.push_back(std::ldexp(rng.uniform(-2, 2), static_cast<int>(rng.below(60)) - 35));
  }
  const Geometry g{{static_cast<std::int64_t>(values.size())}, {1}, {1}};
  for (const DType from : {f16, bf16, f32, f64}) {
    for (const DType to : {f16, bf16, f32, f64, f8_e4m3, f8_e5m2})
      compare_copies(from, to, g, values);
  }
  for (double& v : values) {
    v = std::isfinite(v) ? std::trunc(std::fmod(v * 0x1p40, 0x1p62)) : 0x1p61 + 0x1p50 + 4096;
  }
  for (const DType to : {f16, bf16, f32, f64, f8_e4m3, f8_e5m2}) compare_copies(i64, to, g, values);
}

TEST_CASE("a device moves the bits of NaNs, and a NaN stays one in every floating dtype", "[gpu]") {
  if (!has_device()) return;
  const std::uint32_t payload[] = {0x7fc12345u, 0x7f812345u, 0x00000001u, 0x80000007u};
  const Twins src(f32, {0, 0, 0, 0}), dst(f32, {0, 0, 0, 0});
  copy_bytes(src.device({4}).data, Device::cuda(), payload, Device::cpu(), sizeof payload);
  kernels::copy(src.device({2}, {2}), dst.device({2}, {2}), device_stream());
  kernels::copy(src.device({2}, {2}, 1), dst.device({2}, {2}, 1), device_stream());
  std::uint32_t moved[4];
  copy_bytes(moved, Device::cpu(), dst.device({4}).data, Device::cuda(), sizeof moved);
  CHECK(std::equal(moved, moved + 4, payload));
  for (const DType from : {f16, bf16, f32, f64}) {
    for (const DType to : {f16, bf16, f32, f64}) {
      const Twins x(from, std::vector<double>(9, std::nan(""))), y(to, std::vector<double>(9, 0));
      kernels::copy(x.device({9}), y.device({9}), device_stream());
      for (const double v : y.device_values()) CHECK(std::isnan(v));
    }
  }
}

TEST_CASE("a device fills and counts as the CPU does", "[gpu]") {
  if (!has_device()) return;
  for (const DType t : kAllDTypes) {
    for (const Geometry& g : kGeometries) {
      for (const double value : {0.0, 1.0, 2.7}) {
        const Twins x(t, std::vector<double>(static_cast<std::size_t>(g.to_elements()), 9.0));
        kernels::fill(x.host(g.shape, g.to, g.to_offset), value, Stream{});
        kernels::fill(x.device(g.shape, g.to, g.to_offset), value, device_stream());
        x.expect_same(fmt::format("fill {} {}", to_string(t), to_string(g.shape)));
      }
    }
    if (is_stored_only(t)) continue;
    for (const std::int64_t n : {0, 1, 120}) {
      const Twins x(t, std::vector<double>(static_cast<std::size_t>(2 * n + 1), 9.0));
      for (const std::int64_t stride : {1, 2}) {
        kernels::arange(x.host({n}, {stride}, 1), 2, 0.5, Stream{});
        kernels::arange(x.device({n}, {stride}, 1), 2, 0.5, device_stream());
        x.expect_same(fmt::format("arange {} {}", to_string(t), n));
      }
    }
  }
  const Twins large(i64, std::vector<double>(3000));
  kernels::arange(large.host({3000}), 9007199254740992.0, -3, Stream{});
  kernels::arange(large.device({3000}), 9007199254740992.0, -3, device_stream());
  large.expect_same("whole numbers past 2^53");
}

}  // namespace firn::testing
