// Pooling modules: each is its op with its options, says so, and refuses sizes that make no layer.
#include <sstream>

#include "firn/firn.h"
#include "message_of.h"
#include "support/catch.h"

using namespace firn;
using firn::testing::message_of;

namespace {

std::vector<float> values(const Tensor& t) { return t.to_vector<float>(); }

Tensor input(const Shape& shape) {
  Generator g(7);
  return randn(shape, {.generator = &g});
}

void check(nn::Module&& m, const Tensor& x, const Tensor& expected, const std::string& settings) {
  INFO(m.type_name());
  const Tensor y = m(x);
  CHECK(y.shape() == expected.shape());
  CHECK(values(y) == values(expected));
  CHECK(m.extra_repr() == settings);
  CHECK(m.parameters().empty());
}

}  // namespace

TEST_CASE("pooling modules are their ops") {
  const Tensor x = input({2, 3, 9, 8});
  const Pool2dOptions options{.stride = {2, 3}, .padding = 1, .ceil_mode = true};
  check(nn::MaxPool2d(2), x, max_pool2d(x, 2), "2");
  check(nn::MaxPool2d({3, 2}, options), x, max_pool2d(x, {3, 2}, options),
        "3 x 2, stride = 2 x 3, padding = 1, ceil_mode = true");
  check(nn::MaxPool2d(2, {.dilation = 3}), x, max_pool2d(x, 2, {.dilation = 3}), "2, dilation = 3");
  check(nn::AvgPool2d(3), x, avg_pool2d(x, 3), "3");
  const Pool2dOptions inside{.padding = {0, 1}, .count_padding = false};
  check(nn::AvgPool2d(3, inside), x, avg_pool2d(x, 3, inside),
        "3, padding = 0 x 1, count_padding = false");
  check(nn::AdaptiveMaxPool2d({4, 3}), x, adaptive_max_pool2d(x, {4, 3}), "4 x 3");
  check(nn::AdaptiveAvgPool2d(2), x, adaptive_avg_pool2d(x, 2), "2");
  check(nn::GlobalAvgPool2d(), x, global_avg_pool2d(x), "");
  check(nn::Upsample(2), x, upsample2d(x, {18, 16}), "2");
  check(nn::Upsample({1, 3}, Upsampling::bilinear), x, upsample2d(x, {9, 24}, Upsampling::bilinear),
        "1 x 3, bilinear");
  check(nn::Upsample(2), x[0], upsample2d(x[0], {18, 16}), "2");

  const Tensor rows = input({2, 3, 9});
  check(nn::MaxPool1d(2, {.stride = 1}), rows, max_pool1d(rows, 2, {.stride = 1}), "2, stride = 1");
  check(nn::AvgPool1d(3, {.padding = 1}), rows, avg_pool1d(rows, 3, {.padding = 1}),
        "3, padding = 1");
  check(nn::AdaptiveMaxPool1d(4), rows, adaptive_max_pool1d(rows, 4), "4");
  check(nn::AdaptiveAvgPool1d(2), rows, adaptive_avg_pool1d(rows, 2), "2");
  check(nn::LPPool1d(2, 3), rows, lp_pool1d(rows, 2, 3), "2, 3");
  check(nn::LPPool2d(1, {2, 3}, {.stride = 1}), x, lp_pool2d(x, 1, {2, 3}, {.stride = 1}),
        "1, 2 x 3, stride = 1");

  check(nn::Upsample(2, Upsampling::bicubic, {.align_corners = true}), x,
        upsample2d(x, {18, 16}, Upsampling::bicubic, {.align_corners = true}),
        "2, bicubic, align_corners = true");
  check(nn::Upsample1d(3, Upsampling::linear), rows, upsample1d(rows, 27, Upsampling::linear),
        "3, linear");

  const Tensor volumes = input({1, 2, 4, 5, 6});
  check(nn::Upsample3d({1, 2, 1}, Upsampling::trilinear), volumes,
        upsample3d(volumes, {4, 10, 6}, Upsampling::trilinear), "1 x 2 x 1, trilinear");
  check(nn::Upsample3d(2, Upsampling::nearest_exact), volumes,
        upsample3d(volumes, {8, 10, 12}, Upsampling::nearest_exact), "2, nearest_exact");

  const Pool3dOptions deep{.stride = {2, 1, 1}, .padding = 1};
  check(nn::MaxPool3d(2), volumes, max_pool3d(volumes, 2), "2");
  check(nn::AvgPool3d({3, 2, 2}, deep), volumes, avg_pool3d(volumes, {3, 2, 2}, deep),
        "3 x 2 x 2, stride = 2 x 1 x 1, padding = 1");
  check(nn::AdaptiveMaxPool3d(2), volumes, adaptive_max_pool3d(volumes, 2), "2");
  check(nn::AdaptiveAvgPool3d({1, 2, 3}), volumes, adaptive_avg_pool3d(volumes, {1, 2, 3}),
        "1 x 2 x 3");
}

TEST_CASE("pooling by hand, against a mistake in both") {
  const Tensor x = tensor(std::vector<float>{1, 5, 2, 0, 3, 4, 8, 6, 7}, {1, 1, 3, 3});
  CHECK(values(nn::MaxPool2d(2, {.stride = 1})(x)) == std::vector<float>{5, 5, 8, 7});
  CHECK(values(nn::AvgPool2d(2, {.stride = 1})(x)) == std::vector<float>{2.25, 3.5, 4.25, 5});
  CHECK(values(nn::GlobalAvgPool2d()(x)) == std::vector<float>{4});
  CHECK(values(nn::AdaptiveMaxPool2d(2)(x)) == std::vector<float>{5, 5, 8, 7});
  const Tensor two = tensor(std::vector<float>{1, 3}, {1, 1, 1, 2});
  CHECK(values(nn::Upsample({1, 2})(two)) == std::vector<float>{1, 1, 3, 3});
  CHECK(values(nn::Upsample({1, 2}, Upsampling::bilinear)(two)) ==
        std::vector<float>{1, 1.5, 2.5, 3});
}

TEST_CASE("pooling modules stand in a chain and print themselves") {
  nn::Sequential net;
  net.push_back(nn::MaxPool2d(2));
  net.push_back(nn::Upsample(3));
  net.push_back(nn::GlobalAvgPool2d());
  CHECK(net(input({2, 3, 8, 8})).shape() == Shape{2, 3});
  std::ostringstream text;
  text << net;
  CHECK(text.str().find("MaxPool2d(2)") != std::string::npos);
  CHECK(text.str().find("Upsample(3)") != std::string::npos);
}

TEST_CASE("Upsample: a size that wraps around is refused with its factors", "[host]") {
  const Tensor x = zeros({1, 1, 3, 3});
  CHECK(message_of([&] {
          nn::Upsample{6148914691236517206}(x);
        }).find("[Upsample] 3 * 6148914691236517206 does not fit in 64 bits") == 0);
  CHECK(message_of([&] {
          nn::Upsample{{1, std::int64_t{1} << 62}}(x);
        }).find("3 * 4611686018427387904") != std::string::npos);
  CHECK(message_of([&] { nn::Upsample{1 << 30}(x); }).find("3221225472") != std::string::npos);
}

TEST_CASE("sizes that make no pooling are refused at construction", "[host]") {
  CHECK(message_of([] { nn::MaxPool2d({0, 2}); }).find("[MaxPool2d] window = 0 x 2") == 0);
  CHECK_THROWS_AS(nn::AvgPool2d(-1), Error);
  CHECK_THROWS_AS(nn::MaxPool1d(0), Error);
  CHECK_THROWS_AS(nn::AvgPool1d(0), Error);
  CHECK_THROWS_AS(nn::AdaptiveMaxPool2d(0), Error);
  CHECK_THROWS_AS(nn::AdaptiveAvgPool2d({1, 0}), Error);
  CHECK_THROWS_AS(nn::Upsample(0), Error);
  CHECK_THROWS_AS(nn::Upsample1d(0), Error);
  CHECK_THROWS_AS(nn::Upsample3d({1, 0, 1}), Error);
  CHECK_THROWS_AS(nn::Upsample3d(2)(zeros({3, 3})), Error);
  CHECK_THROWS_AS(nn::AdaptiveMaxPool1d(0), Error);
  CHECK_THROWS_AS(nn::AdaptiveAvgPool1d(-2), Error);
  CHECK_THROWS_AS(nn::MaxPool3d({1, 0, 1}), Error);
  CHECK_THROWS_AS(nn::AvgPool3d(0), Error);
  CHECK_THROWS_AS(nn::AdaptiveMaxPool3d(0), Error);
  CHECK_THROWS_AS(nn::AdaptiveAvgPool3d({1, 1, 0}), Error);
  CHECK_THROWS_AS(nn::LPPool1d(2, 0), Error);
  CHECK_THROWS_AS(nn::LPPool2d(2, 0), Error);
  CHECK_THROWS_AS(nn::Upsample(2)(zeros({3})), Error);
  CHECK_THROWS_AS(nn::Upsample(2)(Tensor()), Error);
  // What depends on the input is the op's to say.
  CHECK(message_of([] { nn::MaxPool2d(9)(zeros({1, 1, 4, 4})); }).find("[max_pool2d]") == 0);
}
