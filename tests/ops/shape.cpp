// Rows: ops that move elements and leave their values: views, joins, cuts, padding, copies.
#include "support/ops/op_row.h"

namespace firn::testing {
namespace {

void moves(const char* name, OpFn op, std::vector<std::vector<Shape>> shapes) {
  Row row(name, std::move(op));
  row.args(std::vector<Arg>(shapes[0].size(), real()));
  row.shapes(std::move(shapes)).accuracy(Accuracy::exact).golden().integers();
}

FIRN_OP_ROWS(views) {
  moves("reshape",
        [](const Args& x) {
          return reshape(x[0], {4, -1});
        },
        {{{3, 4}}, {{2, 6}}, {{2, 2, 5}}, {{12}}});
  moves("flatten", [](const Args& x) { return flatten(x[0], 1); },
        {{{2, 3, 4}}, {{3, 4}}, {{2, 3, 1, 2}}});
  moves("permute",
        [](const Args& x) {
          return permute(x[0], {2, 0, 1});
        },
        {{{2, 3, 4}}, {{1, 3, 2}}, {{0, 3, 2}}, {{17, 5, 33}}});
  moves("transpose", [](const Args& x) { return transpose(x[0], 0, -1); },
        {{{2, 3, 4}}, {{3, 5}}, {{65, 63}}});
  moves("unsqueeze", [](const Args& x) { return unsqueeze(x[0], 1); }, {{{3, 4}}, {{5}}});
  moves("unsqueeze last", [](const Args& x) { return unsqueeze(x[0], -1); }, {{{3, 4}}, {{}}});
  moves("squeeze", [](const Args& x) { return squeeze(x[0], 1); }, {{{3, 1, 4}}, {{5, 1}}});
  moves("slice", [](const Args& x) { return slice(x[0], 1, 1, 3); },
        {{{3, 4}}, {{2, 5, 3}}, {{2, 2}}, {{33, 65}}});
  moves("slice step 2", [](const Args& x) { return slice(x[0], 0, 1, 100, 2); },
        {{{7, 2}}, {{6}}, {{1, 3}}, {{129, 3}}});
  moves("slice negative", [](const Args& x) { return slice(x[0], -1, -3, -1); },
        {{{2, 5}}, {{4}}, {{3, 2}}});
  moves("select first axis", [](const Args& x) { return select(x[0], 0, 1); },
        {{{3, 4}}, {{2}}, {{2, 3, 4}}});
  moves("select last axis", [](const Args& x) { return select(x[0], -1, -1); },
        {{{3, 4}}, {{5}}, {{2, 3, 4}}});
  Row("expand",
      [](const Args& x) {
        return expand(x[0], {2, 3, 4});
      })
      .args({real()})
      .shapes({{{3, 1}}, {{}}, {{4}}, {{1, 3, 4}}, {{2, 1, 4}}, {{2, 3, 4}}})
      .accuracy(Accuracy::sum)
      .golden()
      .integers();
}

FIRN_OP_ROWS(joins) {
  moves("cat axis 0",
        [](const Args& x) {
          return cat({x[0], x[1]}, 0);
        },
        {{{2, 3}, {4, 3}}, {{3}, {1}}, {{0, 2}, {3, 2}}, {{33, 5}, {31, 5}}});
  moves("cat last axis",
        [](const Args& x) {
          return cat({x[0], x[1]}, -1);
        },
        {{{2, 3}, {2, 1}}, {{3}, {2}}, {{2, 2, 2}, {2, 2, 3}}, {{33, 5}, {33, 64}}});
  moves("cat three",
        [](const Args& x) {
          return cat({x[0], x[1], x[2]}, 1);
        },
        {{{2, 3}, {2, 1}, {2, 2}}, {{1, 1, 2}, {1, 3, 2}, {1, 0, 2}}});
  moves("stack axis 0",
        [](const Args& x) {
          return stack({x[0], x[1]}, 0);
        },
        {{{2, 3}, {2, 3}}, {{}, {}}, {{65}, {65}}});
  moves("stack last axis",
        [](const Args& x) {
          return stack({x[0], x[1]}, -1);
        },
        {{{2, 3}, {2, 3}}, {{5}, {5}}});
  // The pieces come back in another order, so that each has to find its own place.
  moves("split",
        [](const Args& x) {
          const auto p = split(x[0], 2, 0);
          return cat({p[2], p[0], p[1]}, 0);
        },
        {{{5, 3}}, {{6}}, {{5, 2, 2}}});
  moves("split sizes",
        [](const Args& x) {
          const std::vector<std::int64_t> sizes = {1, 0, 3};
          const auto p = split(x[0], sizes, 1);
          return cat({p[2], p[1], p[0]}, 1);
        },
        {{{2, 4}}, {{3, 4, 2}}});
}

FIRN_OP_ROWS(padding) {
  moves("pad",
        [](const Args& x) {
          return pad(x[0], {1, 0}, {2, 3});
        },
        {{{2, 3}}, {{1, 1}}, {{33, 65}}});
  moves("pad value",
        [](const Args& x) {
          return pad(x[0], {0, 2}, {1, 0}, 7);
        },
        {{{2, 3}}, {{3, 1}}});
}

FIRN_OP_ROWS(copies) {
  moves("clone", [](const Args& x) { return clone(x[0]); }, {{{3, 4}}, {{}}, {{0}}, {{65537, 1}}});
  moves("contiguous", [](const Args& x) { return contiguous(transpose(x[0], 0, 1)); },
        {{{3, 4}}, {{1, 5}}, {{65, 63}}});
  // Down to 16 bits and back: exact for values that fit, and the gradient is cast back.
  Row("cast f64", [](const Args& x) { return cast(x[0], f64); })
      .args({real()})
      .shapes({{{3, 4}}, {{}}, {{0}}, {{65537, 1}}})
      .accuracy(Accuracy::exact)
      .own_dtype();
}

}  // namespace
}  // namespace firn::testing
