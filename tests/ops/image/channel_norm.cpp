// Rows: batch, group and instance norm, in ranks 2 to 5, row-major and channels-last.
#include "support/ops/op_row.h"

namespace firn::testing {
namespace {

using Shapes = std::vector<std::vector<Shape>>;

/// For every x of these, x and `vectors` operands [c].
Shapes with_vectors(const std::vector<Shape>& xs, int vectors) {
  Shapes out;
  for (const Shape& x : xs) {
    out.push_back({x});
    for (int i = 0; i < vectors; ++i) out.back().push_back({x[1]});
  }
  return out;
}

/// More elements a channel than two, as of two nothing but signs are left; widths around a vector
/// register's, channels in several tiles, positions in several slabs.
const std::vector<Shape> kImages = {{2, 3, 5},       {1, 4, 6},   {2, 3, 2, 2},
                                    {2, 2, 2, 3, 2}, {3, 2, 700}, {3, 130, 9},
                                    {2, 5, 33, 31},  {40, 7, 4},  {2, 64, 9, 8}};
/// One position. With operands that repeat along the batch the variance is 0 and 1/sqrt(eps) = 316
/// what gradients are multiplied by.
const std::vector<Shape> kVectors = {{5, 3}, {7, 1}, {4, 4, 1, 1}, {9, 65}};
constexpr double kSteep = 500;

Moments moments_in(const Args& x) {
  const DType t = compute_dtype(x[0].dtype());
  return {cast(x[1], t), cast(x[2], t)};
}

FIRN_OP_ROWS(batch_norm) {
  using Accuracy::normwise;
  Row("batch_norm", [](const Args& x) { return batch_norm(x[0], x[1], x[2]); })
      .args({real(-1, 3), real(0.5, 1.5), real()})
      .shapes(with_vectors(kImages, 2))
      .accuracy(normwise)
      .cancels(0, 2)
      .golden()
      .perf({{64, 64, 24, 24}, {64}, {64}});
  Row("batch_norm of vectors", [](const Args& x) { return batch_norm(x[0], x[1], x[2]); })
      .args({real(-1, 3), real(0.5, 1.5), real()})
      .shapes(with_vectors(kVectors, 2))
      .accuracy(normwise)
      .cancels(0, kSteep)
      .golden();
  Row("batch_norm channels-last",
      [](const Args& x) { return batch_norm(channels_last(x[0]), x[1], x[2]); })
      .args({real(-1, 3), real(0.5, 1.5), real()})
      .shapes(with_vectors(kImages, 2))
      .accuracy(normwise)
      .cancels(0, 2)
      .golden();
  Row("batch_norm without weight and bias", [](const Args& x) { return batch_norm(x[0]); })
      .args({real(-1, 3)})
      .shapes(with_vectors(kImages, 0))
      .accuracy(normwise)
      .cancels(0, 2)
      .golden();
  Row("batch_norm without bias", [](const Args& x) { return batch_norm(x[0], x[1]); })
      .args({real(-1, 3), real(0.5, 1.5)})
      .shapes(with_vectors({{2, 3, 5}, {3, 65, 6}}, 1))
      .accuracy(normwise)
      .cancels(0, 2);
  Row("batch_norm without weight", [](const Args& x) { return batch_norm(x[0], {}, x[1]); })
      .args({real(-1, 3), real()})
      .shapes(with_vectors({{2, 3, 5}, {3, 65, 6}}, 1))
      .accuracy(normwise)
      .cancels(0, 2);
  Row("batch_norm eps 0.1", [](const Args& x) { return batch_norm(x[0], x[1], x[2], 0.1); })
      .args({real(-1, 3), real(0.5, 1.5), real()})
      .shapes(with_vectors({{3, 3, 2}, {2, 3, 5}}, 2))
      .accuracy(normwise)
      .cancels(0, 2)
      .golden();
  // The mean is a hundred standard deviations from 0: held in f32, it is as inexact as an x. A
  // central difference is too coarse there.
  Row("batch_norm of large values", [](const Args& x) { return batch_norm(x[0], x[1], x[2]); })
      .args({real(98, 102), real(0.5, 1.5), real()})
      .shapes(with_vectors({{2, 3, 4, 5}, {3, 2, 700}, {3, 65, 4}, {2, 5, 33, 31}}, 2))
      .accuracy(normwise)
      .cancels(100, 100)
      .kinks();
  Row("batch_norm of large values channels-last",
      [](const Args& x) { return batch_norm(channels_last(x[0]), x[1], x[2]); })
      .args({real(98, 102), real(0.5, 1.5), real()})
      .shapes(with_vectors({{2, 3, 4, 5}, {3, 2, 700}, {2, 5, 33, 31}}, 2))
      .accuracy(normwise)
      .cancels(100, 100)
      .kinks();
}

FIRN_OP_ROWS(batch_norm_given) {
  using Accuracy::normwise;
  const std::vector<Arg> given = {real(-1, 3), constant(-1, 1), constant(0.5, 2), real(0.5, 1.5),
                                  real()};
  std::vector<Shape> shapes = kImages;
  shapes.insert(shapes.end(), kVectors.begin(), kVectors.end());
  shapes.insert(shapes.end(), {{0, 3}, {2, 3, 0}, {1, 1}, {1, 2, 1}});
  Row("batch_norm by given moments",
      [](const Args& x) { return batch_norm(x[0], x[3], x[4], moments_in(x)); })
      .args(given)
      .shapes(with_vectors(shapes, 4))
      .accuracy(normwise)
      .cancels(4, 2)
      .golden();
  Row("batch_norm by given moments channels-last",
      [](const Args& x) { return batch_norm(channels_last(x[0]), x[3], x[4], moments_in(x)); })
      .args(given)
      .shapes(with_vectors(kImages, 4))
      .accuracy(normwise)
      .cancels(4, 2);
  Row("batch_norm by given moments alone",
      [](const Args& x) { return batch_norm(x[0], {}, {}, moments_in(x)); })
      .args({real(-1, 3), constant(-1, 1), constant(0.5, 2)})
      .shapes(with_vectors(kImages, 2))
      .accuracy(normwise)
      .cancels(4, 2);
}

FIRN_OP_ROWS(group_norm) {
  using Accuracy::normwise;
  const auto add_row = [](const char* name, std::int64_t groups, bool last,
                          const std::vector<Shape>& shapes, bool golden) {
    Row row(name, [groups, last](const Args& x) {
      const Tensor in = last ? channels_last(x[0]) : x[0];
      return groups == 0 ? instance_norm(in, x[1], x[2]) : group_norm(in, groups, x[1], x[2]);
    });
    row.args({real(-1, 3), real(0.5, 1.5), real()})
        .shapes(with_vectors(shapes, 2))
        .accuracy(normwise)
        .cancels(0, 2);
    if (golden) row.golden();
  };
  const std::vector<Shape> even = {{2, 8},         {3, 4, 5},       {1, 6, 3},
                                   {2, 4, 3, 2},   {2, 2, 2, 3, 2}, {3, 66, 5},
                                   {2, 4, 40, 33}, {0, 4, 3},       {2, 130, 2, 2}};
  const std::vector<Shape> even_images(even.begin() + 1, even.end());
  add_row("group_norm 2", 2, false, even, true);
  add_row("group_norm 2 channels-last", 2, true, even_images, false);
  add_row("group_norm 1", 1, false, {{2, 3}, {3, 4, 5}, {2, 3, 3, 2}, {2, 5, 40, 33}}, true);
  add_row("group_norm 1 channels-last", 1, true, {{3, 4, 5}, {2, 3, 3, 2}, {2, 5, 40, 33}}, false);
  const std::vector<Shape> wide = {{2, 3, 5},       {3, 1, 4},  {2, 3, 3, 2},
                                   {2, 2, 2, 3, 2}, {2, 70, 5}, {2, 3, 40, 33}};
  add_row("instance_norm", 0, false, wide, true);
  add_row("instance_norm channels-last", 0, true, wide, false);
  Row("group_norm 2 without weight and bias", [](const Args& x) { return group_norm(x[0], 2); })
      .args({real(-1, 3)})
      .shapes({{{2, 8}}, {{3, 4, 5}}})
      .accuracy(normwise)
      .cancels(0, 2)
      .golden();
  Row("instance_norm without weight and bias", [](const Args& x) { return instance_norm(x[0]); })
      .args({real(-1, 3)})
      .shapes({{{2, 3, 5}}})
      .accuracy(normwise)
      .cancels(0, 2)
      .golden();
}

}  // namespace
}  // namespace firn::testing
