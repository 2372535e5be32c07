// Shapes: inline lists, broadcasting, axes, and the errors they give.
#include "firn/shape.h"

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "firn/view.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;

TEST_CASE("Dims: a list of up to eight numbers", "[base]") {
  Dims d{2, 3};
  d.push_back(4);
  d.insert(0, 7);
  CHECK(to_string(d) == "[7, 2, 3, 4]");
  d.erase(1);
  d.pop_back();
  CHECK(d == Dims{7, 3});
  CHECK_FALSE(d == Dims{7, 3, 1});
  CHECK(d.product() == 21);
  CHECK(d.contains(3));
  CHECK_FALSE(d.contains(4));
  CHECK(Dims{}.product() == 1);
  CHECK(to_string(Dims{}) == "[]");
  CHECK(Dims::filled(3, 5) == Dims{5, 5, 5});
}

TEST_CASE("Dims: nine axes are refused", "[base]") {
  CHECK(error_of([] { Dims{1, 2, 3, 4, 5, 6, 7, 8, 9}; }) ==
        "[shape] more than 8 axes: there is no room for 9 beside [1, 2, 3, 4, 5, 6, 7, 8]; hint: "
        "merge axes with reshape");
}

TEST_CASE("Dims: positions count from either end, and others are refused", "[base]") {
  Dims d{2, 3, 4};
  CHECK(d[-1] == 4);
  CHECK(d[-3] == 2);
  d[-2] = 7;
  CHECK(d == Dims{2, 7, 4});
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t at : {std::int64_t{3}, std::int64_t{8}, std::int64_t{-4}, kLeast}) {
    CAPTURE(at);
    CHECK_THROWS_AS(d[at], Error);
    CHECK_THROWS_AS(std::as_const(d)[at], Error);
    CHECK_THROWS_AS(d.erase(at), Error);
  }
  CHECK_THROWS_AS(d.insert(4, 1), Error);
  CHECK_THROWS_AS(d.insert(-1, 1), Error);
  CHECK(error_of([&] { d[3]; }) ==
        "[shape] there is no value 3 in a list of 3; hint: positions count from 0, or from -1 "
        "backwards");
  d.erase(-1);
  d.insert(2, 9);
  CHECK(d == Dims{2, 7, 9});
}

TEST_CASE("Dims: an empty list, as a scalar's shape is, has no last value", "[base]") {
  Dims none;
  CHECK_THROWS_AS(none.back(), Error);
  CHECK_THROWS_AS(std::as_const(none).back(), Error);
  CHECK_THROWS_AS(none.pop_back(), Error);
  CHECK_THROWS_AS(none.erase(0), Error);
  CHECK_THROWS_AS(none[-1], Error);
  CHECK(error_of([&] { none.back(); }).find("the shape of a scalar") != std::string::npos);
  Dims full = Dims::filled(kMaxRank, 1);
  CHECK_THROWS_AS(full.insert(0, 1), Error);
  CHECK_THROWS_AS(full.push_back(1), Error);
}

TEST_CASE("Dims: products and strides that do not fit in 64 bits are refused", "[base]") {
  const std::int64_t half = std::int64_t{1} << 32;
  CHECK_THROWS_AS((Shape{half, half}.product()), Error);
  CHECK((Shape{half, half, 0}.product()) == 0);
  CHECK_THROWS_AS(contiguous_strides({2, half, half}), Error);
  CHECK_FALSE(is_contiguous({2, half, half}, {0, half, 1}));
}

TEST_CASE("Dims: vectors, arrays and spans of integers are shapes", "[base]") {
  const std::vector<std::int64_t> sizes{2, 3};
  const std::array<int, 2> ints{2, 3};
  CHECK(Shape(sizes) == Shape{2, 3});
  CHECK(Shape(ints) == Shape{2, 3});
  CHECK(Shape(std::span(sizes)) == Shape{2, 3});
  const Shape converted = std::vector<std::size_t>{2, 3};
  CHECK(converted == Shape{2, 3});
  CHECK_THROWS_AS(Shape(std::vector<int>(9, 1)), Error);
}

TEST_CASE("shape: row-major strides", "[base]") {
  CHECK(contiguous_strides({2, 3, 4}) == Strides{12, 4, 1});
  CHECK(contiguous_strides({5}) == Strides{1});
  CHECK(contiguous_strides({}) == Strides{});
}

TEST_CASE("shape: broadcasting follows numpy's rule", "[base]") {
  CHECK(broadcast_shapes("op", {2, 3}, {3}) == Shape{2, 3});
  CHECK(broadcast_shapes("op", {3, 1}, {1, 4}) == Shape{3, 4});
  CHECK(broadcast_shapes("op", {}, {2}) == Shape{2});
  CHECK(broadcast_shapes("op", {2, 1, 4}, {5, 1, 3, 1}) == Shape{5, 2, 3, 4});
  CHECK(broadcast_shapes("op", {0}, {1}) == Shape{0});
  CHECK(broadcast_shapes("op", {1, 3}, {0, 1}) == Shape{0, 3});
}

TEST_CASE("shape: an impossible broadcast names the op and both shapes", "[base]") {
  CHECK(error_of([] {
          broadcast_shapes("add", {2, 3}, {2});
        }) ==
        "[add] shapes [2, 3] and [2] do not broadcast; hint: sizes must be equal or 1, aligned at "
        "the last axis; insert axes with unsqueeze");
  CHECK(error_of([] { broadcast_shapes("add", {0}, {2}); }).find("[0] and [2]") !=
        std::string::npos);
}

TEST_CASE("shape: axes may be negative and must exist", "[base]") {
  CHECK(normalize_axis("op", -1, 3) == 2);
  CHECK(normalize_axis("op", 0, 3) == 0);
  CHECK(error_of([] { normalize_axis("sum", 3, 3); }) ==
        "[sum] axis 3 does not exist in a tensor of 3 axes; hint: axes count from 0, or from -1 "
        "backwards");
  CHECK(error_of([] { normalize_axis("sum", -4, 3); }).find("axis -4") != std::string::npos);
  CHECK(error_of([] { normalize_axis("sum", 0, 0); }).find("0 axes") != std::string::npos);
}

TEST_CASE("shape: lists of axes are sorted and must not repeat", "[base]") {
  CHECK(normalize_axes("op", {-1, 0}, 3) == Axes{0, 2});
  CHECK(normalize_axes("op", {}, 3) == Axes{0, 1, 2});
  CHECK(error_of([] {
          normalize_axes("sum", {0, -3}, 3);
        }) == "[sum] axis -3 is repeated in [0, -3]; hint: name each axis once");
}

TEST_CASE("view: contiguity ignores axes of size 1 and empty tensors", "[base]") {
  CHECK(is_contiguous({2, 3}, {3, 1}));
  CHECK_FALSE(is_contiguous({2, 3}, {1, 2}));
  CHECK(is_contiguous({1, 3}, {77, 1}));
  CHECK(is_contiguous({2, 0}, {5, 9}));
  CHECK_FALSE(is_contiguous({3}, {0}));
  CHECK(is_contiguous({}, {}));
}

TEST_CASE("view: broadcasting a view gives stride 0", "[base]") {
  const float x[3] = {};
  const ConstView v{x, f32, Device(), {3, 1}, {1, 1}};
  const ConstView b = broadcast_to(v, {2, 3, 4});
  CHECK(b.shape == Shape{2, 3, 4});
  CHECK(b.strides == Strides{0, 1, 0});
  CHECK(b.data == x);
}
