// Making tensors and reading them on the host.
#include <numeric>

#include "firn/runtime/storage.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;

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
  CHECK(arange(4, 2, 3).to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 5, 8, 11});
  CHECK(arange(3, 0, 0.5, f32).to_vector<float>() == std::vector<float>{0, 0.5f, 1});
  CHECK(arange(0).numel() == 0);
  const Tensor x = empty({2, 3}, f16);
  CHECK(zeros_like(x).dtype() == f16);
  CHECK(ones_like(x).shape() == Shape{2, 3});
  CHECK(ones_like(x).to_vector<double>() == std::vector<double>(6, 1.0));
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
