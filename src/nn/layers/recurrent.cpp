// RNN, GRU, LSTM and their cells.
#include "firn/nn/layers/recurrent.h"

#include <cmath>

#include "base/checked.h"
#include "firn/nn/init.h"
#include "firn/ops/ops.h"
#include "ops/common.h"

namespace firn::nn {
namespace {

void check_options(const char* layer, RecurrentCell cell, std::int64_t in, std::int64_t units,
                   const RecurrentLayerOptions& o) {
  FIRN_CHECK(in > 0 && units > 0, layer, "give the width of x and the number of units",
             "in = {} and units = {} must be positive", in, units);
  constexpr std::int64_t kMostLayers = 65536;  // a number that was overwritten makes no layer
  FIRN_CHECK(o.layers > 0 && o.layers <= kMostLayers, layer, "1 is the default",
             "layers = {} is not in [1, {}]", o.layers, kMostLayers);
  FIRN_CHECK(o.dropout >= 0 && o.dropout < 1, layer, "the share of what becomes zero",
             "dropout = {} is not in [0, 1)", o.dropout);
  FIRN_CHECK(o.dropout == 0 || o.layers > 1, layer, "put an nn::Dropout after it",
             "dropout = {} lies between layers, and there is one", o.dropout);
  FIRN_CHECK(o.projection == 0 || cell == RecurrentCell::lstm, layer, "take nn::LSTM",
             "projection = {}", o.projection);
  FIRN_CHECK(o.projection >= 0 && o.projection < units, layer, "0 stands for none",
             "projection = {} of {} units", o.projection, units);
  FIRN_CHECK(!o.relu || cell == RecurrentCell::rnn_relu, layer, "take nn::RNN",
             "relu is set: the gates have activations of their own");
  FIRN_CHECK(is_floating(o.dtype), layer, "f32, f16, bf16 or f64", "dtype = {}",
             to_string(o.dtype));
}

std::int64_t directions(const RecurrentLayerOptions& o) { return o.bidirectional ? 2 : 1; }

RecurrentCell rnn_cell(bool relu) {
  return relu ? RecurrentCell::rnn_relu : RecurrentCell::rnn_tanh;
}

}  // namespace

FIRN_DEFINE_MEMBERS(LSTM, weights)
FIRN_DEFINE_MEMBERS(GRU, weights)
FIRN_DEFINE_MEMBERS(RNN, weights)
FIRN_DEFINE_MEMBERS(LSTMCell, weight_ih, weight_hh, bias_ih, bias_hh)
FIRN_DEFINE_MEMBERS(GRUCell, weight_ih, weight_hh, bias_ih, bias_hh)
FIRN_DEFINE_MEMBERS(RNNCell, weight_ih, weight_hh, bias_ih, bias_hh)

// ---- Weights ----

RecurrentWeights::RecurrentWeights(const char* layer, RecurrentCell cell, std::int64_t in,
                                   std::int64_t units, const RecurrentLayerOptions& options)
    : bidirectional_(options.bidirectional) {
  check_options(layer, cell, in, units, options);
  const double bound = 1 / std::sqrt(static_cast<double>(units));
  const std::int64_t rows = checked_product(layer, gates_of(cell), units);
  const std::int64_t p = options.projection ? options.projection : units;
  const auto uniform = [&](const Shape& shape) {
    checked_elements(layer, shape);
    Parameter made = Parameter::empty(shape, options.dtype, options.device);
    init::uniform_(made, -bound, bound);
    return made;
  };
  for (std::int64_t i = 0; i < options.layers; ++i) {
    for (std::int64_t d = 0; d < directions(options); ++d) {
      Part part;
      part.weight_ih = uniform({rows, i == 0 ? in : directions(options) * p});
      part.weight_hh = uniform({rows, p});
      if (options.bias) {
        part.bias_ih = uniform({rows});
        part.bias_hh = uniform({rows});
      }
      if (options.projection) part.weight_hr = uniform({p, units});
      parts_.push_back(std::move(part));
    }
  }
}

RecurrentWeights::Part& RecurrentWeights::at(std::int64_t layer, bool reverse) {
  const std::int64_t d = bidirectional_ ? 2 : 1,
                     layers = static_cast<std::int64_t>(parts_.size()) / d;
  FIRN_CHECK(layer >= 0 && layer < layers, "RecurrentWeights", "layers are counted from 0",
             "layer {} of {}", layer, layers);
  FIRN_CHECK(!reverse || bidirectional_, "RecurrentWeights", "set bidirectional",
             "the layer reads in one direction");
  return parts_[static_cast<std::size_t>(layer * d + (reverse ? 1 : 0))];
}

void RecurrentWeights::visit(MemberVisitor& visitor, const std::string&) {
  const std::size_t d = bidirectional_ ? 2 : 1;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    const std::string suffix = fmt::format("_l{}{}", i / d, i % d ? "_reverse" : "");
    visitor.parameter("weight_ih" + suffix, part.weight_ih);
    visitor.parameter("weight_hh" + suffix, part.weight_hh);
    visitor.parameter("bias_ih" + suffix, part.bias_ih);
    visitor.parameter("bias_hh" + suffix, part.bias_hh);
    visitor.parameter("weight_hr" + suffix, part.weight_hr);
  }
}

// ---- The layers above each other ----

detail::RecurrentStack::RecurrentStack(const char* layer, RecurrentCell cell, std::int64_t in,
                                       std::int64_t units, const RecurrentLayerOptions& options)
    : name_(layer), cell_(cell), in_(in), units_(units), options_(options) {}

RecurrentResult detail::RecurrentStack::run(RecurrentWeights& weights, const Tensor& x,
                                            const RecurrentInput& input, bool training) const {
  FIRN_CHECK(x.defined() && (x.rank() == 2 || x.rank() == 3) && x.size(-1) == in_, name_,
             "x is [steps, batch, in], or [batch, steps, in] if batch_first is set",
             "input {} has not 3 axes of which the last is {}", describe(x), in_);
  ops::require_factors(name_, x, weights.at(0).weight_ih);
  const bool single = x.rank() == 2;
  const bool swaps = options_.batch_first && !single;
  const std::int64_t d = directions(options_), batch = single ? 1 : x.size(swaps ? 0 : 1);
  const auto state = [&](const char* what, const Tensor& t, std::int64_t n) {
    if (!t.defined()) return Tensor();
    Shape wanted = {d * options_.layers, batch, n};
    if (single) wanted.erase(1);
    FIRN_CHECK(t.shape() == wanted, name_, "a state for each layer and direction",
               "{} {} is not {}, for input {}", what, describe(t), wanted, describe(x));
    return single ? unsqueeze(t, 1) : t;
  };
  FIRN_CHECK(cell_ == RecurrentCell::lstm || !input.c.defined(), name_, "leave it out",
             "only an LSTM has a state c, got {}", describe(input.c));
  const Tensor h = state("h", input.h, options_.projection ? options_.projection : units_);
  const Tensor c = state("c", input.c, units_);
  Tensor lengths = input.lengths;
  if (single && lengths.defined() && lengths.rank() == 0) lengths = unsqueeze(lengths, 0);

  Tensor y = single ? unsqueeze(x, 1) : swaps ? transpose(x, 0, 1) : x;
  if (lengths.defined()) {
    // Padding may hold anything, and the weights' gradient multiplies it.
    FIRN_CHECK(lengths.rank() == 1 && lengths.size(0) == batch, name_,
               "lengths is [batch]: the steps of each sequence", "lengths {} for input {}",
               describe(lengths), describe(x));
    FIRN_CHECK(lengths.dtype() == i64 || lengths.dtype() == i32, name_,
               "cast it: lengths.to(firn::i64)", "lengths are i64 or i32, got {}",
               describe(lengths));
    const Tensor times = arange(y.size(0), {.dtype = lengths.dtype(), .device = lengths.device()});
    y = where(unsqueeze(lt(unsqueeze(times, 1), unsqueeze(lengths, 0)), 2), y, 0.0);
  }
  std::vector<Tensor> last_h, last_c;
  for (std::int64_t i = 0; i < options_.layers; ++i) {
    if (i > 0) y = firn::dropout(y, options_.dropout, training);
    std::vector<Tensor> outputs;
    for (std::int64_t k = 0; k < d; ++k) {
      const RecurrentWeights::Part& part = weights.at(i, k == 1);
      const std::int64_t at = i * d + k;
      RecurrentResult result =
          recurrent(cell_, linear(y, part.weight_ih, part.bias_ih), part.weight_hh,
                    {.bias = part.bias_hh,
                     .projection = part.weight_hr,
                     .h = h.defined() ? select(h, 0, at) : h,
                     .c = c.defined() ? select(c, 0, at) : c,
                     .lengths = lengths,
                     .reverse = k == 1});
      outputs.push_back(std::move(result.output));
      last_h.push_back(std::move(result.h));
      if (result.c.defined()) last_c.push_back(std::move(result.c));
    }
    y = d == 1 ? outputs[0] : cat(outputs, -1);
  }
  const auto together = [single](const std::vector<Tensor>& states) {
    if (states.empty()) return Tensor();
    const Tensor all = stack(states);
    return single ? squeeze(all, 1) : all;
  };
  return {single  ? squeeze(y, 1)
          : swaps ? transpose(y, 0, 1)
                  : y,
          together(last_h), together(last_c)};
}

std::string detail::RecurrentStack::repr() const {
  std::string text = fmt::format("{}, {}", in_, units_);
  if (options_.layers != 1) text += fmt::format(", layers = {}", options_.layers);
  if (!options_.bias) text += ", bias = false";
  if (options_.batch_first) text += ", batch_first = true";
  if (options_.dropout > 0) text += fmt::format(", dropout = {}", options_.dropout);
  if (options_.bidirectional) text += ", bidirectional = true";
  if (options_.projection) text += fmt::format(", projection = {}", options_.projection);
  if (options_.relu) text += ", relu = true";
  return text;
}

// ---- RNN, GRU, LSTM ----

LSTM::LSTM(std::int64_t in, std::int64_t units, const RecurrentLayerOptions& options)
    : RecurrentLayer("LSTM", RecurrentCell::lstm, in, units, options) {}

GRU::GRU(std::int64_t in, std::int64_t units, const RecurrentLayerOptions& options)
    : RecurrentLayer("GRU", RecurrentCell::gru, in, units, options) {}

RNN::RNN(std::int64_t in, std::int64_t units, const RecurrentLayerOptions& options)
    : RecurrentLayer("RNN", rnn_cell(options.relu), in, units, options) {}

// ---- One step ----

detail::CellWeights::CellWeights(const char* layer, RecurrentCell cell, std::int64_t in,
                                 std::int64_t units, const RecurrentCellOptions& options)
    : name_(layer), cell_(cell) {
  RecurrentWeights made(layer, cell, in, units,
                        {.bias = options.bias,
                         .relu = options.relu,
                         .dtype = options.dtype,
                         .device = options.device});
  RecurrentWeights::Part& part = made.at(0);
  weight_ih = std::move(part.weight_ih);
  weight_hh = std::move(part.weight_hh);
  bias_ih = std::move(part.bias_ih);
  bias_hh = std::move(part.bias_hh);
}

CellState detail::CellWeights::step(const Tensor& x, const CellState& before) const {
  const std::int64_t in = weight_ih.size(1), units = weight_hh.size(1);
  FIRN_CHECK(x.defined() && (x.rank() == 1 || x.rank() == 2) && x.size(-1) == in, name_,
             "x is one step: [batch, in], or [in]", "input {} does not fit to {} inputs",
             describe(x), in);
  ops::require_factors(name_, x, weight_ih);
  const bool single = x.rank() == 1;
  const auto state = [&](const char* what, const Tensor& t) {
    if (!t.defined()) return t;
    Shape wanted = x.shape();
    wanted[x.rank() - 1] = units;
    FIRN_CHECK(t.shape() == wanted, name_, "a state for each row of x",
               "{} {} is not {}, for input {}", what, describe(t), wanted, describe(x));
    return single ? unsqueeze(t, 0) : t;
  };
  const Tensor gates = linear(single ? unsqueeze(x, 0) : x, weight_ih, bias_ih);
  const RecurrentResult next =
      recurrent(cell_, unsqueeze(gates, 0), weight_hh,
                {.bias = bias_hh, .h = state("h", before.h), .c = state("c", before.c)});
  if (!single) return {next.h, next.c};
  return {squeeze(next.h, 0), next.c.defined() ? squeeze(next.c, 0) : Tensor()};
}

std::string detail::CellWeights::repr() const {
  return fmt::format("{}, {}{}{}", weight_ih.size(1), weight_hh.size(1),
                     bias_ih.defined() ? "" : ", bias = false",
                     cell_ == RecurrentCell::rnn_relu ? ", relu = true" : "");
}

LSTMCell::LSTMCell(std::int64_t in, std::int64_t units, const RecurrentCellOptions& options)
    : CellWeights("LSTMCell", RecurrentCell::lstm, in, units, options) {}

GRUCell::GRUCell(std::int64_t in, std::int64_t units, const RecurrentCellOptions& options)
    : CellWeights("GRUCell", RecurrentCell::gru, in, units, options) {}

RNNCell::RNNCell(std::int64_t in, std::int64_t units, const RecurrentCellOptions& options)
    : CellWeights("RNNCell", rnn_cell(options.relu), in, units, options) {}

}  // namespace firn::nn
