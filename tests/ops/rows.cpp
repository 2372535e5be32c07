// Rows: ops on rows (softmax, norms) and dropout.
#include "support/ops/op_row.h"

namespace firn::testing {
namespace {

FIRN_OP_ROWS(softmax) {
  const auto add_row = [](const char* name, bool log, std::int64_t axis,
                          std::vector<std::vector<Shape>> shapes) {
    Row row(name, [log, axis](const Args& x) {
      return log ? log_softmax(x[0], axis) : softmax(x[0], axis);
    });
    row.args({real(-4, 4)})
        .shapes(std::move(shapes))
        .accuracy(Accuracy::normwise)
        .cancels(0, 1)
        .golden();
    if (axis == -1) row.perf({{8192, 512}});
  };
  const std::vector<std::vector<Shape>> last = {{{5}},       {{1}},     {{3, 4}},    {{0, 4}},
                                                {{2, 3, 7}}, {{4, 65}}, {{3, 1025}}, {{65537, 3}}};
  const std::vector<std::vector<Shape>> first = {{{4, 3}}, {{5}}, {{2, 3, 4}}, {{129, 5}}};
  const std::vector<std::vector<Shape>> middle = {{{3, 4}}, {{2, 3, 4}}, {{3, 65, 5}}};
  add_row("softmax", false, -1, last);
  add_row("softmax axis 0", false, 0, first);
  add_row("softmax axis 1", false, 1, middle);
  add_row("log_softmax", true, -1, last);
  add_row("log_softmax axis 0", true, 0, first);
  add_row("log_softmax axis 1", true, 1, middle);
}

FIRN_OP_ROWS(norms) {
  using Accuracy::normwise;
  Row("layer_norm", [](const Args& x) { return layer_norm(x[0], x[1], x[2]); })
      .args({real(-1, 3), real(0.5, 1.5), real()})
      .shapes({{{3, 4}, {4}, {4}},
               {{1, 5}, {5}, {5}},
               {{2, 3, 7}, {7}, {7}},
               {{0, 4}, {4}, {4}},
               {{33, 65}, {65}, {65}},
               {{3, 1025}, {1025}, {1025}}})
      .accuracy(normwise)
      .golden()
      .perf({{8192, 512}, {512}, {512}});
  Row("layer_norm without weight and bias", [](const Args& x) { return layer_norm(x[0]); })
      .args({real(-1, 3)})
      .shapes({{{3, 4}}, {{2, 3, 7}}, {{33, 65}}})
      .accuracy(normwise)
      .golden();
  Row("layer_norm without bias", [](const Args& x) { return layer_norm(x[0], x[1]); })
      .args({real(-1, 3), real(0.5, 1.5)})
      .shapes({{{3, 4}, {4}}, {{2, 3, 7}, {7}}, {{33, 65}, {65}}})
      .accuracy(normwise)
      .golden();
  Row("layer_norm without weight", [](const Args& x) { return layer_norm(x[0], {}, x[1]); })
      .args({real(-1, 3), real()})
      .shapes({{{3, 4}, {4}}, {{2, 3, 7}, {7}}, {{33, 65}, {65}}})
      .accuracy(normwise)
      .golden();
  Row("layer_norm eps 0.1", [](const Args& x) { return layer_norm(x[0], x[1], x[2], 0.1); })
      .args({real(-1, 3), real(0.5, 1.5), real()})
      .shapes({{{3, 4}, {4}, {4}}})
      .accuracy(normwise)
      .golden();
  Row("rms_norm", [](const Args& x) { return rms_norm(x[0], x[1]); })
      .args({real(-1, 3), real(0.5, 1.5)})
      .shapes({{{3, 4}, {4}},
               {{1, 5}, {5}},
               {{2, 3, 7}, {7}},
               {{0, 4}, {4}},
               {{33, 65}, {65}},
               {{3, 1025}, {1025}}})
      .accuracy(normwise)
      .golden();
  Row("rms_norm without weight", [](const Args& x) { return rms_norm(x[0]); })
      .args({real(-1, 3)})
      .shapes({{{3, 4}}, {{2, 3, 7}}, {{33, 65}}})
      .accuracy(normwise)
      .golden();
}

FIRN_OP_ROWS(dropout) {
  // A generator of its own, restarted at every call: the same mask for every dtype and layout.
  const auto add_row = [](const char* name, double p, bool training) {
    Row(name,
        [p, training](const Args& x) {
          Generator g(11);
          return dropout(x[0], p, training, g);
        })
        .args({real()})
        .shapes({{{3, 5}}, {{}}, {{0}}, {{1}}, {{65}}, {{1025}}, {{65537, 1}}})
        .accuracy(Accuracy::pointwise);
  };
  add_row("dropout 0.3", 0.3, true);
  add_row("dropout 0", 0, true);
}

}  // namespace
}  // namespace firn::testing
