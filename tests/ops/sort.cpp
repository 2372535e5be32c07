// Rows: sorting, the largest elements, counting integers.
#include "support/ops/op_row.h"

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

}  // namespace
}  // namespace firn::testing
