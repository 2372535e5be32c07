// Rows: matrix products and linear layers.
#include "support/op_row.h"

namespace firn::testing {
namespace {

void product(const char* name, OpFn op, std::vector<std::vector<Shape>> shapes, double terms) {
  Row(name, std::move(op))
      .args({real(), real()})
      .shapes(std::move(shapes))
      .accuracy(Accuracy::sum, terms)
      .golden();
}

FIRN_OP_ROWS(matmul) {
  const auto plain = [](const Args& x) { return matmul(x[0], x[1]); };
  Row("matmul", plain)
      .args({real(), real()})
      .shapes({{{3, 4}, {4, 5}},
               {{1, 1}, {1, 1}},
               {{2, 0}, {0, 3}},
               {{0, 4}, {4, 5}},
               {{3, 4}, {4, 0}},
               {{1, 7}, {7, 1}},
               {{31, 33}, {33, 32}},
               {{65, 129}, {129, 63}},
               {{5, 1025}, {1025, 3}}})
      .accuracy(Accuracy::sum, 1025)
      .golden()
      .perf({{1024, 1024}, {1024, 1024}}, 2.0 * (1 << 30));
  product("matmul batched", plain,
          {{{2, 3, 4}, {2, 4, 5}},
           {{1, 3, 4}, {1, 4, 2}},
           {{0, 3, 4}, {0, 4, 2}},
           {{2, 3, 2, 4}, {2, 3, 4, 2}},
           {{7, 17, 33}, {7, 33, 15}}},
          33);
  product(
      "matmul broadcast batch", plain,
      {{{2, 1, 3, 4}, {3, 4, 2}}, {{3, 4}, {5, 4, 2}}, {{5, 2, 4}, {4, 3}}, {{2, 3, 4}, {1, 4, 5}}},
      4);
  product("matmul vector matrix", plain, {{{4}, {4, 5}}, {{4}, {2, 4, 3}}, {{129}, {129, 5}}}, 129);
  product("matmul matrix vector", plain, {{{3, 4}, {4}}, {{2, 3, 4}, {4}}, {{5, 129}, {129}}}, 129);
  product("matmul vector vector", plain, {{{4}, {4}}, {{1}, {1}}, {{1023}, {1023}}}, 1023);
  product(
      "matmul transposed left", [](const Args& x) { return matmul(transpose(x[0], -2, -1), x[1]); },
      {{{4, 3}, {4, 5}}, {{2, 4, 3}, {2, 4, 5}}, {{33, 31}, {33, 17}}}, 33);
  product(
      "matmul transposed right",
      [](const Args& x) { return matmul(x[0], transpose(x[1], -2, -1)); },
      {{{3, 4}, {5, 4}}, {{2, 3, 4}, {2, 5, 4}}, {{31, 33}, {17, 33}}}, 33);
  product(
      "matmul transposed both",
      [](const Args& x) { return matmul(transpose(x[0], 0, 1), transpose(x[1], 0, 1)); },
      {{{4, 3}, {5, 4}}, {{33, 31}, {17, 33}}}, 33);
}

FIRN_OP_ROWS(linear) {
  Row("linear", [](const Args& x) { return linear(x[0], x[1], x[2]); })
      .args({real(), real(), real()})
      .shapes({{{3, 4}, {5, 4}, {5}},
               {{4}, {5, 4}, {5}},
               {{2, 3, 4}, {5, 4}, {5}},
               {{0, 4}, {5, 4}, {5}},
               {{1, 1}, {1, 1}, {1}},
               {{64, 129}, {65, 129}, {65}}})
      .accuracy(Accuracy::sum, 130)
      .golden()
      .perf({{64, 784}, {512, 784}, {512}}, 2.0 * 64 * 784 * 512);
  product(
      "linear without bias", [](const Args& x) { return linear(x[0], x[1]); },
      {{{3, 4}, {5, 4}}, {{2, 3, 4}, {5, 4}}, {{33, 65}, {31, 65}}}, 65);
}

}  // namespace
}  // namespace firn::testing
