// Products of 16-bit factors on every unit that the machine has, against f64 and against a model of
// the unit.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/gemm/fma.h"
#include "kernels/cpu/gemm/matrix_unit.h"
#include "kernels/cpu/gemm/microkernel.h"
#include "kernels/gemm.h"
#include "kernels/gemm/matrix_unit_model.h"
#include "kernels/gemm/tile_unit.h"
#include "kernels/settings/isa.h"
#include "support/catch.h"
#include "support/in_child.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

using kernels::cpu::Isa;
using kernels::cpu::Left;
using kernels::cpu::Matrix;
using kernels::cpu::Microkernel;

/// The kernels that can run here for factors of `dtype`, and the model of the matrix unit. Software
/// computes the unit's instructions on a CPU that lacks them.
struct Kernels {
  explicit Kernels(DType dtype) : all{&kernels::cpu::FIRN_ISA::fma(), &amx_model(dtype)} {
#if defined(__x86_64__)
    if (!TileUnit::possible()) return;
    if (dtype == bf16) all.push_back(&kernels::cpu::avx512_bf16());
    all.push_back(&kernels::cpu::amx(dtype));
    tiles.emplace();
#endif
  }
  auto begin() const { return all.begin(); }
  auto end() const { return all.end(); }

  std::vector<const Microkernel*> all;
  std::optional<TileUnit> tiles;
};

/// What `read` says in a child process in which FIRN_CPU_ISA has this value.
template <class Read>
std::string under_isa(const char* word, const Read& read) {
  return in_child("FIRN_CPU_ISA", word, [&] {
    kernels::cpu::detail::chosen_isa = kernels::cpu::detail::kUnknownIsa;  // as in a new process
    return read();
  });
}

/// Memory that begins at a line of the cache, as firn's does.
struct Bytes {
  explicit Bytes(std::size_t n) : tensor(empty({static_cast<std::int64_t>(n) + 1}, u8)) {}
  void* data() const { return tensor.mutable_view().data; }
  Tensor tensor;
};

Tensor swapped(const Tensor& t) { return transpose(t, 0, 1); }

enum class In { packed, in_place };

/// a b by one microkernel; f32 [m, n].
Tensor product(const Microkernel& unit, const Tensor& a, const Tensor& b, In in = In::packed,
               bool turned = false) {
  const std::int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  const auto matrix = [](const Tensor& t) {
    return Matrix{t.view().data, t.dtype(), t.strides()[0], t.strides()[1]};
  };
  const Bytes left_memory(unit.left_bytes(m, k)), right_memory(unit.right_bytes(k, n));
  const Matrix x = matrix(a), y = matrix(b);
  Left left = in == In::packed ? unit.pack_left(x, m, k, left_memory.data())
                               : unit.place_left(x, m, k, left_memory.data());
  left.turned = turned;
  unit.pack_right(y, k, n, right_memory.data());
  const Tensor c = full({m, n}, std::numeric_limits<double>::quiet_NaN());
  unit.multiply(m, n, k, left, right_memory.data(), c.mutable_view().as<float>(), n, false);
  return c;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = contiguous(a), y = contiguous(b);
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         std::memcmp(x.view().data, y.view().data,
                     static_cast<std::size_t>(x.numel()) * size_of(x.dtype())) == 0;
}

/// The largest error of c = a b in units of the bound (4 sqrt(terms) + 2) 2^-24 sum |a b| + u |c|
/// with u of c's dtype. What is above 1 is wrong.
double error_of(const Tensor& a, const Tensor& b, const Tensor& c, double terms) {
  const Tensor exact = matmul(cast(a, f64), cast(b, f64));
  const Tensor magnitude = matmul(abs(cast(a, f64)), abs(cast(b, f64)));
  const double out = c.dtype() == f32 ? 0x1p-24 : epsilon_of(c.dtype());
  const Tensor bound = (4 * std::sqrt(terms) + 2) * 0x1p-24 * magnitude + out * abs(exact) +
                       (c.dtype() == f16 ? 0x1p-25 : 1e-300);  // f16's subnormals
  return (abs(cast(c, f64) - exact) / bound).max().item();
}

std::string said(const Microkernel& unit, DType dtype) {
  return std::string(unit.name) + ", factors " + to_string(dtype);
}

/// Terms that a product of k terms has on a unit, for the bound.
double terms_of(const Microkernel& unit, DType dtype, std::int64_t k) {
  const bool splits = &unit != &kernels::cpu::FIRN_ISA::fma() && dtype != bf16;
  return static_cast<double>(k) * (!splits ? 1 : dtype == f16 ? 4 : 6);
}

}  // namespace

TEST_CASE("gemm16: every unit stays within the bound of sums, for any depth and any data",
          "[host]") {
  manual_seed(14);
  for (const DType dtype : {bf16, f16, f32}) {
    for (const Microkernel* unit : Kernels(dtype)) {
      for (const std::int64_t k : {1, 2, 31, 32, 33, 1023, 1024, 1025, 65537}) {
        const std::int64_t m = k > 2000 ? 3 : 18, n = k > 2000 ? 5 : 35;
        const Tensor x = randn({m, k}), w = randn({k, n});
        const Tensor sign = full({k}, 1);
        fill_(slice(sign, 0, 1, k, 2), -1);
        const std::vector<std::pair<const char*, Tensor>> kinds = {
            {"random", x},
            {"positive", abs(x) + 0.5},
            {"cancelling", (abs(x) * 0.01 + 1) * sign},
            {"sorted", sqrt(cast(arange(k) + 1, f32)) * (abs(slice(x, 1, 0, 1)) + 0.1)}};
        for (const auto& [name, kind] : kinds) {
          const Tensor a = cast(kind, dtype);
          const Tensor b = cast(std::string(name) == "random" ? w : abs(w) * 0.1 + 1, dtype);
          INFO(said(*unit, dtype) << ", k " << k << ", " << name);
          CHECK(error_of(a, b, product(*unit, a, b), terms_of(*unit, dtype, k)) <= 1);
        }
      }
    }
  }
}

TEST_CASE("gemm16: any layout and size, packed or in place, gives the same bits", "[host]") {
  manual_seed(15);
  for (const DType dtype : {bf16, f16, f32}) {
    for (const Microkernel* unit : Kernels(dtype)) {
      for (const std::int64_t m : {1, 8, 15, 16, 17, 33, 48, 70}) {
        for (const std::int64_t n : {1, 16, 31, 33, 65}) {
          for (const std::int64_t k : {1, 7, 32, 50, 1100}) {
            if (k == 1100 && (m > 33 || n > 33)) continue;
            const Tensor a = cast(randn({m, k}), dtype), b = cast(randn({k, n}), dtype);
            const Tensor plain = product(*unit, a, b);
            INFO(said(*unit, dtype) << ", " << m << " x " << n << " x " << k);
            REQUIRE(error_of(a, b, plain, terms_of(*unit, dtype, k)) <= 1);
            const auto turned = [](const Tensor& t) { return swapped(contiguous(swapped(t))); };
            const auto spread = [](const Tensor& t) {
              const Tensor wide = zeros({t.size(0), t.size(1), 3}, t.dtype());
              copy_(select(wide, 2, 1), t);
              return select(wide, 2, 1);
            };
            CHECK(same_bits(plain, product(*unit, turned(a), b)));
            CHECK(same_bits(plain, product(*unit, a, turned(b))));
            CHECK(same_bits(plain, product(*unit, turned(a), turned(b))));
            CHECK(same_bits(plain, product(*unit, spread(a), spread(b))));
            // The transposed product, in the order of the upright one.
            CHECK(same_bits(plain,
                            swapped(product(*unit, swapped(b), swapped(a), In::packed, true))));
            const Matrix x{a.view().data, dtype, k, 1};
            if (unit->places_left(x) && m % unit->rows == 0)
              CHECK(same_bits(plain, product(*unit, a, b, In::in_place)));
            // A row does not depend on the others.
            CHECK(same_bits(slice(plain, 0, m - 1, m), product(*unit, slice(a, 0, m - 1, m), b)));
          }
        }
      }
    }
  }
}

#if defined(__x86_64__)
TEST_CASE("gemm16: factors are packed and split as in the model of the matrix unit", "[host]") {
  if (!TileUnit::possible()) {
    WARN("skipped: this CPU has no AVX512-BF16");
    return;
  }
  manual_seed(25);
  for (const DType dtype : {bf16, f16, f32}) {
    const Microkernel &unit = kernels::cpu::amx(dtype), &model = amx_model(dtype);
    const double inf = std::numeric_limits<double>::infinity();
    Tensor numbers = cast(randn({49, 77}) * exp(randn({49, 77}) * 8), dtype);
    for (const auto& [at, value] :
         {std::pair{3, inf}, {4, -inf}, {5, -inf * 0}, {6, max_of(dtype)}})
      fill_(select(select(numbers, 0, at), 0, 7), value);
    for (const bool turned : {false, true}) {
      const Tensor a = turned ? swapped(contiguous(swapped(numbers))) : numbers;
      const Matrix matrix{a.view().data, dtype, a.strides()[0], a.strides()[1]};
      const std::size_t left = unit.left_bytes(49, 77), right = unit.right_bytes(49, 77);
      const Bytes got(std::max(left, right)), expected(std::max(left, right));
      INFO(to_string(dtype) << (turned ? ", turned" : ""));
      REQUIRE(model.left_bytes(49, 77) == left);
      REQUIRE(model.right_bytes(49, 77) == right);
      unit.pack_left(matrix, 49, 77, got.data());
      model.pack_left(matrix, 49, 77, expected.data());
      CHECK(std::memcmp(got.data(), expected.data(), left) == 0);
      unit.pack_right(matrix, 49, 77, got.data());
      model.pack_right(matrix, 49, 77, expected.data());
      CHECK(std::memcmp(got.data(), expected.data(), right) == 0);
    }
  }
}

TEST_CASE("gemm16: every f16 number is the sum of its two parts", "[host]") {
  if (!TileUnit::possible()) {
    WARN("skipped: this CPU has no AVX512-BF16");
    return;
  }
  constexpr std::int64_t kLines = 2048, kDepth = 32, kTile = 1024;
  const Microkernel& unit = kernels::cpu::amx(f16);
  const Tensor numbers = empty({kLines, kDepth}, f16);
  // Neighbours in a register are of one kind in the first order, and of all kinds in the second.
  for (const unsigned step : {1u, 2049u}) {
    auto* const bits = static_cast<std::uint16_t*>(numbers.mutable_view().data);
    for (unsigned i = 0; i < kLines * kDepth; ++i) bits[i] = static_cast<std::uint16_t>(i * step);
    const Bytes packed(unit.left_bytes(kLines, kDepth));
    unit.pack_left({bits, f16, kDepth, 1}, kLines, kDepth, packed.data());
    int wrong = 0;
    for (std::int64_t i = 0; i < kLines; ++i) {
      for (std::int64_t p = 0; p < kDepth; ++p) {
        const char* const tile = static_cast<const char*>(packed.data()) + i / 16 * 2 * kTile +
                                 i % 16 * 64 + p / 2 * 4 + p % 2 * 2;
        bfloat16 part[2];
        for (int q = 0; q < 2; ++q) std::memcpy(&part[q], tile + q * kTile, sizeof part[q]);
        const float whole = static_cast<float>(std::bit_cast<half>(bits[i * kDepth + p]));
        const float first = static_cast<float>(part[0]), rest = static_cast<float>(part[1]);
        const bool same = std::isnan(whole) ? std::isnan(first)
                                            : first + rest == whole &&
                                                  std::signbit(first) == std::signbit(whole) &&
                                                  std::abs(rest) * 128 <= std::abs(first);
        wrong += same && (std::isfinite(whole) || rest == 0) ? 0 : 1;
      }
    }
    INFO(step);
    CHECK(wrong == 0);
  }
}

TEST_CASE("gemm16: the matrix unit gives the bits of its model", "[host]") {
  if (!TileUnit::possible()) {
    WARN("skipped: this CPU has no AVX512-BF16");
    return;
  }
  const TileUnit tiles;
  manual_seed(16);
  for (const DType dtype : {bf16, f16, f32}) {
    const Tensor a = cast(randn({37, 1234}), dtype), b = cast(randn({1234, 41}), dtype);
    INFO(to_string(dtype));
    CHECK(same_bits(product(kernels::cpu::amx(dtype), a, b), product(amx_model(dtype), a, b)));
  }
}
#endif

TEST_CASE("gemm16: f16 factors give the bits of widened ones if the sums are exact", "[host]") {
  manual_seed(17);
  const Tensor a = cast(cast(rand({40, 200}) * 4095, i64) - 2047, f16);
  const Tensor b = cast(cast(rand({200, 50}) * 7, i64) - 3, f16);
  const Tensor exact = cast(matmul(cast(a, f64), cast(b, f64)), f32);
  for (const Microkernel* unit : Kernels(f16)) {
    INFO(unit->name);
    CHECK(same_bits(product(*unit, a, b), exact));
  }
  CHECK(same_bits(matmul(a, b), cast(exact, f16)));
}

TEST_CASE("gemm16: infinities and NaNs come out as in the widened product", "[host]") {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {bf16, f16, f32}) {
    const double largest = max_of(dtype), tiny = dtype == f16 ? 0x1p-24 : 0x1p-100;
    const std::vector<double> values = {inf, -inf, nan,  1,       1.00390625, -3,
                                        0,   -0.0, tiny, largest, -largest,   0.333};
    const auto count = static_cast<std::int64_t>(values.size());
    for (const Microkernel* unit : Kernels(dtype)) {
      // Every pair of values meets in a product whose other terms are ordinary.
      for (const std::int64_t at : {0, 5, 40}) {
        const Tensor a = full({count, 48}, 0.5, dtype), b = full({48, count}, 0.25, dtype);
        for (std::int64_t i = 0; i < count; ++i) {
          fill_(select(select(a, 1, at), 0, i), values[static_cast<std::size_t>(i)]);
          fill_(select(select(b, 0, at), 0, i), values[static_cast<std::size_t>(i)]);
        }
        const Tensor c = product(*unit, a, b);
        for (std::int64_t i = 0; i < count; ++i) {
          for (std::int64_t j = 0; j < count; ++j) {
            float wide = 0;
            const auto number = [&](const Tensor& t) { return static_cast<float>(t.item()); };
            for (std::int64_t p = 0; p < 48; ++p)
              wide += number(select(select(a, 0, i), 0, p)) * number(select(select(b, 1, j), 0, p));
            const auto got = static_cast<float>(select(select(c, 0, i), 0, j).item());
            INFO(said(*unit, dtype) << ", " << values[static_cast<std::size_t>(i)] << " * "
                                    << values[static_cast<std::size_t>(j)] << " at " << at);
            CHECK(std::isnan(got) == std::isnan(wide));
            if (!std::isfinite(wide) && !std::isnan(wide)) CHECK(got == wide);
            if (std::isfinite(wide)) CHECK(got == Approx(wide).epsilon(1e-5));
          }
        }
      }
    }
  }
}

TEST_CASE("gemm16: an infinity or a NaN changes no bit of other rows and columns", "[host]") {
  manual_seed(23);
  for (const DType dtype : {bf16, f16, f32}) {
    for (const Microkernel* unit : Kernels(dtype)) {
      const Tensor a = cast(randn({37, 1100}), dtype), b = cast(randn({1100, 41}), dtype);
      const Tensor plain = product(*unit, a, b);
      fill_(select(select(a, 0, 5), 0, 700), std::numeric_limits<double>::infinity());
      fill_(select(select(b, 1, 33), 0, 20), std::numeric_limits<double>::quiet_NaN());
      const Tensor c = product(*unit, a, b);
      INFO(said(*unit, dtype));
      for (const auto& [begin, end] : {std::pair{0, 5}, {6, 37}}) {
        for (const auto& [first, last] : {std::pair{0, 33}, {34, 41}}) {
          CHECK(same_bits(slice(slice(c, 0, begin, end), 1, first, last),
                          slice(slice(plain, 0, begin, end), 1, first, last)));
        }
      }
      for (const double v : contiguous(slice(select(c, 0, 5), 0, 0, 33)).to_vector<double>())
        CHECK_FALSE(std::isfinite(v));
      for (const double v : contiguous(select(c, 1, 33)).to_vector<double>()) CHECK(std::isnan(v));
    }
  }
}

TEST_CASE("gemm16: no unit, or one of a factor, is left out: k 0, adding, and f16's smallest",
          "[host]") {
  for (const DType dtype : {bf16, f16, f32}) {
    for (const Microkernel* unit : Kernels(dtype)) {
      INFO(said(*unit, dtype));
      CHECK(
          same_bits(product(*unit, zeros({17, 0}, dtype), zeros({0, 20}, dtype)), zeros({17, 20})));
      const Tensor a = cast(randn({20, 70}), dtype), b = cast(randn({70, 40}), dtype);
      const Bytes left(unit->left_bytes(20, 70)), right(unit->right_bytes(70, 40));
      const Left packed = unit->pack_left({a.view().data, dtype, 70, 1}, 20, 70, left.data());
      unit->pack_right({b.view().data, dtype, 40, 1}, 70, 40, right.data());
      const Tensor sum = full({20, 40}, 3);
      unit->multiply(20, 40, 70, packed, right.data(), sum.mutable_view().as<float>(), 40, true);
      const Tensor expected = matmul(cast(a, f64), cast(b, f64)) + 3;
      CHECK((abs(cast(sum, f64) - expected)).max().item() < 1e-4);
    }
  }
  const Tensor smallest = full({16, 32}, 0x1p-24, f16), ones16 = full({32, 16}, 1, f16);
  for (const Microkernel* unit : Kernels(f16))
    CHECK(same_bits(product(*unit, smallest, ones16), full({16, 16}, 0x1p-19)));
}

namespace {

/// A hash of the bits of many products of gemm(): forward, data and weight gradient shapes.
std::string hash_of_products() {
  manual_seed(18);
  std::uint64_t hash = 1469598103934665603u;
  const auto mix = [&](const Tensor& t) {
    const auto* bytes = static_cast<const unsigned char*>(t.view().data);
    for (std::size_t i = 0; i < static_cast<std::size_t>(t.numel()) * size_of(t.dtype()); ++i)
      hash = (hash ^ bytes[i]) * 1099511628211u;
  };
  for (const DType dtype : {bf16, f16}) {
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{64, 512, 784},
                                  {64, 10, 512},
                                  {300, 200, 130},
                                  {1030, 70, 257},
                                  {5, 900, 64},
                                  {1, 640, 1056}}) {
      const Tensor x = cast(randn({m, k}), dtype), w = cast(randn({n, k}), dtype);
      const Tensor dy = cast(randn({m, n}), dtype);
      mix(linear(x, w, cast(randn({n}), dtype)));
      mix(matmul(dy, w));
      const Tensor dw = full({n, k}, 1);
      ConstView left = dy.view();
      std::swap(left.shape[0], left.shape[1]);
      std::swap(left.strides[0], left.strides[1]);
      kernels::gemm(left, x.view(), dw.mutable_view(), kernels::GemmArgs{.beta = 1}, Stream{});
      mix(dw);
    }
  }
  return std::to_string(hash);
}

}  // namespace

TEST_CASE("gemm16: the same hash on 1, 2 and 3 threads, on every instruction set", "[host]") {
  for (int level = 0; level <= static_cast<int>(kernels::cpu::machine_isa()); ++level) {
    const char* const word = name_of(static_cast<Isa>(level));
    INFO(word);
    std::string first;
    for (const int threads : {1, 2, 3}) {
      const std::string hash = under_isa(word, [&] {
        const Threads guard(threads);
        return hash_of_products();
      });
      CHECK(hash.find('[') == std::string::npos);
      if (first.empty()) first = hash;
      CHECK(hash == first);
    }
  }
}

TEST_CASE("gemm16: products under every FIRN_CPU_ISA stay within the bound", "[host]") {
  for (int level = 0; level <= static_cast<int>(kernels::cpu::machine_isa()); ++level) {
    const char* const word = name_of(static_cast<Isa>(level));
    const std::string worst = under_isa(word, [] {
      manual_seed(19);
      double most = 0;
      for (const DType dtype : {bf16, f16}) {
        for (const std::int64_t k : {1, 33, 1025}) {
          const Tensor a = cast(randn({70, k}), dtype), b = cast(randn({k, 130}), dtype);
          most = std::max(most, error_of(a, b, matmul(a, b), 4.0 * static_cast<double>(k)));
        }
      }
      return std::to_string(most);
    });
    INFO(word << ": " << worst);
    CHECK(std::stod(worst) <= 1);
  }
}

TEST_CASE("gemm16: a row of a result has the same bits in a product of any number of rows",
          "[host]") {
  manual_seed(20);
  for (const DType dtype : {bf16, f16}) {
    const Tensor w = cast(randn({384, 300}), dtype), x = cast(randn({513, 300}), dtype);
    const Tensor all = linear(x, w);
    for (const std::int64_t rows : {1, 2, 16, 17, 64, 200, 512}) {
      INFO(to_string(dtype) << ", " << rows << " rows");
      CHECK(same_bits(linear(slice(x, 0, 0, rows), w), slice(all, 0, 0, rows)));
    }
  }
}

TEST_CASE("gemm16: allow_bf16x3 splits f32 factors, within its bound, and is off by default",
          "[host]") {
  manual_seed(21);
  CHECK_FALSE(bf16x3_allowed());
  const Tensor a = randn({150, 500}), b = randn({500, 90});
  const Tensor plain = matmul(a, b);
  allow_bf16x3(true);
  const Tensor split = matmul(a, b);
  allow_bf16x3(false);
  CHECK(error_of(a, b, split, 6 * 500) <= 1);
  CHECK(same_bits(matmul(a, b), plain));
  const bool has_unit = kernels::cpu::isa() >= Isa::amx_bf16;
  CHECK(same_bits(split, plain) != has_unit);
}

TEST_CASE("gemm16: bf16x3 loses at most 2^-125 of a small factor", "[host]") {
  manual_seed(22);
  for (const int exponent : {-112, -120, -126}) {
    const Tensor a = (rand({17, 48}) + 1) * std::ldexp(1, exponent);
    const Tensor b = (rand({48, 40}) + 1) * std::ldexp(1, -exponent - 10);
    allow_bf16x3(true);
    const Tensor c = matmul(a, b);
    allow_bf16x3(false);
    const Tensor exact = matmul(cast(a, f64), cast(b, f64));  // all terms are positive
    const Tensor lost = 0x1p-125 * sum(cast(b, f64), 0);
    const Tensor bound = (4 * std::sqrt(6 * 48.0) + 4) * 0x1p-24 * exact + lost;
    INFO("2^" << exponent);
    CHECK((abs(cast(c, f64) - exact) / bound).max().item() <= 1);
  }
}

TEST_CASE("gemm16: an epilogue sees each element once, and columns from a multiple of 16 on",
          "[host]") {
  for (const DType dtype : {f32, bf16, f16}) {
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{40, 128, 300},
                                  {64, 512, 784},
                                  {300, 130, 70},
                                  {16, 200, 600},
                                  {150, 150, 40}}) {
      const Tensor x = cast(randn({m, k}), dtype), w = cast(randn({n, k}), dtype);
      const Tensor y = empty({m, n}, dtype);
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(m * n));
      std::atomic<bool> aligned = true;
      const auto look = [&, n = n](const kernels::cpu::FIRN_ISA::Block& block) {
        if (block.j % 16 != 0) aligned = false;
        for (std::int64_t i = block.i; i < block.i + block.rows; ++i)
          for (std::int64_t j = block.j; j < block.j + block.cols; ++j)
            ++seen[static_cast<std::size_t>(i * n + j)];
      };
      INFO(to_string(dtype) << ", " << m << " x " << n << " x " << k);
      // A layer, whose product may be turned, and the gradient of its data.
      for (const bool layer : {true, false}) {
        for (auto& count : seen) count = 0;
        const Tensor right = layer ? swapped(w) : contiguous(swapped(w));
        kernels::cpu::FIRN_ISA::gemm_with_epilogue(x.view(), right.view(), y.mutable_view(), {},
                                                   std::ref(look));
        CHECK(aligned);
        CHECK(std::all_of(seen.begin(), seen.end(), [](const auto& count) { return count == 1; }));
      }
    }
  }
}

TEST_CASE("gemm16: describe_cpu() names what multiplies", "[host]") {
  const auto says = [](const char* words) {
    INFO(describe_cpu());
    CHECK(describe_cpu().find(words) != std::string::npos);
  };
  const bool has_unit = kernels::cpu::isa() >= Isa::amx_bf16;
  if (has_unit) {
    says("bf16 by AMX bf16,");
    says("f16 by AMX bf16 in two parts");
  }
  CHECK(describe_cpu().find("three parts") == std::string::npos);
  allow_bf16x3(true);
  says(has_unit ? "f32 by AMX bf16 in three parts" : "no unit for bf16x3");
  allow_bf16x3(false);
  const std::string narrow = under_isa("base", [] { return describe_cpu(); });
  CHECK(narrow.find("AMX") == std::string::npos);
  if (kernels::cpu::machine_isa() >= Isa::avx512_bf16) {
    const std::string dots = under_isa("avx512bf16", [] { return describe_cpu(); });
    CHECK(dots.find("bf16 by AVX-512 bf16") != std::string::npos);
  }
}

}  // namespace firn::testing
