// Rows: windows of images as columns and their sums, and windows along an axis.
#include <vector>

#include "../refusals/refused.h"
#include "support/catch.h"
#include "support/ops/op_row.h"
#include "support/values.h"

namespace firn::testing {
namespace {

struct Case {
  const char* name;
  Size2 window;
  WindowOptions options;
  std::vector<Shape> images;  ///< the first one has the sizes of `out`
};

// Of every case, the first images have 2 or 3 channels and 5 x 4 positions.
const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {"2", 2, {}, {{2, 2, 5, 4}, {3, 5, 4}, {0, 2, 5, 4}, {1, 20, 5, 4}}},
      {"2 by 3 stride 2 padding 1 by 2",
       {2, 3},
       {.padding = {1, 2}, .stride = 2},
       {{2, 2, 5, 4}, {3, 5, 4}}},
      {"2 dilation 3 by 2 padding 1", 2, {.dilation = {3, 2}, .padding = 1}, {{1, 2, 5, 4}}},
      {"1 by 2 stride 2 apart", {1, 2}, {.stride = 2}, {{2, 3, 5, 4}}},
      {"3 padding 3 of zeros alone", 3, {.padding = 3, .stride = 3}, {{1, 2, 5, 4}}},
  };
  return list;
}

FIRN_OP_ROWS(windows_of_images) {
  for (const Case& c : cases()) {
    std::vector<std::vector<Shape>> images, columns;
    for (const Shape& s : c.images) {
      images.push_back({s});
      const auto along = [](std::int64_t n, std::int64_t size, std::int64_t d, std::int64_t p,
                            std::int64_t step) {
        return (n + 2 * p - d * (size - 1) - 1) / step + 1;
      };
      const WindowOptions& o = c.options;
      const std::int64_t l = along(5, c.window.h, o.dilation.h, o.padding.h, o.stride.h) *
                             along(4, c.window.w, o.dilation.w, o.padding.w, o.stride.w);
      const std::int64_t channels = s[s.size() - 3] * c.window.h * c.window.w;
      columns.push_back({s.size() == 4 ? Shape{s[0], channels, l} : Shape{channels, l}});
    }
    images.push_back({{1, 2, 5, 4}});
    Row(std::string("unfold ") + c.name,
        [c](const Args& x) { return unfold(x[0], c.window, c.options); })
        .args({real()})
        .shapes(images)
        .accuracy(Accuracy::exact)
        .golden();
    Row(std::string("unfold of channels-last images ") + c.name,
        [c](const Args& x) {
          return unfold(x[0].rank() == 4 ? channels_last(x[0]) : x[0], c.window, c.options);
        })
        .args({real()})
        .shapes(images)
        .accuracy(Accuracy::exact);
    Row(std::string("fold ") + c.name,
        [c](const Args& x) {
          return fold(x[0], {5, 4}, c.window, c.options);
        })
        .args({real()})
        .shapes(columns)
        .accuracy(Accuracy::sum, static_cast<double>(c.window.h * c.window.w))
        .golden();
  }
}

FIRN_OP_ROWS(windows_along_an_axis) {
  const auto along = [](const char* name, std::int64_t axis, std::int64_t size, std::int64_t step,
                        std::vector<std::vector<Shape>> shapes) {
    Row(name, [=](const Args& x) { return unfold_axis(x[0], axis, size, step); })
        .args({real()})
        .shapes(std::move(shapes))
        .accuracy(Accuracy::exact)
        .golden();
  };
  along("unfold_axis 3 step 1", 1, 3, 1, {{{2, 7, 3}}, {{2, 3}}, {{0, 4, 2}}});
  along("unfold_axis 3 step 2 of the last axis", -1, 3, 2, {{{2, 8}}, {{9}}});
  along("unfold_axis 2 step 5 apart", 0, 2, 5, {{{8, 3}}, {{2}}});
  along("unfold_axis 5 step 1 of few windows", 0, 5, 1, {{{6, 2}}});
  along("unfold_axis of nothing", 0, 0, 2, {{{3, 2}}});
  along("unfold_axis of a scalar", 0, 1, 1, {{{}}});
}

}  // namespace

TEST_CASE("unfold and fold: columns by hand, of any dtype", "[ops]") {
  const Tensor x = reshape(arange(6, i64), {1, 2, 3});  // an image without batch
  CHECK(values_of(unfold(x, {2, 1}, {.stride = {1, 2}})) == std::vector<double>{0, 2, 3, 5});
  CHECK(unfold(x, 2).shape() == Shape{4, 2});
  CHECK(unfold(x, 2).dtype() == i64);
  const Tensor ones_of = ones({1, 4, 2});
  CHECK(values_of(fold(ones_of, {2, 3}, 2)) == std::vector<double>{1, 2, 1, 1, 2, 1});
  // How often each pixel is read: fold(unfold(1)).
  const Tensor images = ones({1, 1, 3, 3});
  CHECK(values_of(fold(unfold(images, 2), 3, 2)) == std::vector<double>{1, 2, 1, 2, 4, 2, 1, 2, 1});
}

TEST_CASE("fold rounds a sum of 16-bit windows once", "[ops]") {
  // 9 (1 + 2^-7): bf16 holds no partial sum of more than two.
  const double v = 1 + 0x1p-7;
  const Tensor x = full({1, 9, 9}, v, bf16);
  const std::vector<double> y = values_of(fold(x, 5, 3));
  CHECK(y[12] == values_of(cast(full({1}, 9 * v, f32), bf16))[0]);
  Tensor row = full({5}, 1, bf16).set_requires_grad();
  backward(unfold_axis(row, 0, 3, 1), {.initial_gradient = full({3, 3}, v, bf16)});
  CHECK(values_of(row.grad())[2] == values_of(cast(full({1}, 3 * v, f32), bf16))[0]);
}

TEST_CASE("unfold_axis is a view", "[ops]") {
  const Tensor x = arange(6);
  const Tensor y = unfold_axis(x, 0, 3, 3);
  CHECK(y.shape() == Shape{2, 3});
  fill_(y, 1);  // windows that do not overlap can be written
  CHECK(values_of(x) == std::vector<double>(6, 1));
  CHECK_THROWS_AS(fill_(unfold_axis(x, 0, 3, 1), 2), Error);
  CHECK(unfold_axis(x, 0, 6, std::int64_t{1} << 62).shape() == Shape{1, 6});
  CHECK(unfold_axis(ones({}), 0, 0, 1).shape() == Shape{0});
}

TEST_CASE("refusals: windows", "[ops]") {
  const Tensor x = zeros({1, 2, 4, 4});
  refused("unfold", {"x is [n, c, h, w]", "[4, 4]"}, [] { unfold(zeros({4, 4}), 2); });
  refused("unfold", {"height", "window of 5", "image of 4"}, [&] { unfold(x, 5); });
  refused("unfold", {"width", "stride 0"}, [&] { unfold(x, 2, {.stride = {1, 0}}); });
  refused("unfold", {"height", "padding -1"}, [&] { unfold(x, 2, {.padding = {-1, 0}}); });
  refused("fold", {"axis 1", "not a multiple of 4"}, [] { fold(zeros({1, 6, 9}), 4, 2); });
  refused("fold", {"has 8 windows", "3 x 3"}, [] { fold(zeros({1, 8, 8}), 4, 2); });
  refused("fold", {"x is [n, c window.h window.w, l]", "[3]"}, [] { fold(zeros({3}), 4, 2); });
  refused("fold", {"i64"}, [] { fold(zeros({1, 8, 9}, i64), 4, 2); });
  refused("unfold_axis", {"size 5", "4, the size of axis 3"}, [&] { unfold_axis(x, -1, 5, 1); });
  refused("unfold_axis", {"step 0"}, [&] { unfold_axis(x, 0, 1, 0); });
  refused("unfold_axis", {"axis 4"}, [&] { unfold_axis(x, 4, 1, 1); });
}

}  // namespace firn::testing
