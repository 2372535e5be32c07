// Philox against its published vectors, and what is drawn from it.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>

#include "firn/runtime/storage.h"
#include "kernels/math/philox.h"
#include "kernels/random.h"
#include "kernels/settings/isa.h"
#include "kernels/twins.h"
#include "support/catch.h"
#include "support/in_child.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

/// Restores the number of threads at the end of a test.
std::uint32_t word(RandomKey key, std::int64_t i) {
  const auto u = static_cast<std::uint64_t>(i);
  return math::philox(key.offset + u / 4, key.seed).word[u % 4];
}

struct Moments {
  double mean = 0, variance = 0, fourth = 0;
};
Moments moments(const std::vector<double>& x) {
  Moments m;
  for (double v : x) m.mean += v / static_cast<double>(x.size());
  for (double v : x) {
    const double d = v - m.mean;
    m.variance += d * d / static_cast<double>(x.size());
    m.fourth += d * d * d * d / static_cast<double>(x.size());
  }
  return m;
}

TEST_CASE("philox gives the known answers of the Random123 distribution") {
  // kat_vectors, philox4x32 10: counter low and high, key, expected words.
  struct {
    std::uint64_t low, high, key;
    std::array<std::uint32_t, 4> words;
  } const known[] = {
      {0, 0, 0, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}},
      {~0ull, ~0ull, ~0ull, {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}},
      {0x85a308d3243f6a88ull,
       0x0370734413198a2eull,
       0x299f31d0a4093822ull,
       {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}},
  };
  for (const auto& k : known) {
    const math::PhiloxBlock b = math::philox(k.low, k.key, k.high);
    for (int i = 0; i < 4; ++i) CHECK(b.word[i] == k.words[static_cast<std::size_t>(i)]);
  }
}

TEST_CASE("element i of a uniform tensor is word i of its stream, past every piece and carry") {
  Generator g(42);
  // The counter's low word overflows after 100 blocks.
  g.set({42, (std::uint64_t{1} << 32) - 100});
  const RandomKey key = g.get();
  const Tensor x = rand({5001}, {.generator = &g});
  CHECK(g.get().offset == key.offset + 1251);
  const auto values = x.to_vector<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const float want = static_cast<float>(word(key, i) >> 8) * 0x1p-24f;
    const float got = values[static_cast<std::size_t>(i)];
    if (got != want) FAIL("element " << i << ": " << got);
  }
  g.set(key);
  const Tensor wide = rand({1025}, {.low = -3, .high = 5, .dtype = f64, .generator = &g});
  const auto doubles = values_of(wide);
  for (std::int64_t i = 0; i < wide.numel(); ++i)
    CHECK(doubles[static_cast<std::size_t>(i)] == -3 + 8 * (word(key, i) * 0x1p-32));
}

TEST_CASE("uniform numbers stay between low and high in every dtype, and fill it evenly") {
  for (const DType t : {f16, bf16, f32, f64}) {
    for (const auto& [low, high] : {std::pair{0.0, 1.0}, {-0.1, 0.1}, {1.0, 1.3}, {-2.0, 0.0}}) {
      Generator g(7);
      const std::vector<double> x =
          values_of(rand({100'000}, {.low = low, .high = high, .dtype = t, .generator = &g}));
      const auto [least, most] = std::minmax_element(x.begin(), x.end());
      INFO(to_string(t) << " [" << low << ", " << high << ")");
      CHECK(*least >= low);
      CHECK(*most < high);
      const Moments m = moments(x);
      const double width = high - low;
      // Five standard errors, and half a spacing of the dtype.
      CHECK(std::fabs(m.mean - (low + high) / 2) <
            5 * width / std::sqrt(12e5) +
                epsilon_of(t) * std::max(std::fabs(low), std::fabs(high)));
      CHECK(m.variance == Approx(width * width / 12).epsilon(0.02));
    }
  }
}

TEST_CASE("normal numbers have the mean, variance and tails asked for") {
  for (const DType t : {f16, bf16, f32, f64}) {
    Generator g(11);
    const std::vector<double> x =
        values_of(randn({200'001}, {.mean = 3, .stddev = 0.5, .dtype = t, .generator = &g}));
    const Moments m = moments(x);
    INFO(to_string(t));
    CHECK(m.mean == Approx(3).margin(5 * 0.5 / std::sqrt(2e5) + 3 * epsilon_of(t)));
    CHECK(m.variance == Approx(0.25).epsilon(0.02));
    CHECK(m.fourth / (m.variance * m.variance) == Approx(3).epsilon(0.03));
    CHECK(std::all_of(x.begin(), x.end(), [](double v) { return std::isfinite(v); }));
  }
}

TEST_CASE("normal numbers have the normal distribution's tails, and are not correlated") {
  for (const DType t : {f32, f64}) {
    Generator g(12);
    const std::vector<double> x = values_of(randn({1'000'000}, {.dtype = t, .generator = &g}));
    const auto n = static_cast<double>(x.size());
    // All within five standard errors.
    for (const double far : {0.1, 0.5, 1.0, 2.0, 3.0, 4.0}) {
      const double tail = std::erfc(far / std::sqrt(2.0)) / 2;
      const auto share = [&](auto is_beyond) {
        return static_cast<double>(std::count_if(x.begin(), x.end(), is_beyond)) / n;
      };
      INFO(to_string(t) << " beyond " << far);
      CHECK(share([&](double v) { return v > far; }) ==
            Approx(tail).margin(5 * std::sqrt(tail / n)));
      CHECK(share([&](double v) { return v < -far; }) ==
            Approx(tail).margin(5 * std::sqrt(tail / n)));
    }
    for (const std::size_t lag : {1, 2, 3, 4, 8, 16, 256, 1024}) {
      double products = 0, squares = 0;
      for (std::size_t i = lag; i < x.size(); ++i) {
        products += x[i] * x[i - lag] / n;
        squares += (x[i] * x[i] - 1) * (x[i - lag] * x[i - lag] - 1) / n;
      }
      INFO(to_string(t) << " lag " << lag);
      CHECK(std::fabs(products) < 5 / std::sqrt(n));
      CHECK(std::fabs(squares) < 5 * 2 / std::sqrt(n));
    }
  }
}

TEST_CASE("normal elements 2i and 2i+1 are the Box-Muller pair of words 2i and 2i+1") {
  Generator g(5);
  const RandomKey key = g.get();
  const Tensor x = randn({2051}, {.dtype = f64, .generator = &g});
  const auto values = values_of(x);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t pair = i / 2 * 2;
    const double radius = std::sqrt(-2 * std::log((word(key, pair) + 1.0) * 0x1p-32));
    const double angle = 2 * 3.14159265358979323846 * (word(key, pair + 1) * 0x1p-32);
    const double want = i % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle);
    CHECK(values[static_cast<std::size_t>(i)] == Approx(want).margin(1e-14));
  }
}

TEST_CASE("f32 normal numbers are within 2 ulp of Box and Muller's for their words", "[host]") {
  const RandomKey key{6, 0};
  const Tensor x = empty({200'003}, {.dtype = f32, .device = Device::cpu()});
  kernels::normal(x.mutable_view(), 0, 1, key, Stream{});
  const auto values = x.to_vector<float>();
  const auto check = [&](std::int64_t i, double want) {
    const double got = values[static_cast<std::size_t>(i)];
    if (!(std::fabs(got - want) <= 2 * 0x1p-23 * std::fabs(want)))
      FAIL("element " << i << ": " << got << " for " << want);
  };
  for (std::int64_t i = 0; i + 1 < x.numel(); i += 2) {
    const double u = (static_cast<float>(word(key, i)) + 1.0f) * 0x1p-32f;
    const double angle =
        6.283185307179586f * (static_cast<float>(word(key, i + 1) >> 8) * 0x1p-24f);
    const double radius = std::sqrt(-2 * std::log(u));
    check(i, radius * std::cos(angle));
    check(i + 1, radius * std::sin(angle));
  }
}

TEST_CASE("f32 normal numbers have the same bits under every FIRN_CPU_ISA and on every machine",
          "[host]") {
  for (int level = 0; level <= static_cast<int>(kernels::cpu::machine_isa()); ++level) {
    const char* const isa = name_of(static_cast<kernels::cpu::Isa>(level));
    const std::string hash = in_child("FIRN_CPU_ISA", isa, [] {
      kernels::cpu::detail::chosen_isa = kernels::cpu::detail::kUnknownIsa;  // as in a new process
      const Tensor x = empty({1 << 20}, {.dtype = f32, .device = Device::cpu()});
      kernels::normal(x.mutable_view(), 0, 1, RandomKey{21, 0}, Stream{});
      std::uint64_t mixed = 0;
      for (const float v : x.to_vector<float>())
        mixed = (mixed ^ std::bit_cast<std::uint32_t>(v)) * 1099511628211u;
      return fmt::format("{:016x}", mixed);
    });
    CHECK(hash == "d75b09f7432090b1");
  }
}

TEST_CASE("random bits do not depend on the number of threads", "[host]") {
  const auto draw = [](int threads) {
    const Threads guard(threads);
    Generator g(3);
    std::vector<double> all = values_of(rand({70'001}, {.generator = &g}));
    for (const Tensor& t :
         {randn({70'001}, {.generator = &g}), dropout(ones({70'001}), 0.4, true, g)}) {
      const auto more = values_of(t);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  expect_same("1 and 2 threads", draw(2), draw(1));
}

TEST_CASE("manual_seed repeats the default stream, and a stream set back repeats to the bit") {
  manual_seed(9);
  const auto first = values_of(randn({10}));
  const auto second = values_of(randn({10}));
  CHECK(first != second);
  manual_seed(9);
  expect_same("reseeded", values_of(randn({10})), first);
  const RandomKey here = default_generator().get();
  const auto third = values_of(rand({3}));
  default_generator().set(here);
  expect_same("set back", values_of(rand({3})), third);
  manual_seed(10);
  CHECK(values_of(randn({10})) != first);
}

TEST_CASE("uniform_ and normal_ write views in row-major order and nothing beside them") {
  Generator g(1);
  const Tensor x = zeros({4, 6});
  const RandomKey key = g.get();
  const Tensor columns = slice(x, 1, 1, 6, 2);  // [4, 3], strides 6 and 2
  uniform_(columns, 0, 1, g);
  const auto values = x.to_vector<float>();
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 6; ++j) {
      const float got = values[static_cast<std::size_t>(6 * i + j)];
      CHECK(got == (j % 2 == 1 ? static_cast<float>(word(key, 3 * i + j / 2) >> 8) * 0x1p-24f : 0));
    }
  const std::uint32_t version = x.storage()->version();
  normal_(columns, 0, 1, g);
  CHECK(x.storage()->version() > version);
}

TEST_CASE("dropout keeps 1 - p of the elements, scaled, and its backward uses the same mask") {
  for (const DType t : {f16, bf16, f32, f64}) {
    Generator g(13);
    Tensor x = ones({300, 333}, t);
    x.set_requires_grad();
    const Tensor y = dropout(x, 0.25, true, g);
    const std::vector<double> out = values_of(y);
    const double kept = rounded({1 / 0.75}, t)[0];
    std::size_t count = 0;
    for (double v : out) {
      if (v != 0) CHECK(v == kept);
      count += v != 0;
    }
    INFO(to_string(t));
    CHECK(static_cast<double>(count) / static_cast<double>(out.size()) ==
          Approx(0.75).margin(5 * std::sqrt(0.75 * 0.25 / 99'900)));
    backward(y, {.initial_gradient = ones(y.shape(), t), .retain_graph = true});
    expect_same("mask", values_of(x.grad()), out);
    backward(y, {.initial_gradient = ones(y.shape(), t)});
    std::vector<double> twice = out;
    for (double& v : twice) v *= 2;
    expect_same("accumulated", values_of(x.grad()), twice);
  }
}

TEST_CASE("dropout of a transposed tensor is the dropout of its values") {
  Generator a(2), b(2);
  const Tensor x = arange(12, {.start = 1, .dtype = f32}).reshape({3, 4});
  expect_same("transposed", values_of(dropout(transpose(x, 0, 1), 0.5, true, a)),
              values_of(dropout(contiguous(transpose(x, 0, 1)), 0.5, true, b)));
}

TEST_CASE("dropout does nothing, and draws nothing, outside of training and with p = 0") {
  Generator g(1);
  const Tensor x = ones({5});
  CHECK(dropout(x, 0.5, false, g).impl() == x.impl());
  CHECK(dropout(x, 0, true, g).impl() == x.impl());
  CHECK(g.get().offset == 0);
  // What is dropped is zero, whatever it was.
  const Tensor bad = full({1000}, std::nan(""));
  const auto y = values_of(dropout(bad, 0.5, true, g));
  CHECK(std::count(y.begin(), y.end(), 0.0) > 400);
}

TEST_CASE("randperm gives each order of three with the same frequency") {
  Generator g(17);
  std::map<std::vector<std::int64_t>, int> seen;
  constexpr int kDraws = 6000;
  for (int i = 0; i < kDraws; ++i) ++seen[randperm(3, g).to_vector<std::int64_t>()];
  REQUIRE(seen.size() == 6);
  for (const auto& [order, count] : seen) CHECK(count == Approx(kDraws / 6).margin(5 * 29));
}

TEST_CASE("randperm is a permutation of 0 to n-1, also for n = 0 and 1") {
  for (const std::int64_t n : {0, 1, 2, 1000}) {
    Generator g(4);
    auto p = randperm(n, g).to_vector<std::int64_t>();
    REQUIRE(static_cast<std::int64_t>(p.size()) == n);
    if (n == 1000) CHECK(!std::is_sorted(p.begin(), p.end()));
    std::sort(p.begin(), p.end());
    for (std::int64_t i = 0; i < n; ++i) CHECK(p[static_cast<std::size_t>(i)] == i);
  }
}

TEST_CASE("bounded() is the upper half of a 128-bit product") {
  const std::uint64_t big = 0xfedcba9876543210ull;
  CHECK(math::bounded(big, 10) == 9);
  CHECK(math::bounded(~0ull, ~0ull) == ~0ull - 1);
  CHECK(math::bounded(big, std::uint64_t{1} << 40) == big >> 24);
  CHECK(math::bounded(0, 1000) == 0);
  CHECK(math::bounded(0x8000000000000000ull, 0xabcdef0123456789ull) == 0xabcdef0123456789ull / 2);
}

TEST_CASE("random ops refuse what they cannot draw", "[host]") {
  CHECK(error_of([] { rand({2}, i64); }) == "[rand] dtype i64; hint: draw in f32 and cast");
  CHECK(error_of([] { rand({2}, {.low = 1}); }) ==
        "[rand] low 1, high 1; hint: low must be less than high, both finite");
  CHECK(error_of([] { randn({2}, {.stddev = -1}); }) ==
        "[randn] mean 0, stddev -1; hint: stddev must be 0 or more, both finite");
  CHECK(error_of([] { dropout(ones({2}), 1); }) ==
        "[dropout] p = 1; hint: p is the probability of a zero, in [0, 1)");
  Tensor w = ones({2});
  w.set_requires_grad();
  CHECK(error_of([&] { normal_(w, 0, 1); }) ==
        "[normal_] [2] f32 cpu is a leaf that requires a gradient, and overwriting it is not "
        "recorded; hint: guard it with NoGrad");
  const NoGrad guard;
  normal_(w, 0, 1);
}

TEST_CASE("uniform numbers and dropout masks are the same bits on a device", "[gpu]") {
  if (!has_device()) return;
  const RandomKey key{42, (std::uint64_t{1} << 32) - 100};  // a carry in the counter
  for (const DType t : {f16, bf16, f32, f64}) {
    for (const std::int64_t n : {0, 1, 3, 4, 5, 1023, 20001}) {
      for (const std::int64_t offset : {0, 1}) {
        const auto size = static_cast<std::size_t>(n + offset);
        const std::string what = fmt::format("{} [{}] from {}", to_string(t), n, offset);
        const Twins u(t, std::vector<double>(size, 9.0));
        kernels::uniform(u.host({n}, {1}, offset), -0.1, 1.3, key, Stream{});
        kernels::uniform(u.device({n}, {1}, offset), -0.1, 1.3, key, device_stream());
        u.expect_same("uniform " + what);

        const Twins x(t, Rng(3).uniforms(static_cast<std::int64_t>(size), -2, 2));
        const Twins y(t, std::vector<double>(size, 9.0));
        kernels::dropout(x.host({n}, {1}, offset), y.host({n}, {1}, offset), 0.3, key, 0, Stream{});
        kernels::dropout(x.device({n}, {1}, offset), y.device({n}, {1}, offset), 0.3, key, 0,
                         device_stream());
        y.expect_same("dropout " + what);
        // Accumulated, a product and a sum: one rounding or two.
        kernels::dropout(x.host({n}, {1}, offset), y.host({n}, {1}, offset), 0.3, key, 1, Stream{});
        kernels::dropout(x.device({n}, {1}, offset), y.device({n}, {1}, offset), 0.3, key, 1,
                         device_stream());
        expect_close("accumulated " + what, y.device_values(), y.host_values(),
                     12 * 2 * epsilon_of(t));
      }
    }
  }
  // Gradients of another dtype than their sink's.
  const Twins dy(f16, Rng(4).uniforms(1001, -2, 2)), dx(f32, std::vector<double>(1001, 1.0));
  kernels::dropout(dy.host({1001}), dx.host({1001}), 0.5, key, 0, Stream{});
  kernels::dropout(dy.device({1001}), dx.device({1001}), 0.5, key, 0, device_stream());
  dx.expect_same("f16 to f32");
}

TEST_CASE("normal numbers on a device are the CPU's to rounding", "[gpu]") {
  if (!has_device()) return;
  const RandomKey key{7, 5};
  for (const DType t : {f16, bf16, f32, f64}) {
    for (const std::int64_t n : {1, 2, 3, 5, 20001}) {
      const Twins x(t, std::vector<double>(static_cast<std::size_t>(n)));
      kernels::normal(x.host({n}), 3, 0.5, key, Stream{});
      kernels::normal(x.device({n}), 3, 0.5, key, device_stream());
      // |x| is below 3 + 0.5 * 6.7, and an angle near 2 pi in f32 is off by 2^-23.
      const double u = std::max(epsilon_of(t), t == f64 ? 0.0 : epsilon_of(f32) * 4);
      expect_close(to_string(t), x.device_values(), x.host_values(), 6.4 * 4 * u);
    }
  }
}

TEST_CASE("a base in the device's memory gives the seed and moves the offset", "[gpu]") {
  if (!has_device()) return;
  const std::uint64_t base[2] = {99, 1000};
  const Twins place(i64, {0, 0});
  copy_bytes(place.device({2}).data, Device::cuda(), base, Device::cpu(), sizeof base);
  const RandomKey here{1, 5, static_cast<const std::uint64_t*>(place.device({2}).data)};
  const RandomKey same{99, 1005};
  const Twins u(f32, std::vector<double>(1001));
  kernels::uniform(u.host({1001}), 0, 1, same, Stream{});
  kernels::uniform(u.device({1001}), 0, 1, here, device_stream());
  u.expect_same("uniform");
  const Twins x(f32, std::vector<double>(1001, 1.0)), y(f32, std::vector<double>(1001));
  kernels::dropout(x.host({1001}), y.host({1001}), 0.5, same, 0, Stream{});
  kernels::dropout(x.device({1001}), y.device({1001}), 0.5, here, 0, device_stream());
  y.expect_same("dropout");
  const Twins z(f32, std::vector<double>(1001)), w(f32, std::vector<double>(1001));
  kernels::normal(z.device({1001}), 0, 1, same, device_stream());
  kernels::normal(w.device({1001}), 0, 1, here, device_stream());
  expect_same("normal", w.device_values(), z.device_values());
}

}  // namespace
}  // namespace firn::testing
