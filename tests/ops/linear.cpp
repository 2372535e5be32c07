// Rows: matrix products and linear layers.
#include <utility>
#include <vector>

#include "support/ops/op_row.h"

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

/// Two or three layers: x, then weight and bias of each.
OpFn chain(Activation activation) {
  return [activation](const Args& x) {
    std::vector<Tensor> weights, biases;
    for (std::size_t i = 1; i < x.size(); i += 2) {
      weights.push_back(x[i]);
      biases.push_back(x[i + 1]);
    }
    return mlp(x[0], weights, biases, activation);
  };
}

FIRN_OP_ROWS(mlp) {
  const std::vector<std::vector<Shape>> two = {
      {{3, 4}, {5, 4}, {5}, {2, 5}, {2}},    {{4}, {5, 4}, {5}, {2, 5}, {2}},
      {{2, 3, 4}, {5, 4}, {5}, {7, 5}, {7}}, {{0, 4}, {5, 4}, {5}, {2, 5}, {2}},
      {{1, 1}, {1, 1}, {1}, {1, 1}, {1}},    {{17, 33}, {129, 33}, {129}, {10, 129}, {10}}};
  const std::vector<Arg> args(5, real());
  // The values between the layers are rounded too.
  Row("mlp relu", chain(Activation::relu))
      .args(args)
      .shapes(two)
      .accuracy(Accuracy::sum, 130)
      .roundings(3)
      .kinks();
  Row("mlp gelu_tanh", chain(Activation::gelu_tanh))
      .args(args)
      .shapes(two)
      .accuracy(Accuracy::sum, 130)
      .roundings(4);
  Row("mlp without activation, three layers", chain(Activation::none))
      .args(std::vector<Arg>(7, real()))
      .shapes({{{3, 4}, {5, 4}, {5}, {2, 5}, {2}, {6, 2}, {6}}})
      .accuracy(Accuracy::sum, 12)
      .roundings(5);
}

}  // namespace
}  // namespace firn::testing
