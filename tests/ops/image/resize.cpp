// Rows: resizing by every kind of source, of rows, images and volumes. What a row cannot say: which
// sources are read, what is refused.
#include <limits>
#include <string>
#include <vector>

#include "../refusals/refused.h"
#include "support/catch.h"
#include "support/ops/op_row.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using Shapes = std::vector<std::vector<Shape>>;

struct How {
  std::string name;
  Upsampling how;
  bool align_corners;
  double terms;  ///< of an axis
  /// Weights below 0: the sum of |x| is not that of the terms' magnitudes.
  Accuracy accuracy = Accuracy::sum;
};
const How kNearest{"nearest", Upsampling::nearest, false, 1};
const How kExact{"nearest_exact", Upsampling::nearest_exact, false, 1};
const How kLinear{"linear", Upsampling::linear, false, 2};
const How kLinearCorners{"linear corners", Upsampling::linear, true, 2};
const How kCubic{"bicubic", Upsampling::bicubic, false, 4, Accuracy::normwise};
const How kCubicCorners{"bicubic corners", Upsampling::bicubic, true, 4, Accuracy::normwise};

void add(const std::string& name, const OpFn& op, const Shapes& shapes, Accuracy accuracy,
         double terms) {
  for (const bool last : {false, true}) {
    Row row(last ? name + " channels-last" : name, [op, last](const Args& x) {
      return op({last && x[0].rank() >= 3 ? channels_last(x[0]) : x[0]});
    });
    row.args({real()}).shapes(shapes).accuracy(accuracy, terms);
    if (!last) row.golden();
  }
}

FIRN_OP_ROWS(resizing_of_images) {
  struct Case {
    const char* name;
    Size2 out;
    Shapes shapes;
  };
  for (const How& h : {kExact, kLinearCorners, kCubic, kCubicCorners}) {
    for (const Case& c : std::vector<Case>{
             {"up to 8 by 6",
              {8, 6},
              {{{2, 2, 4, 3}}, {{3, 5, 4}}, {{1, 20, 3, 5}}, {{0, 2, 2, 2}}, {{1, 270, 1, 1}}}},
             {"up to 7 by 10", {7, 10}, {{{1, 2, 3, 4}}, {{2, 1, 2, 9}}, {{1, 18, 1, 2}}}},
             {"down to 3 by 2", {3, 2}, {{{2, 2, 6, 7}}, {{1, 20, 7, 4}}}},
             {"down to 1 by 1", {1, 1}, {{{2, 2, 3, 4}}}},
             {"of the same height", {4, 7}, {{{1, 2, 4, 5}}, {{1, 17, 4, 3}}}},
             {"of the same width", {5, 3}, {{{1, 2, 4, 3}}}}}) {
      add(
          "upsample2d " + h.name + " " + c.name,
          [h, out = c.out](const Args& x) {
            return upsample2d(x[0], out, h.how, {.align_corners = h.align_corners});
          },
          c.shapes, h.accuracy, h.terms * h.terms);
    }
  }
}

FIRN_OP_ROWS(resizing_of_rows_and_volumes) {
  for (const How& h : {kNearest, kExact, kLinear, kLinearCorners}) {
    for (const std::int64_t out : {std::int64_t{7}, std::int64_t{3}})
      add(
          "upsample1d " + h.name + " to " + std::to_string(out),
          [h, out](const Args& x) {
            return upsample1d(x[0], out, h.how, {.align_corners = h.align_corners});
          },
          {{{2, 3, 5}}, {{3, 4}}, {{1, 20, 3}}, {{0, 2, 2}}, {{1, 1, 1}}}, h.accuracy, h.terms);
    Row("upsample3d " + h.name + " to 3 by 5 by 2",
        [h](const Args& x) {
          return upsample3d(x[0], {3, 5, 2}, h.how, {.align_corners = h.align_corners});
        })
        .args({real()})
        .shapes({{{1, 2, 2, 3, 4}}, {{2, 3, 3, 2}}, {{0, 2, 2, 2, 2}}})
        .accuracy(Accuracy::sum, h.terms * h.terms * h.terms)
        .golden();
  }
}

}  // namespace

TEST_CASE("upsampling: sources and weights of small rows", "[ops]") {
  const auto of = [](const std::vector<float>& x, std::int64_t out, Upsampling how, bool corners) {
    const auto n = static_cast<std::int64_t>(x.size());
    return values_of(upsample2d(reshape(tensor(x, {n}), {1, 1, 1, n}), {1, out}, how,
                                {.align_corners = corners}));
  };
  using Values = std::vector<double>;
  CHECK(of({1, 2, 3}, 5, Upsampling::linear, true) == Values{1, 1.5, 2, 2.5, 3});
  CHECK(of({1, 2, 3}, 1, Upsampling::linear, true) == Values{1});
  CHECK(of({1, 2, 3}, 1, Upsampling::nearest_exact, false) == Values{2});
  CHECK(of({1, 2, 3, 4, 5}, 3, Upsampling::nearest_exact, false) == Values{1, 3, 5});
  CHECK(of({1, 2, 3, 4, 5}, 3, Upsampling::nearest, false) == Values{1, 2, 4});
  // Halfway between two, Keys' weights are (a/8, 1/2 - a/8, ...) = -3/32, 19/32.
  CHECK(of({0, 32, 0, 0}, 7, Upsampling::bicubic, true) == Values{0, 19, 32, 19, 0, -3, 0});
  // The edge's value stands in for what is beyond it.
  CHECK(of({32, 0, 0}, 5, Upsampling::bicubic, true)[1] == 16);
}

TEST_CASE("upsampling: an axis that keeps its size mixes nothing", "[ops]") {
  Tensor x = zeros({1, 1, 2, 3});
  { x[0][0][0][1].fill_(std::numeric_limits<double>::infinity()); }
  for (const Upsampling how : {Upsampling::linear, Upsampling::bicubic}) {
    const std::vector<double> y = values_of(upsample2d(x, {2, 3}, how));
    CHECK(y == values_of(x));
  }
  const std::vector<double> rows =
      values_of(upsample3d(unsqueeze(x, 2), {4, 2, 3}, Upsampling::linear));
  for (std::size_t i = 0; i < rows.size(); ++i)
    CHECK((i % 6 == 1 || rows[i] == 0));  // along depth, infinity times 0 is NaN, as in PyTorch
}

TEST_CASE("refusals: upsampling", "[ops]") {
  const Tensor rows = zeros({1, 2, 3}), images = zeros({1, 2, 3, 3}),
               volumes = zeros({1, 2, 3, 3, 3});
  refused("upsample2d", {"align_corners", "nearest_exact"}, [&] {
    upsample2d(images, {4, 4}, Upsampling::nearest_exact, {.align_corners = true});
  });
  refused("upsample1d", {"align_corners", "nearest"},
          [&] { upsample1d(rows, 4, Upsampling::nearest, {.align_corners = true}); });
  refused("upsample1d", {"bicubic"}, [&] { upsample1d(rows, 4, Upsampling::bicubic); });
  refused("upsample3d", {"bicubic"}, [&] { upsample3d(volumes, {4, 4, 4}, Upsampling::bicubic); });
  refused("upsample1d", {"x is [n, c, l]", "[1, 2, 3, 3]"}, [&] { upsample1d(images, 4); });
  refused("upsample3d", {"x is [n, c, d, h, w]", "[1, 2, 3]"}, [&] {
    upsample3d(rows, {4, 4, 4});
  });
  refused("upsample1d", {"out is 1 x 0"}, [&] { upsample1d(rows, 0); });
  refused("upsample3d", {"i64"}, [] { upsample3d(zeros({1, 2, 3, 3, 3}, i64), {4, 4, 4}); });
}

}  // namespace firn::testing
