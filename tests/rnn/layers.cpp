// RNN, GRU and LSTM beside PyTorch in all options (tests/goldens/rnn.py), and what they refuse.
#include <cmath>
#include <string>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/golden.h"
#include "support/source_path.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using Values = std::vector<double>;

bool says(const std::string& name, const std::string& option) {
  return (name + " ").find(" " + option + " ") != std::string::npos;
}

std::vector<Tensor> operands_of(const Golden& g, DType dtype) {
  std::vector<Tensor> operands;
  for (const GoldenTensor& t : g.inputs) {
    operands.push_back(make(t.values, t.shape, t.dtype == i64 ? i64 : dtype));
    if (t.dtype != i64) operands.back().set_requires_grad();
  }
  return operands;
}

/// Gives the layer's parameters the values of the operands from `first` on.
template <class Layer>
void set_parameters(Layer& layer, const Golden& g, const std::vector<Tensor>& operands,
                    std::size_t first) {
  const NoGrad guard;
  std::size_t parameter = first;
  for (Tensor& p : layer.parameters()) {
    REQUIRE(p.shape() == g.inputs.at(parameter).shape);
    copy_(p, operands[parameter++]);
  }
  REQUIRE(parameter == g.inputs.size());
}

/// Compares parts of the result and, after backward, the gradients of operands and parameters,
/// which begin at `first`.
template <class Layer>
void compare(const Golden& g, Layer& layer, const std::vector<Tensor>& operands, std::size_t first,
             const std::vector<Tensor>& parts, DType dtype, double bound) {
  const Tensor all = cat(parts);
  expect_close("result", values_of(all.detach()), g.output.values,
               bound * (1 + largest(g.output.values)));
  (all * make(g.seed, all.shape(), dtype)).sum().backward();
  const std::vector<Tensor> parameters = layer.parameters();
  for (const auto& [i, want] : g.gradients) {
    const std::size_t at = static_cast<std::size_t>(i);
    const Tensor& t = at < first ? operands[at] : parameters[at - first];
    expect_close("gradient " + std::to_string(i), values_of(t.grad()), want,
                 4 * bound * (1 + largest(want)));
  }
}

template <class Cell>
void check_cell(const std::string& name, const Golden& g, Cell cell, DType dtype, double bound) {
  INFO(name << ' ' << to_string(dtype));
  const std::vector<Tensor> operands = operands_of(g, dtype);
  if constexpr (std::is_same_v<Cell, nn::LSTMCell>) {
    set_parameters(cell, g, operands, 3);
    const nn::CellState y = cell(operands[0], nn::CellState{operands[1], operands[2]});
    compare(g, cell, operands, 3, {flatten(y.h), flatten(y.c)}, dtype, bound);
  } else {
    set_parameters(cell, g, operands, 2);
    compare(g, cell, operands, 2, {flatten(cell(operands[0], operands[1]))}, dtype, bound);
  }
}

/// Gives `layer` the golden's weights, calls it, and compares results and gradients.
template <class Layer>
void check(const std::string& name, const Golden& g, Layer layer, DType dtype, double bound) {
  INFO(name << ' ' << to_string(dtype));
  const std::vector<Tensor> operands = operands_of(g, dtype);
  std::size_t next = 2;
  nn::RecurrentInput input{.h = operands[1]};
  if (name.starts_with("lstm")) input.c = operands[next++];
  if (says(name, "packed")) input.lengths = operands[next++];
  set_parameters(layer, g, operands, next);
  const RecurrentResult y = layer(operands[0], input);
  std::vector<Tensor> parts = {flatten(y.output), flatten(y.h)};
  if (y.c.defined()) parts.push_back(flatten(y.c));
  compare(g, layer, operands, next, parts, dtype, bound);
}

void check(const std::string& name, const Golden& g, DType dtype, double bound) {
  const nn::RecurrentLayerOptions options{.layers = says(name, "layers=2") ? 2 : 1,
                                          .bias = !says(name, "bias=0"),
                                          .batch_first = says(name, "first"),
                                          .bidirectional = says(name, "both"),
                                          .projection = says(name, "p") ? 2 : 0,
                                          .relu = name.starts_with("rnn_relu"),
                                          .dtype = dtype};
  if (name.starts_with("lstm")) {
    check(name, g, nn::LSTM(2, 3, options), dtype, bound);
  } else if (name.starts_with("gru")) {
    check(name, g, nn::GRU(2, 3, options), dtype, bound);
  } else {
    check(name, g, nn::RNN(2, 3, options), dtype, bound);
  }
}

}  // namespace

TEST_CASE("layers equal PyTorch's in all options, forward and backward") {
  const auto goldens = read_goldens(source_path("tests/goldens/rnn.safetensors"));
  CHECK(goldens.size() == 56);
  for (const auto& [name, golden] : goldens) {
    check(name, golden, f64, 1e-13);
    check(name, golden, f32, 3e-6);
  }
}

TEST_CASE("cells equal PyTorch's, forward and backward") {
  const auto goldens = read_goldens(source_path("tests/goldens/rnn_cells.safetensors"));
  CHECK(goldens.size() == 8);
  for (const auto& [name, golden] : goldens) {
    for (const DType dtype : {f64, f32}) {
      const nn::RecurrentCellOptions options{
          .bias = !says(name, "bias=0"), .relu = name.starts_with("rnn_relu"), .dtype = dtype};
      const double bound = dtype == f64 ? 1e-13 : 3e-6;
      if (name.starts_with("lstm")) {
        check_cell(name, golden, nn::LSTMCell(2, 3, options), dtype, bound);
      } else if (name.starts_with("gru")) {
        check_cell(name, golden, nn::GRUCell(2, 3, options), dtype, bound);
      } else {
        check_cell(name, golden, nn::RNNCell(2, 3, options), dtype, bound);
      }
    }
  }
}

TEST_CASE("a cell takes a step without a batch and without a state, and steps are a layer") {
  nn::LSTMCell cell(2, 3);
  nn::LSTM layer(2, 3);
  {
    const NoGrad guard;
    copy_(layer.weights.at(0).weight_ih, cell.weight_ih);
    copy_(layer.weights.at(0).weight_hh, cell.weight_hh);
    copy_(layer.weights.at(0).bias_ih, cell.bias_ih);
    copy_(layer.weights.at(0).bias_hh, cell.bias_hh);
  }
  const Tensor x = make(Rng(5).uniforms(4 * 2, -1, 1), {4, 2}, f32);
  nn::CellState state;
  for (std::int64_t t = 0; t < 4; ++t) state = cell(x[t], state);
  const RecurrentResult want = layer(x, nn::RecurrentInput{});
  CHECK(state.h.shape() == Shape{3});
  expect_close("h", values_of(state.h), values_of(want.h), 1e-6);
  expect_close("c", values_of(state.c), values_of(want.c), 1e-6);
  nn::GRUCell gru(2, 3);
  expect_same("zeros", values_of(gru(x)), values_of(gru(x, zeros({4, 3}, x.device()))));
}

TEST_CASE("cells name their parameters as PyTorch does, and refuse what does not fit", "[host]") {
  nn::LSTMCell cell(4, 5);
  std::vector<std::string> names;
  for (const NamedTensor& p : cell.named_parameters()) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{"weight_ih", "weight_hh", "bias_ih", "bias_hh"});
  CHECK(cell.weight_ih.shape() == Shape{20, 4});
  CHECK(nn::RNNCell(2, 3, {.bias = false, .relu = true}).extra_repr() ==
        "2, 3, bias = false, relu = true");
  nn::LSTMCell copy = nn::clone(cell);
  {
    const NoGrad guard;
    copy_(copy.bias_ih, zeros({20}));
  }
  CHECK(sum(abs(cell.bias_ih)).item() > 0);
  const auto refused = [](const std::string& part, auto&& call) {
    const std::string text = error_of(call);
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  refused("input [3, 2] f32 cpu does not fit to 4 inputs", [&] { cell(zeros({3, 2})); });
  refused("h [2, 5] f32 cpu is not [3, 5]", [&] {
    cell(zeros({3, 4}), nn::CellState{.h = zeros({2, 5})});
  });
  refused("c [5] f32 cpu is not [3, 5]", [&] {
    cell(zeros({3, 4}), nn::CellState{.c = zeros({5})});
  });
  refused("in = 0", [] { nn::GRUCell(0, 3); });
  refused("relu is set", [] { nn::GRUCell(2, 3, {.relu = true}); });
}

TEST_CASE("layers in 16 bits round each state once") {
  const auto goldens = read_goldens(source_path("tests/goldens/rnn.safetensors"));
  for (const char* name : {"lstm layers=2 both first packed", "gru both", "rnn_tanh packed",
                           "lstm both p", "rnn_relu"}) {
    check(name, goldens.at(name), f16, 0x1p-8);
    check(name, goldens.at(name), bf16, 0x1p-5);
  }
}

TEST_CASE("layers name their parameters as PyTorch does", "[host]") {
  nn::LSTM lstm(2, 3, {.layers = 2, .bidirectional = true, .projection = 1});
  std::vector<std::string> names;
  for (const NamedTensor& p : lstm.named_parameters()) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{
                     "weight_ih_l0",         "weight_hh_l0",         "bias_ih_l0",
                     "bias_hh_l0",           "weight_hr_l0",         "weight_ih_l0_reverse",
                     "weight_hh_l0_reverse", "bias_ih_l0_reverse",   "bias_hh_l0_reverse",
                     "weight_hr_l0_reverse", "weight_ih_l1",         "weight_hh_l1",
                     "bias_ih_l1",           "bias_hh_l1",           "weight_hr_l1",
                     "weight_ih_l1_reverse", "weight_hh_l1_reverse", "bias_ih_l1_reverse",
                     "bias_hh_l1_reverse",   "weight_hr_l1_reverse"});
  CHECK(lstm.weights.at(1, true).weight_ih.shape() == Shape{12, 2});
  CHECK(lstm.weights.at(1).weight_hr.shape() == Shape{1, 3});
  CHECK(lstm.extra_repr() == "2, 3, layers = 2, bidirectional = true, projection = 1");
  CHECK(nn::RNN(2, 3, {.bias = false, .batch_first = true, .relu = true}).extra_repr() ==
        "2, 3, bias = false, batch_first = true, relu = true");

  nn::LSTM copy = nn::clone(lstm);
  {
    const NoGrad guard;
    mul_(lstm.weights.at(0).weight_ih, 0.0);
  }
  CHECK(sum(abs(copy.weights.at(0).weight_ih)).item() > 0);
  copy.copy_from(lstm);
  CHECK(sum(abs(copy.weights.at(0).weight_ih)).item() == 0);
}

TEST_CASE("a layer is a part of a Sequential, and takes a sequence without a batch") {
  nn::GRU gru(4, 5, {.layers = 2, .dropout = 0.5, .bidirectional = true});
  nn::Sequential net(gru, nn::Linear(10, 3));
  net.eval();
  gru.eval();
  const Tensor x = make(Rng(1).uniforms(6 * 4, -1, 1), {6, 4}, f32);
  const Tensor y = net(x);
  CHECK(y.shape() == Shape{6, 3});
  const RecurrentResult alone = gru(x, nn::RecurrentInput{}),
                        batch = gru(unsqueeze(x, 1), nn::RecurrentInput{});
  CHECK(alone.output.shape() == Shape{6, 10});
  CHECK(alone.h.shape() == Shape{4, 5});
  CHECK_FALSE(alone.c.defined());
  expect_same("output", values_of(alone.output), values_of(batch.output));
  expect_same("h", values_of(alone.h), values_of(batch.h));
  // In training mode half of what the upper layer reads is zero.
  net.train();
  manual_seed(1);
  const Values first = values_of(net(x));
  CHECK(first != values_of(net(x)));
  manual_seed(1);
  expect_same("the same seed", values_of(net(x)), first);
}

TEST_CASE("padding of a layer may hold anything") {
  nn::LSTM lstm(2, 3, {.layers = 2, .bidirectional = true, .dtype = f64});
  Values x = Rng(2).uniforms(4 * 2 * 2, -1, 1);
  const auto call = [&](double padding) {
    Values with = x;
    for (std::size_t t = 2; t < 4; ++t) with[t * 4 + 2] = with[t * 4 + 3] = padding;
    const Tensor input = make(with, {4, 2, 2}).set_requires_grad();
    for (Tensor& p : lstm.parameters()) p.set_grad({});
    const Tensor lengths = to_device(tensor(std::vector<std::int64_t>{4, 2}, {2}), input.device());
    sum(square(lstm(input, nn::RecurrentInput{.lengths = lengths}).output)).backward();
    std::vector<Values> out = {values_of(input.grad())};
    for (const Tensor& p : lstm.parameters()) out.push_back(values_of(p.grad()));
    return out;
  };
  const std::vector<Values> plain = call(0);
  for (const double padding : {std::nan(""), HUGE_VAL, 1e300}) {
    const std::vector<Values> got = call(padding);
    for (std::size_t i = 0; i < got.size(); ++i)
      expect_same("gradient " + std::to_string(i), got[i], plain[i]);
  }
}

TEST_CASE("layers refuse what they were not made for, naming the numbers", "[host]") {
  nn::LSTM lstm(4, 5, {.layers = 2});
  nn::GRU gru(4, 5);
  const Tensor x = zeros({3, 2, 4});
  const auto refused = [](const std::string& part, auto&& call) {
    const std::string text = error_of(call);
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  refused("input [3, 2, 5]", [&] { lstm(zeros({3, 2, 5})); });
  refused("h [2, 3, 5] f32 cpu is not [2, 2, 5]", [&] {
    lstm(x, nn::RecurrentInput{.h = zeros({2, 3, 5})});
  });
  refused("c [1, 2, 5] f32 cpu is not [2, 2, 5]", [&] {
    lstm(x, nn::RecurrentInput{.c = zeros({1, 2, 5})});
  });
  refused("only an LSTM has a state c", [&] { gru(x, nn::RecurrentInput{.c = zeros({1, 2, 5})}); });
  refused("lengths[1] is 4, and there are 3 steps", [&] {
    gru(x, nn::RecurrentInput{.lengths = tensor<std::int64_t>({1, 4})});
  });
  refused("lengths[1] is -1", [&] {
    gru(x, nn::RecurrentInput{.lengths = tensor<std::int64_t>({1, -1})});
  });
  refused("lengths are i64 or i32, got [2] f32",
          [&] { gru(x, nn::RecurrentInput{.lengths = ones({2})}); });
  refused("lengths [3]", [&] {
    gru(x, nn::RecurrentInput{.lengths = tensor<std::int64_t>({1, 2, 3})});
  });
  refused("units = 0", [] { nn::RNN(4, 0); });
  refused("layers = 0", [] { nn::RNN(4, 2, {.layers = 0}); });
  refused("layers = 9223372036854775807", [] { nn::LSTM(4, 2, {.layers = INT64_MAX}); });
  refused("dropout = 0.5 lies between layers", [] { nn::RNN(4, 2, {.dropout = 0.5}); });
  refused("projection = 2", [] { nn::GRU(4, 3, {.projection = 2}); });
  refused("projection = 3 of 3 units", [] { nn::LSTM(4, 3, {.projection = 3}); });
  refused("relu", [] { nn::LSTM(4, 3, {.relu = true}); });
  refused("layer 1 of 1", [&] { gru.weights.at(1); });
  refused("set bidirectional", [&] { gru.weights.at(0, true); });
}

}  // namespace firn::testing
