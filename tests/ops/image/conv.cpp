// Rows: convolutions, in one and two dimensions and the other way round.
#include <utility>
#include <vector>

#include "support/ops/op_row.h"

namespace firn::testing {
namespace {

/// Operands x, weight and, where there are three, bias.
OpFn conv(Conv2dOptions o = {}) {
  return [o](const Args& x) { return conv2d(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), o); };
}
OpFn conv_1d(Conv1dOptions o = {}) {
  return [o](const Args& x) { return conv1d(x[0], x[1], x[2], o); };
}
OpFn transposed(ConvTranspose2dOptions o = {}) {
  return [o](const Args& x) {
    return conv_transpose2d(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), o);
  };
}

void row(const char* name, OpFn op, std::vector<std::vector<Shape>> shapes, double terms) {
  const std::size_t operands = shapes[0].size();
  Row(name, std::move(op))
      .args(std::vector<Arg>(operands, real()))
      .shapes(std::move(shapes))
      .accuracy(Accuracy::sum, terms)
      .golden();
}

FIRN_OP_ROWS(conv2d) {
  Row("conv2d", conv())
      .args({real(), real(), real()})
      .shapes({{{2, 3, 5, 6}, {4, 3, 3, 2}, {4}},
               {{1, 1, 1, 1}, {1, 1, 1, 1}, {1}},
               {{0, 3, 5, 5}, {4, 3, 3, 3}, {4}},
               {{2, 3, 4, 4}, {0, 3, 3, 3}, {0}},
               {{1, 2, 1, 9}, {3, 2, 1, 4}, {3}},
               {{1, 2, 9, 1}, {3, 2, 9, 1}, {3}},
               {{3, 16, 9, 7}, {24, 16, 3, 3}, {24}},
               {{2, 17, 6, 6}, {33, 17, 2, 3}, {33}},
               {{5, 1, 28, 28}, {8, 1, 3, 3}, {8}}})
      .accuracy(Accuracy::sum, 145)
      .golden()
      .perf({{64, 32, 26, 26}, {64, 32, 3, 3}, {64}}, 2.0 * 64 * 24 * 24 * 64 * 32 * 9);
  row("conv2d unbatched", conv(), {{{3, 5, 6}, {4, 3, 3, 2}, {4}}}, 19);
  row("conv2d without bias", conv(), {{{2, 3, 5, 6}, {4, 3, 2, 3}}}, 18);
  row("conv2d stride 2 padding 1", conv({.stride = 2, .padding = 1}),
      {{{2, 3, 6, 7}, {4, 3, 3, 3}, {4}},
       {{1, 1, 1, 1}, {2, 1, 3, 3}, {2}},
       {{2, 16, 12, 11}, {16, 16, 3, 3}, {16}}},
      145);
  row("conv2d stride 1 by 3 padding 2 by 0", conv({.stride = {1, 3}, .padding = {2, 0}}),
      {{{2, 2, 4, 8}, {3, 2, 3, 2}, {3}}, {{2, 8, 4, 10}, {16, 8, 3, 2}, {16}}}, 49);
  row("conv2d same", conv({.padding = kSamePadding}),
      {{{2, 2, 5, 4}, {3, 2, 4, 3}, {3}}, {{2, 16, 8, 8}, {16, 16, 4, 2}, {16}}}, 129);
  row("conv2d same dilation 2 by 3", conv({.padding = kSamePadding, .dilation = {2, 3}}),
      {{{1, 2, 5, 7}, {3, 2, 2, 3}, {3}}, {{2, 16, 9, 8}, {16, 16, 2, 2}, {16}}}, 65);
  row("conv2d dilation 2 by 1 stride 2", conv({.stride = 2, .dilation = {2, 1}}),
      {{{2, 2, 7, 6}, {3, 2, 3, 2}, {3}}}, 13);
  row("conv2d groups 2", conv({.padding = 1, .groups = 2}),
      {{{2, 4, 5, 4}, {6, 2, 3, 3}, {6}}, {{2, 32, 6, 6}, {32, 16, 3, 3}, {32}}}, 145);
  row("conv2d depthwise", conv({.stride = 2, .padding = 1, .groups = 4}),
      {{{2, 4, 5, 6}, {4, 1, 3, 3}, {4}}, {{0, 4, 5, 6}, {4, 1, 3, 3}, {4}}}, 10);
  row("conv2d depthwise by 2", conv({.padding = 1, .groups = 3}),
      {{{2, 3, 5, 4}, {6, 1, 3, 2}, {6}}}, 7);
  Row("conv2d depthwise of many channels", conv({.padding = {2, 1}, .groups = 48}))
      .args({real(), real(), real()})
      .shapes({{{1, 48, 3, 2}, {48, 1, 3, 2}, {48}}, {{3, 48, 7, 9}, {48, 1, 5, 3}, {48}}})
      .accuracy(Accuracy::sum, 16);
  row("conv2d pointwise", conv(),
      {{{2, 3, 4, 5}, {4, 3, 1, 1}, {4}}, {{2, 33, 5, 5}, {20, 33, 1, 1}, {20}}}, 34);
  Row("conv2d relu", conv({.activation = Activation::relu}))
      .args({real(), real(), real()})
      .shapes({{{2, 3, 5, 6}, {4, 3, 3, 2}, {4}}, {{2, 16, 6, 6}, {16, 16, 3, 3}, {16}}})
      .accuracy(Accuracy::sum, 145)
      .golden()
      .kinks();
  Row("conv2d gelu_tanh", conv({.activation = Activation::gelu_tanh}))
      .args({real(), real(), real()})
      .shapes({{{2, 2, 4, 4}, {3, 2, 2, 2}, {3}}})
      .accuracy(Accuracy::sum, 9)
      .roundings(2)
      .golden();
  Row("conv2d of a channels-last image",
      [](const Args& x) {
        return conv2d(channels_last(x[0]), channels_last(x[1]), {}, {.stride = 2, .padding = 1});
      })
      .args({real(), real()})
      .shapes({{{2, 3, 5, 6}, {4, 3, 3, 2}}, {{2, 16, 9, 7}, {24, 16, 3, 3}}})
      .accuracy(Accuracy::sum, 144);
  Row("conv2d after conv2d",
      [](const Args& x) {
        return conv2d(conv2d(x[0], x[1], {}, {.padding = 1}), x[2], {}, {.stride = 2});
      })
      .args({real(), real(), real()})
      .shapes({{{2, 2, 5, 4}, {3, 2, 3, 3}, {4, 3, 2, 2}}})
      .accuracy(Accuracy::sum, 18 * 12)
      .roundings(2);
}

FIRN_OP_ROWS(conv1d) {
  row("conv1d", conv_1d(),
      {{{2, 3, 9}, {4, 3, 4}, {4}}, {{0, 3, 9}, {4, 3, 4}, {4}}, {{2, 16, 40}, {24, 16, 5}, {24}}},
      81);
  row("conv1d unbatched", conv_1d(), {{{3, 9}, {4, 3, 4}, {4}}}, 13);
  row("conv1d strided", conv_1d({.stride = 2, .padding = 3, .dilation = 2, .groups = 2}),
      {{{2, 4, 11}, {6, 2, 3}, {6}}}, 7);
  row("conv1d same", conv_1d({.padding = kSamePadding}), {{{2, 2, 6}, {3, 2, 4}, {3}}}, 9);
  Row("conv1d relu", conv_1d({.padding = 1, .activation = Activation::relu}))
      .args({real(), real(), real()})
      .shapes({{{2, 3, 9}, {4, 3, 4}, {4}}})
      .accuracy(Accuracy::sum, 13)
      .kinks();
}

FIRN_OP_ROWS(conv_transpose2d) {
  row("conv_transpose2d", transposed(),
      {{{2, 3, 3, 4}, {3, 2, 3, 2}, {2}},
       {{1, 1, 1, 1}, {1, 1, 1, 1}, {1}},
       {{0, 3, 3, 4}, {3, 2, 3, 2}, {2}},
       {{2, 16, 5, 6}, {16, 24, 3, 3}, {24}}},
      145);
  row("conv_transpose2d unbatched", transposed(), {{{3, 3, 4}, {3, 2, 3, 2}, {2}}}, 19);
  row("conv_transpose2d without bias", transposed({.stride = 2}), {{{2, 3, 3, 4}, {3, 2, 2, 2}}},
      12);
  row("conv_transpose2d stride 2 padding 1", transposed({.stride = 2, .padding = 1}),
      {{{2, 3, 3, 4}, {3, 2, 4, 3}, {2}}, {{2, 16, 5, 6}, {16, 16, 4, 4}, {16}}}, 65);
  row("conv_transpose2d output padding 1 by 2",
      transposed({.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}}),
      {{{2, 3, 3, 2}, {3, 2, 3, 3}, {2}}, {{2, 16, 4, 3}, {16, 16, 3, 3}, {16}}}, 145);
  row("conv_transpose2d output padding within dilation",
      transposed({.padding = {1, 0}, .output_padding = {2, 1}, .dilation = {3, 2}}),
      {{{1, 2, 3, 3}, {2, 2, 2, 3}, {2}}}, 13);
  row("conv_transpose2d groups 2", transposed({.stride = 2, .groups = 2}),
      {{{2, 4, 3, 3}, {4, 3, 2, 3}, {6}}}, 13);
}

}  // namespace
}  // namespace firn::testing
