// Sizes, positions and strides whose arithmetic does not fit in 64 bits: each was taken once, and
// read or wrote outside its memory. Now each is refused by name.
#include <limits>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;

namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

template <class Fn>
bool refuses(const char* op, Fn&& fn) {
  const std::string message = error_of(fn);
  INFO(message);
  return message.rfind(std::string("[") + op + "]", 0) == 0;
}

}  // namespace

TEST_CASE("pad: counts whose sum does not fit are refused before anything is written", "[host]") {
  const Tensor x = full({5}, 7);
  CHECK(refuses("pad", [&] { pad(x, {kMax}, {kMax}); }));
  CHECK(refuses("pad", [&] { pad(x, {kMax - 5}, {1}); }));
}

TEST_CASE("reshape: sizes whose product is right modulo 2^64 are refused", "[host]") {
  const Tensor x = zeros({12});
  CHECK(refuses("reshape", [&] { reshape(x, {7, 2635249153387078804}); }));
  CHECK(refuses("reshape", [&] { reshape(zeros({0}), {0, kMax, 2}); }));
  CHECK(refuses("reshape", [&] { reshape(x, {kMin, -1}); }));
  CHECK(refuses("reshape", [&] { reshape(x, {-3, -4}); }));
  CHECK(reshape(x, {3, -1, 2}).shape() == Shape{3, 2, 2});
}

TEST_CASE("as_strided: the last element is found without overflow", "[host]") {
  const Tensor x = arange(10, f32);
  CHECK(refuses("as_strided", [&] { x.as_strided({5}, {1}, kMax); }));
  CHECK(refuses("as_strided", [&] { x[9].as_strided({1}, {1}, kMax); }));
  CHECK(refuses("as_strided", [&] { x.as_strided({5}, {kMax / 2}); }));
  CHECK(refuses("as_strided", [&] { x.as_strided({kMax / 4, 5}, {0, 1}); }));
  CHECK(refuses("as_strided", [&] { x.as_strided({0, 5}, {1, kMax}); }));
  for (const std::int64_t offset : {std::int64_t{11}, std::int64_t{-1}, kMax, kMin})
    CHECK(x.slice(0, 2, 4).as_strided({0}, {1}, offset).storage_offset() == 2);
}

TEST_CASE("expand: more elements than can be counted are refused", "[host]") {
  CHECK(refuses("expand", [] {
    expand(ones({1}), {std::int64_t{1} << 32, std::int64_t{1} << 32});
  }));
  CHECK(refuses("expand", [] { expand(ones({1}), {kMin, 1}); }));
  CHECK(expand(ones({1}), {std::int64_t{1} << 40}).numel() == std::int64_t{1} << 40);
}

TEST_CASE("creation: sizes that overflow, negative ones and bytes that overflow are refused",
          "[host]") {
  for (const Shape& shape : {Shape{kMax, 2}, Shape{kMax, 0}, Shape{-1}, Shape{kMin, kMin},
                             Shape{std::int64_t{1} << 61}, Shape{0, -1}}) {
    CAPTURE(to_string(shape));
    CHECK(refuses("empty", [&] { empty(shape, f64); }));
    CHECK(refuses("tensor", [&] { tensor(std::vector<float>{}, shape); }));
  }
  CHECK(refuses("eye", [] { eye(kMax); }));
  CHECK(refuses("pad", [] { pad(zeros({0, 3}), {kMax, 0}, {0, 0}); }));
  CHECK(refuses("one_hot", [] { one_hot(zeros({4}, i64), kMax); }));
  CHECK_THROWS_AS(arange(std::int64_t{1} << 50), OutOfMemory);
}

TEST_CASE("slice: steps and bounds of any size", "[host]") {
  const Tensor x = arange(6);
  CHECK(x.slice(0, 1, kMax, kMax).to_vector<int>() == std::vector<int>{1});
  CHECK(x.slice(0, kMin, kMax, 4).to_vector<int>() == std::vector<int>{0, 4});
  CHECK(x.slice(0, kMax, kMin).numel() == 0);
  CHECK(refuses("slice", [&] { x.slice(0, 0, 6, kMin); }));
  CHECK(refuses("slice", [&] { x.slice(0, 0, 6, -1); }));
  CHECK(refuses("slice", [&] { x.slice(kMin, 0, 6); }));
}

TEST_CASE("split: pieces and sums of any size", "[host]") {
  const Tensor x = arange(6);
  const std::vector<Tensor> whole = split(x, kMax);
  REQUIRE(whole.size() == 1);
  CHECK(whole[0].numel() == 6);
  CHECK(split(x, 4)[1].to_vector<int>() == std::vector<int>{4, 5});
  CHECK(split(zeros({0}), kMax).size() == 1);
  const std::vector<std::int64_t> wraps{kMax, kMax, 8};  // 6 modulo 2^64
  CHECK(refuses("split", [&] { split(x, wraps); }));
  CHECK(refuses("split", [] { split(expand(ones({1}), {std::int64_t{1} << 40}), 1); }));
}

TEST_CASE("cat: a joined axis that does not fit is refused", "[host]") {
  const Tensor large = expand(ones({1}), {std::int64_t{1} << 55});
  CHECK(error_of([&] { cat({large, large}); }).find("2^56") != std::string::npos);
}

TEST_CASE("convolutions: sizes that overflow are refused by name", "[host]") {
  const Tensor x = ones({1, 2, 4, 4}), w = ones({2, 1, 3, 3});
  for (const std::int64_t n : {kMax, kMin, std::int64_t{1} << 62, std::int64_t{1} << 32}) {
    CAPTURE(n);
    CHECK(refuses("conv2d", [&] { conv2d(x, w, {}, {.groups = n}); }));
    CHECK(refuses("conv2d", [&] { conv2d(x, w, {}, {.stride = n, .groups = 2}); }));
    CHECK(refuses("conv2d", [&] { conv2d(x, w, {}, {.padding = n, .groups = 2}); }));
    CHECK(refuses("conv2d", [&] { conv2d(x, w, {}, {.dilation = n, .groups = 2}); }));
    CHECK(refuses("conv_transpose2d", [&] { conv_transpose2d(x, w, {}, {.groups = n}); }));
  }
  // Many taps at a large dilation: a kernel that is repeated without memory.
  const Tensor taps = expand(ones({1, 1, 1, 1}), {1, 2, 1, std::int64_t{1} << 50});
  CHECK(refuses("conv2d", [&] { conv2d(x, taps, {}, {.dilation = (1LL << 31) - 1}); }));
  const Tensor long_x = expand(ones({1, 1, 1, 1}), {1, 2, 1, std::int64_t{1} << 50});
  CHECK(refuses("conv_transpose2d", [&] {
    conv_transpose2d(long_x, ones({2, 1, 1, 1}), {}, {.stride = (1LL << 31) - 1});
  }));
}

TEST_CASE("convolutions: a stride past the image and a dilation of one tap change nothing",
          "[host]") {
  const std::int64_t most = (std::int64_t{1} << 31) - 1;
  const Tensor x = arange(9, f32).reshape({1, 1, 9}).set_requires_grad();
  const Tensor one = full({3, 1, 1}, 2), two = full({3, 1, 2}, 2);
  const Tensor y = conv1d(x, one, {}, {.stride = most, .dilation = most});
  CHECK(y.to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(conv1d(x, two, {}, {.stride = most, .padding = 2, .dilation = 3}).to_vector<float>() ==
        std::vector<float>{2, 2, 2});
  conv1d(x, two, {}, {.stride = most, .dilation = 3}).sum().backward();
  CHECK(x.grad().to_vector<float>() == std::vector<float>{6, 0, 0, 6, 0, 0, 0, 0, 0});
  const Tensor single = full({1, 1, 1, 1}, 3);
  CHECK(conv_transpose2d(single, full({1, 1, 2, 2}, 1), {}, {.stride = most}).to_vector<float>() ==
        std::vector<float>{3, 3, 3, 3});
  CHECK(conv_transpose2d(single, full({1, 1, 1, 1}, 1), {}, {.stride = 5, .output_padding = 1})
            .to_vector<float>() == std::vector<float>{3, 0, 0, 0});
  // Far padding: windows that see nothing but zeros.
  const std::int64_t far = 1000000000;
  CHECK(conv1d(x, one, {}, {.stride = far, .padding = far}).to_vector<float>() ==
        std::vector<float>(9, 0.f));
}

TEST_CASE("pools of an empty batch take no memory, however large their result", "[host]") {
  const Size2 large = (1 << 20);
  for (const Tensor& x : {ones({0, 1, 4, 4}), ones({2, 0, 4, 4})}) {
    const std::size_t before = memory_stats(Device::cpu()).total.peak;
    CHECK(adaptive_avg_pool2d(x, large).numel() == 0);
    CHECK(adaptive_max_pool2d(x, large).numel() == 0);
    CHECK(upsample2d(x, large, Upsampling::bilinear).numel() == 0);
    CHECK(memory_stats(Device::cpu()).total.peak <= before + (1 << 20));
  }
  CHECK(refuses("adaptive_avg_pool2d", [] { adaptive_avg_pool2d(ones({0, 1, 4, 4}), kMax); }));
  CHECK(refuses("upsample2d", [] { upsample2d(ones({1, 1, 4, 4}), {kMax, kMax}); }));
}

TEST_CASE("pools: a window far larger than the image looks at the image alone", "[host]") {
  const Tensor x = arange(5, {.start = 1, .dtype = f32}).reshape({1, 1, 5}).set_requires_grad();
  const std::int64_t window = (std::int64_t{1} << 31) - 1;
  const Pool2dOptions options{.stride = window, .padding = window / 2, .count_padding = false};
  const Tensor y = max_pool1d(x, window, options);
  CHECK(y.to_vector<float>() == std::vector<float>{5});
  y.sum().backward();
  CHECK(x.grad().to_vector<float>() == std::vector<float>{0, 0, 0, 0, 1});
  CHECK(avg_pool1d(x, window, options).to_vector<float>() == std::vector<float>{3});
}

TEST_CASE("batches of any size hold what there is", "[host]") {
  const data::LabelledImages set{zeros({3, 2, 2}, u8), zeros({3}, i64)};
  const data::ImageDataset images(set);
  data::Loader loader(images, {.batch = kMax});
  CHECK(loader.batches() == 1);
  CHECK(loader.begin()->size() == 3);
  data::ResidentBatches resident(images, {.batch = kMax});
  CHECK(resident.batches() == 1);
  resident.begin_epoch(0);
  CHECK(error_of([&] { resident.next(kMax); }).find("3 left in the epoch") != std::string::npos);
  CHECK(resident.next().x.size(0) == 3);
}
