// Making tensors and reading them on the host.
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "firn/runtime/storage.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;

// A variable becomes another handle; a temporary, as x[0] is, would drop it.
static_assert(std::is_assignable_v<Tensor&, const Tensor&>);
static_assert(!std::is_assignable_v<Tensor, const Tensor&>);
static_assert(!std::is_assignable_v<Tensor, Tensor>);

TEST_CASE("tensor: from values, with shape, strides, dtype and sizes", "[tensor]") {
  const Tensor t = tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(t.defined());
  CHECK(t.shape() == Shape{2, 3});
  CHECK(t.strides() == Strides{3, 1});
  CHECK(t.dtype() == f32);
  CHECK(t.rank() == 2);
  CHECK(t.numel() == 6);
  CHECK(t.bytes() == 24);
  CHECK(t.size(-1) == 3);
  CHECK(t.is_contiguous());
  CHECK(t.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(tensor({1.5, 2.5}).dtype() == f64);
  CHECK(tensor({true, false}).dtype() == boolean);
  CHECK(tensor({std::int64_t{3}}).dtype() == i64);
}

TEST_CASE("tensor: a vector or span alone gives one axis", "[tensor]") {
  const std::vector<float> values{1, 2, 3};
  const Tensor t = tensor(values);
  CHECK(t.shape() == Shape{3});
  CHECK(t.dtype() == f32);
  CHECK(t.to_vector<float>() == values);
  CHECK(tensor(std::vector<double>{1}).dtype() == f64);
  CHECK(tensor(std::vector<std::int64_t>{1, 2}).dtype() == i64);
  CHECK(tensor(std::vector<std::int32_t>{1, 2}).dtype() == i32);
  CHECK(tensor(std::vector<std::uint8_t>{1, 2}).dtype() == u8);
  CHECK(tensor(std::vector<float>{}).shape() == Shape{0});
  const Tensor flags = tensor(std::vector<bool>{true, false, true});
  CHECK(flags.dtype() == boolean);
  CHECK(flags.to_vector<bool>() == std::vector<bool>{true, false, true});

  std::vector<std::int64_t> numbers{4, 5, 6};
  CHECK(tensor(std::span(numbers)).to_vector<std::int64_t>() == numbers);
  CHECK(tensor(std::span<const std::int64_t>(numbers)).shape() == Shape{3});
  CHECK(tensor(std::span(numbers).subspan(1)).shape() == Shape{2});

  CHECK(tensor(values, Device::cpu()).device() == Device::cpu());
  CHECK(tensor(std::span(values), Device::cpu()).device() == Device::cpu());
  CHECK(tensor(std::vector<bool>{true}, Device::cpu()).device() == Device::cpu());
  CHECK(tensor(values, {3, 1}).shape() == Shape{3, 1});  // as before
}

TEST_CASE("tensor: every dtype holds and gives back its values", "[tensor]") {
  for (DType t : firn::testing::kAllDTypes) {
    INFO(to_string(t));
    const Tensor x = firn::testing::make({0, 1, 1}, {3}, t);
    CHECK(x.dtype() == t);
    CHECK(x.bytes() == 3 * size_of(t));
    CHECK(x.to_vector<double>() == std::vector<double>{0, 1, 1});
    CHECK(x.to_vector<std::int32_t>() == std::vector<std::int32_t>{0, 1, 1});
    CHECK(x.to_vector<bool>() == std::vector<bool>{false, true, true});
  }
}

TEST_CASE("tensor: scalars and empty tensors", "[tensor]") {
  const Tensor scalar = tensor(std::vector<double>{4.25}, {});
  CHECK(scalar.rank() == 0);
  CHECK(scalar.numel() == 1);
  CHECK(scalar.item() == 4.25);
  const Tensor none = empty({3, 0});
  CHECK(none.numel() == 0);
  CHECK(none.to_vector<float>().empty());
  CHECK(none.is_contiguous());
}

TEST_CASE("tensor: zeros are zero in every dtype", "[tensor]") {
  for (DType t : firn::testing::kAllDTypes)
    CHECK(zeros({2, 3}, t).to_vector<double>() == std::vector<double>(6, 0.0));
}

TEST_CASE("tensor: the number of values must fit the shape", "[tensor]") {
  CHECK(error_of([] {
          tensor(std::vector<float>{1, 2, 3}, {2, 2});
        }) == "[tensor] 3 values for shape [2, 2]; hint: give one value per element");
}

TEST_CASE("tensor: absurd shapes are refused before memory is asked for", "[tensor]") {
  CHECK(error_of([] {
          empty({2, -1});
        }) == "[empty] the size -1 is negative in shape [2, -1]; hint: sizes are 0 or more");
  CHECK(error_of([] {
          empty({1ll << 40, 1ll << 40});
        }).find("too many elements") != std::string::npos);
  CHECK(error_of([] { zeros({2, -1}); }).find("[zeros] the size -1") == 0);
  const Shape huge{1ll << 40, 1ll << 40};
  CHECK(error_of([&] { zeros(huge); }).find("[zeros] shape [1099511627776") == 0);
  CHECK(error_of([&] { full(huge, 1); }).find("[full] shape") == 0);
  CHECK(error_of([&] { rand(huge); }).find("[rand] shape") == 0);
  CHECK(error_of([&] { randn(huge); }).find("[randn] shape") == 0);
  CHECK(error_of([] { empty({1ll << 62, 4}); }).find("too many elements") != std::string::npos);
}

TEST_CASE("tensor: data is typed", "[tensor][host]") {
  const Tensor t = tensor({1.f, 2.f});
  CHECK(t.data<float>()[1] == 2.f);
  t.data<float>()[1] = 5.f;
  CHECK(t.to_vector<float>()[1] == 5.f);
  CHECK(error_of([&] { t.data<double>(); }) ==
        "[data] asked for f64 elements of [2] f32 cpu; hint: ask for the tensor's own element "
        "type, or cast it first");
}

TEST_CASE("tensor: data is for tensors in host memory", "[tensor][gpu]") {
  CHECK(error_of([] {
          tensor({1.f, 2.f}, Device::cuda()).data<float>();
        }) == "[data] [2] f32 cuda:0 is not in host memory; hint: x.to(Device::cpu())");
}

TEST_CASE("tensor: item needs exactly one element", "[tensor]") {
  CHECK(tensor(std::vector<std::int32_t>{7}, {1, 1}).item() == 7);
  CHECK(error_of([] {
          tensor({1.f, 2.f}).item();
        }) == "[item] [2] f32 " + to_string(default_device()) +
                  " has 2 elements; hint: reduce it first, or use to_vector");
  CHECK(error_of([] { empty({0}).item(); }).find("0 elements") != std::string::npos);
}

TEST_CASE("tensor: the undefined one refuses everything by name", "[tensor]") {
  const Tensor t;
  CHECK_FALSE(t.defined());
  CHECK_FALSE(t.requires_grad());
  CHECK(describe(t) == "undefined");
  CHECK(error_of([&] { t.shape(); }).find("[shape]") == 0);
  CHECK(error_of([&] { t.item(); }).find("[item]") == 0);
  CHECK(error_of([&] { add(t, tensor({1.f})); }).find("[add]") == 0);
  CHECK(error_of([&] { t.sum(); }).find("[sum]") == 0);
}

TEST_CASE("tensor: a copy is a handle, not a copy of the elements", "[tensor]") {
  const Tensor a = tensor({1.f, 2.f});
  const Tensor b = a;
  fill_(b[0], 9);
  CHECK(a.to_vector<float>()[0] == 9.f);
  CHECK(a.clone().storage()->data() != a.storage()->data());
}

TEST_CASE("tensor: on the caller's memory", "[tensor]") {
  std::vector<double> mine(6);
  std::iota(mine.begin(), mine.end(), 0.0);
  const Tensor t = from_memory(mine.data(), {3, 2});
  CHECK(t.data<double>() == mine.data());
  mine[3] = 42;
  CHECK(t.to_vector<double>()[3] == 42);
  CHECK(error_of([] {
          from_memory(static_cast<float*>(nullptr), {2});
        }).find("[from_memory] the address is null for f32 of shape [2]") == 0);
  CHECK(from_memory(static_cast<float*>(nullptr), {0, 2}).numel() == 0);
}

template <class T>
constexpr bool kTakesMemory = requires(T* p) {
  from_memory(p, Shape{1});
};
static_assert(kTakesMemory<float> && !kTakesMemory<const float> && !kTakesMemory<volatile float>,
              "a tensor's memory can be written");

TEST_CASE("tensor: conversions to a vector round as the types do", "[tensor]") {
  const Tensor t = tensor({1.0, 2.7, -2.7});
  CHECK(t.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 2, -2});
  CHECK(t.to_vector<half>()[1].bits == half(2.7f).bits);
}

TEST_CASE("creation: full, ones, eye, arange and the like", "[tensor]") {
  CHECK(full({2, 2}, 1.5).to_vector<float>() == std::vector<float>(4, 1.5f));
  CHECK(full({2}, 3, i64).to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 3});
  CHECK(ones({3}, bf16).to_vector<double>() == std::vector<double>{1, 1, 1});
  CHECK(eye(3).to_vector<float>() == std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1});
  CHECK(arange(4).dtype() == i64);
  CHECK(arange(4, {.start = 2, .step = 3}).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{2, 5, 8, 11});
  CHECK(arange(3, {.step = 0.5, .dtype = f32}).to_vector<float>() ==
        std::vector<float>{0, 0.5f, 1});
  CHECK(arange(0).numel() == 0);
  CHECK(arange(2, 9, 3).to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 5, 8});
  CHECK(arange(2, 8, 3).to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 5});
  CHECK(arange(3, 0, -2).to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 1});
  CHECK(arange(1, 3, f16).to_vector<float>() == std::vector<float>{1, 2});
  CHECK(arange(0, 1, 0.5).dtype() == f32);
  CHECK(arange(0, 1, 0.5, f64).to_vector<double>() == std::vector<double>{0, 0.5});
  CHECK(arange(3, 3).numel() == 0);
  CHECK(arange(0, 3, Device::cpu()).numel() == 3);
  CHECK(arange(2.5).to_vector<float>() == std::vector<float>{0, 1, 2});
  CHECK(arange(2.5).dtype() == f32);
  CHECK(arange(1.5f, f64).to_vector<double>() == std::vector<double>{0, 1});
  CHECK(arange(1.0, 1.3, 0.1, f64).numel() == 4);  // (1.3 - 1) / 0.1 is above 3
  CHECK(arange(-1e308, 1e308, 1e307, f64).numel() == 20);
  const Tensor x = empty({2, 3}, f16);
  CHECK(zeros_like(x).dtype() == f16);
  CHECK(ones_like(x).shape() == Shape{2, 3});
  CHECK(ones_like(x).to_vector<double>() == std::vector<double>(6, 1.0));
}

TEST_CASE("arange counts integers of 64 bits exactly", "[tensor]") {
  using Integers = std::vector<std::int64_t>;
  constexpr std::int64_t most = INT64_MAX, least = INT64_MIN, exact = std::int64_t{1} << 53;
  CHECK(arange(most - 2, most).to_vector<std::int64_t>() == Integers{most - 2, most - 1});
  CHECK(arange(least, least + 2).to_vector<std::int64_t>() == Integers{least, least + 1});
  CHECK(arange(exact + 1, exact + 3).to_vector<std::int64_t>() == Integers{exact + 1, exact + 2});
  CHECK(arange(-exact - 1, -exact + 1).to_vector<std::int64_t>() == Integers{-exact - 1, -exact});
  CHECK(arange(std::int64_t{0}, 2 * exact + 1, exact + 1).to_vector<std::int64_t>() ==
        Integers{0, exact + 1});
  CHECK(arange(most, least, least + 1).to_vector<std::int64_t>() == Integers{most, 0, -most});
  CHECK(arange(exact + 1, exact + 3, f32).to_vector<float>()[0] == static_cast<float>(exact));
}

TEST_CASE("tensor() copies spans, arrays and vectors, with one axis or a shape", "[tensor]") {
  const std::vector<int> values{1, 2};
  const std::array<float, 2> array{1, 2};
  std::int64_t numbers[] = {3, 4};
  const std::vector<bool> bits{true, false};
  CHECK(tensor(values).shape() == Shape{2});
  CHECK(tensor(array).to_vector<float>() == std::vector<float>{1, 2});
  CHECK(tensor(std::span(numbers)).to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 4});
  CHECK(tensor(std::span(array), {2, 1}).shape() == Shape{2, 1});
  CHECK(tensor(bits, {2, 1}).to_vector<bool>() == bits);
  CHECK(tensor(bits, {1, 2}, Device::cpu()).shape() == Shape{1, 2});
  CHECK(tensor(std::vector<float>{}).shape() == Shape{0});
  CHECK_THROWS_AS(tensor(bits, {3}), Error);
}

TEST_CASE("as_strided: bounds are checked against the storage", "[tensor]") {
  const Tensor t = tensor({0.f, 1.f, 2.f, 3.f, 4.f, 5.f});
  CHECK(error_of([&] {
          t.as_strided({2, 2}, {3, 2}, 1);
        }).find("elements 1 to 6") != std::string::npos);
  CHECK(t.as_strided({2, 2}, {3, 1}, 1).to_vector<float>() == std::vector<float>{1, 2, 4, 5});
  CHECK(t.as_strided({2, 3}, {0, 1}).to_vector<float>() == std::vector<float>{0, 1, 2, 0, 1, 2});
  CHECK(error_of([&] { t.as_strided({2, 2}, {3, 3}); }).find("[as_strided]") == 0);
  CHECK(error_of([&] { t.as_strided({2}, {1}, -1); }).find("[as_strided]") == 0);
  CHECK(error_of([&] { t.as_strided({2}, {-1}, 3); }).find("negative") != std::string::npos);
  CHECK(error_of([&] {
          t.as_strided({2}, {1, 1});
        }).find("one stride per axis") != std::string::npos);
  CHECK_NOTHROW(t.as_strided({0}, {1}, 6));
  CHECK_NOTHROW(t.as_strided({2, 0}, {1, 1}, 100));
}
