// Dtypes that are stored only: small integers and floats of 8 bits.
#include <cmath>
#include <filesystem>

#include "support/catch.h"
#include "support/golden.h"
#include "support/source_path.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;
using firn::testing::make;
using firn::testing::values_of;

namespace {

constexpr DType kStored[] = {i8, i16, u16, u32, f8_e4m3, f8_e5m2};

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

/// Elements of a dtype of 8 bits as their codes.
std::vector<std::uint8_t> codes_of(const Tensor& t) {
  const Tensor here = to_device(t, Device::cpu());
  const auto* const p = static_cast<const std::uint8_t*>(here.view().data);
  return {p, p + here.numel()};
}

const std::map<std::string, testing::Golden>& goldens() {
  static const auto all =
      testing::read_goldens(testing::source_path("tests/goldens/float8.safetensors"));
  return all;
}

}  // namespace

TEST_CASE("float8: every code has ml_dtypes' number, and every number its code") {
  for (const DType t : {f8_e4m3, f8_e5m2}) {
    INFO(to_string(t));
    const testing::Golden& golden = goldens().at(std::string(to_string(t)) + " values");
    REQUIRE(golden.output.values.size() == 256);
    std::vector<std::uint8_t> codes(256);
    for (std::size_t i = 0; i < 256; ++i) codes[i] = static_cast<std::uint8_t>(i);
    const Tensor numbers = visit(t, [&]<class T>() {
      if constexpr (sizeof(T) == 1 && !std::is_arithmetic_v<T>) {
        std::vector<T> all;
        for (const std::uint8_t code : codes) all.push_back(T::from_bits(code));
        return tensor(std::span<const T>(all), {256}, default_device());
      } else {
        return Tensor();
      }
    });
    for (const DType wide : {f32, f64, f16, bf16}) {
      const std::vector<double> found = values_of(cast(numbers, wide));
      const std::vector<std::uint8_t> back = codes_of(cast(cast(numbers, wide), t));
      for (std::size_t i = 0; i < 256; ++i) {
        INFO("code " << i << " by " << to_string(wide));
        CHECK(same(found[i], golden.output.values[i]));
        if (!std::isnan(found[i])) CHECK(back[i] == codes[i]);
      }
    }
    CHECK(same(numbers.flatten()[3].item(), golden.output.values[3]));
  }
}

TEST_CASE("float8: rounding is ml_dtypes', to nearest even, from f32 and from f64") {
  for (const DType t : {f8_e4m3, f8_e5m2}) {
    const testing::Golden& golden = goldens().at(std::string(to_string(t)) + " rounding");
    const std::vector<double>& x = golden.inputs[0].values;
    REQUIRE(x.size() > 700);
    for (const DType from : {f32, f64}) {
      const std::vector<std::uint8_t> found =
          codes_of(cast(make(x, {static_cast<std::int64_t>(x.size())}, from), t));
      for (std::size_t i = 0; i < x.size(); ++i) {
        INFO(to_string(t) << " of " << x[i] << " by " << to_string(from));
        const auto want = static_cast<std::uint8_t>(golden.output.values[i]);
        if (std::isnan(x[i]))  // devices have other bits for it
          CHECK((found[i] & 0x7f) > (t == f8_e4m3 ? 0x7e : 0x7c));
        else
          CHECK(int(found[i]) == int(want));
      }
    }
  }
  // A double just above a midpoint, which f32 would round to the midpoint.
  CHECK(cast(tensor({1.0625 + 0x1p-40}), f8_e4m3).to_vector<float>()[0] == 1.125f);
  CHECK(cast(tensor({1.0625}), f8_e4m3).to_vector<float>()[0] == 1.f);
  CHECK(std::isnan(cast(tensor({1e300}), f8_e4m3).item()));
  CHECK(cast(tensor({std::int64_t{1} << 62}), f8_e5m2).item() == INFINITY);
  CHECK(cast(tensor({std::int64_t{465}}), f8_e5m2).item() == 448);
}

TEST_CASE("stored dtypes: integers truncate, clamp floats and keep the low bits of integers") {
  const Tensor x = make({-2.7, 2.7, 1e9, -1e9, NAN, 40000}, {6}, f64);
  CHECK(values_of(x.to(i8)) == std::vector<double>{-2, 2, 127, -128, 0, 127});
  CHECK(values_of(x.to(i16)) == std::vector<double>{-2, 2, 32767, -32768, 0, 32767});
  CHECK(values_of(x.to(u16)) == std::vector<double>{0, 2, 65535, 0, 0, 40000});
  CHECK(values_of(x.to(u32)) == std::vector<double>{0, 2, 1e9, 0, 0, 40000});
  const Tensor n = make({300, -1, 70000}, {3}, i64);
  CHECK(values_of(n.to(i8)) == std::vector<double>{44, -1, 112});
  CHECK(values_of(n.to(u16)) == std::vector<double>{300, 65535, 4464});
  CHECK(values_of(n.to(u32)) == std::vector<double>{300, 4294967295.0, 70000});
  CHECK(values_of(n.to(i8).to(f16)) == std::vector<double>{44, -1, 112});
}

TEST_CASE("stored dtypes: made, filled, viewed, joined and indexed") {
  for (const DType t : kStored) {
    INFO(to_string(t));
    CHECK(is_stored_only(t));
    CHECK_FALSE(is_floating(t));
    const Tensor x = arange(6, t).reshape({2, 3});
    CHECK(x.dtype() == t);
    CHECK(x.bytes() == 6 * size_of(t));
    CHECK(values_of(x.transpose(0, 1)) == std::vector<double>{0, 3, 1, 4, 2, 5});
    CHECK(values_of(contiguous(x.transpose(0, 1))) == std::vector<double>{0, 3, 1, 4, 2, 5});
    CHECK(values_of(cat({x, ones({1, 3}, t)}, 0)) ==
          std::vector<double>{0, 1, 2, 3, 4, 5, 1, 1, 1});
    CHECK(values_of(index_select(x, 1, tensor({std::int64_t{2}}, {1}, default_device()))) ==
          std::vector<double>{2, 5});
    CHECK(values_of(flip(x, {0})) == std::vector<double>{3, 4, 5, 0, 1, 2});
    CHECK(values_of(full({3}, 7, t)) == std::vector<double>{7, 7, 7});
    CHECK(values_of(zeros_like(x)) == std::vector<double>(6, 0));
    CHECK(values_of(clone(x)) == values_of(x));
    Tensor y = zeros({2, 3}, t);
    copy_(y, x);
    fill_(y[0], 3);
    CHECK(values_of(y) == std::vector<double>{3, 3, 3, 3, 4, 5});
    CHECK(x[1][2].item() == 5);
    CHECK(x.to_vector<std::int32_t>() == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5});
  }
  CHECK(tensor({std::int8_t{-3}}).dtype() == i8);
  CHECK(tensor({std::uint32_t{7}}).to_vector<std::uint32_t>() == std::vector<std::uint32_t>{7});
  CHECK(tensor({0.3f}).to(f8_e5m2).to_vector<float8_e5m2>()[0].bits == float8_e5m2(0.3f).bits);
}

TEST_CASE("stored dtypes: numbers that do not fit are refused", "[host]") {
  CHECK(error_of([] { full({2}, 128, i8); }).find("128 does not fit i8") != std::string::npos);
  CHECK(error_of([] { full({2}, -1, u32); }).find("-1 does not fit u32") != std::string::npos);
  CHECK(error_of([] { full({2}, 65536, u16); }).find("does not fit u16") != std::string::npos);
  CHECK(error_of([] { full({2}, 480, f8_e4m3); }).find("480 is NaN as f8_e4m3") !=
        std::string::npos);
  CHECK(error_of([] { full({2}, INFINITY, f8_e4m3); }).find("inf is NaN as f8_e4m3") !=
        std::string::npos);
  CHECK(error_of([] { full({2}, 7e4, f8_e5m2); }).find("is infinite as f8_e5m2") !=
        std::string::npos);
  CHECK(full({1}, INFINITY, f8_e5m2).item() == INFINITY);
  CHECK(full({1}, 448, f8_e4m3).item() == 448);
}

TEST_CASE("stored dtypes: operations that compute refuse them by name") {
  const std::pair<const char*, void (*)(const Tensor&)> calls[] = {
      {"[add]", [](const Tensor& x) { x + x; }},
      {"[relu]", [](const Tensor& x) { relu(x); }},
      {"[abs]", [](const Tensor& x) { abs(x); }},
      {"[sum]", [](const Tensor& x) { sum(x); }},
      {"[argmax]", [](const Tensor& x) { argmax(x, 0); }},
      {"[sort]", [](const Tensor& x) { sort(x); }},
      {"[cumsum]", [](const Tensor& x) { cumsum(x, 0); }},
      {"[matmul]", [](const Tensor& x) { matmul(x, x); }},
      {"[softmax]", [](const Tensor& x) { softmax(x, 0); }},
      {"[eq]", [](const Tensor& x) { eq(x, 1); }},
      {"[add_]",
       [](const Tensor& x) {
         Tensor y = x;
         add_(y, x);
       }},
      {"[embedding]",
       [](const Tensor& x) {
         embedding(ones({4, 2}), x);
       }},
  };
  for (const DType t : kStored) {
    const Tensor x = ones({2, 2}, t);
    for (const auto& [name, call] : calls) {
      const std::string error = error_of([&, call = call] { call(x); });
      INFO(name << " of " << to_string(t) << ": " << error);
      CHECK(error.starts_with(name));
      CHECK(error.find(to_string(t)) != std::string::npos);
      CHECK(error.find("cast") != std::string::npos);
    }
    CHECK(error_of([&] { Tensor(x).set_requires_grad(); }).find(to_string(t)) != std::string::npos);
  }
}

TEST_CASE("stored dtypes: printed, and read back from files", "[host]") {
  CHECK(to_string(tensor({std::int8_t{5}, std::int8_t{-17}})) == "[  5, -17]\n[2] i8 cpu");
  CHECK(to_string(tensor({1.f, 2.5f}).to(f8_e4m3)) == "[1.0000, 2.5000]\n[2] f8_e4m3 cpu");
  CHECK(to_string(tensor({1.f, 2.f}).to(f8_e5m2)) == "[1., 2.]\n[2] f8_e5m2 cpu");
  const auto path = std::filesystem::temp_directory_path() / "firn_stored.safetensors";
  std::vector<nn::NamedTensor> entries;
  for (const DType t : kStored)
    entries.push_back({to_string(t), arange(5, {.start = 1, .dtype = t})});
  io::save_safetensors(path.string(), entries);
  for (const auto& [name, t] : io::load_safetensors(path.string())) {
    CHECK(name == to_string(t.dtype()));
    CHECK(values_of(t) == std::vector<double>{1, 2, 3, 4, 5});
  }
  std::filesystem::remove(path);
}
