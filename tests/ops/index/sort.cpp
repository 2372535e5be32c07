// Rows: sorting, the largest elements, counting integers.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/ops/op_row.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

FIRN_OP_ROWS(sorting) {
  // Elements that are apart: a step of a central difference changes no order.
  for (const std::int64_t axis : {0, 1, -1}) {
    const std::string where = " axis " + std::to_string(axis);
    Row("sort" + where, [axis](const Args& x) { return sort(x[0], axis).values; })
        .args({apart()})
        .shapes({{{6, 4}}, {{2, 5, 33}}, {{3, 0}}, {{0, 3}}, {{2, 70}}})
        .accuracy(Accuracy::exact)
        .golden()
        .integers();
    Row("argsort descending" + where,
        [axis](const Args& x) { return argsort(x[0], axis, {.descending = true}); })
        .args({whole_constant()})
        .shapes({{{6, 4}}, {{2, 5, 33}}, {{3, 0}}})
        .accuracy(Accuracy::exact)
        .golden()
        .own_dtype()
        .integers();
    Row("topk" + where, [axis](const Args& x) { return topk(x[0], 3, axis).values; })
        .args({apart()})
        .shapes({{{6, 4}}, {{3, 5, 33}}, {{4, 70}}})
        .accuracy(Accuracy::exact)
        .golden()
        .integers();
  }
  Row("sort descending", [](const Args& x) { return sort(x[0], -1, {.descending = true}).values; })
      .args({apart()})
      .shapes({{{6, 4}}, {{7}}, {{}}})
      .accuracy(Accuracy::exact)
      .golden();
  Row("sort of a long line", [](const Args& x) { return sort(x[0]).values; })
      .args({real()})
      .shapes({{{3, 1025}}, {{140000}}})
      .accuracy(Accuracy::exact)
      .kinks();
  Row("sort, indices", [](const Args& x) { return sort(x[0]).indices; })
      .args({whole_constant()})
      .shapes({{{6, 4}}, {{2, 600}}, {{}}})
      .accuracy(Accuracy::exact)
      .golden()
      .own_dtype();
  Row("topk smallest", [](const Args& x) { return topk(x[0], 2, -1, {.largest = false}).values; })
      .args({apart()})
      .shapes({{{6, 4}}, {{33}}})
      .accuracy(Accuracy::exact)
      .golden();
  Row("topk, not sorted", [](const Args& x) { return topk(x[0], 3, -1, {.sorted = false}).values; })
      .args({apart()})
      .shapes({{{6, 4}}, {{33}}})
      .accuracy(Accuracy::exact);
  Row("topk of none", [](const Args& x) { return topk(x[0], 0).values; })
      .args({apart()})
      .shapes({{{6, 4}}, {{0}}})
      .accuracy(Accuracy::exact);
  // All values are below min_length: by shapes alone the result is as long.
  Row("bincount", [](const Args& x) { return bincount(x[0], {.min_length = 7}); })
      .args({index(7)})
      .shapes({{{40}}, {{0}}, {{1}}, {{65537}}})
      .accuracy(Accuracy::exact)
      .golden()
      .own_dtype();
  Row("bincount with weights",
      [](const Args& x) { return bincount(x[1], {.weights = x[0], .min_length = 7}); })
      .args({constant(), index(7)})
      .shapes({{{40}, {40}}, {{0}, {0}}, {{1}, {1}}})
      .accuracy(Accuracy::sum, 40)
      .golden();
}

/// The positions of values in order, by comparisons.
std::vector<double> in_order(const std::vector<double>& values, bool descending) {
  std::vector<double> out(values.size());
  std::iota(out.begin(), out.end(), 0);
  const auto before = [](double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); };
  std::stable_sort(out.begin(), out.end(), [&](double i, double j) {
    const double a = values[static_cast<std::size_t>(i)], b = values[static_cast<std::size_t>(j)];
    return descending ? before(b, a) : before(a, b);
  });
  return out;
}

TEST_CASE("[S29] long lines with equal elements and NaN are sorted as by comparisons") {
  for (const DType t : {f16, f32, f64, i32, i64, u8}) {
    for (const std::int64_t n : {300, 1500, 150'001}) {
      if (on_slow_device() && (n > 1500 || t == f16 || t == i32)) continue;
      std::vector<double> values = Rng(7).uniforms(n, -100, 100);
      for (double& v : values) v = std::round(t == u8 ? std::abs(v) : v);
      if (is_floating(t)) {
        values[3] = values[static_cast<std::size_t>(n) - 1] = std::nan("");
        values[5] = -std::numeric_limits<double>::infinity();
        values[7] = -0.;
      }
      const Tensor x = make(values, {n}, t);
      for (const bool descending : {false, true}) {
        const std::vector<double> want = in_order(values, descending);
        for (const int threads : {1, 3}) {
          if (on_slow_device() && threads > 1) continue;
          const Threads scope(threads);
          CHECK(values_of(argsort(x, 0, {.descending = descending})) == want);
          for (const std::int64_t k : {1, 20, 130}) {
            const std::vector<double> first(want.begin(), want.begin() + k);
            CHECK(values_of(topk(x, k, 0, {.largest = descending}).indices) == first);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace firn::testing
