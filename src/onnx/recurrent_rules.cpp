// Writes recurrent layers as LSTM, GRU and RNN nodes. Such a node multiplies the inputs itself, so
// the rule looks for the linear() that computed the gates.
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "firn/ops/ops.h"
#include "firn/ops/recurrent_cell.h"
#include "onnx/rules.h"

namespace firn::io::onnx {
namespace {

using Integers = std::vector<std::int64_t>;

/// Operands of recurrent().
enum Operand : std::uint8_t { kGates, kWeight, kBias, kProjection, kH, kC };

/// Type of a node, and the index of firn's gate at each of the node's places.
struct NodeType {
  const char* name;
  Integers gates;
};
NodeType node_type(RecurrentCell cell) {
  switch (cell) {
    case RecurrentCell::lstm:  // firn: i f g o; ONNX: i o f c
      return {"LSTM", {0, 3, 1, 2}};
    case RecurrentCell::gru:  // firn: r z n; ONNX: z r h
      return {"GRU", {1, 0, 2}};
    default:
      return {"RNN", {0}};
  }
}

/// Adds the nodes of one layer in one direction.
class Layer {
 public:
  explicit Layer(Emit& e)
      : e_(e),
        cell_(static_cast<RecurrentCell>(e.integer("cell"))),
        type_(node_type(cell_)),
        steps_(e.size(0)),
        batch_(e.value().shape[1]),
        units_(e.size(1, kWeight)) {}

  void write() {
    if (e_.has(kProjection))
      e_.refuse("its LSTM has a projection, and ONNX's has none", "leave .projection out");
    if (steps_ == 0) e_.refuse("it has no steps", "export it with a sequence of one step or more");
    const bool reverse = e_.integer("reverse") != 0, lstm = cell_ == RecurrentCell::lstm;
    const Inputs in = inputs();
    const std::string h = state(kH, {batch_, {units_, 0}}), c = lstm ? state(kC, {}) : h;
    const std::string lengths =
        e_.has_tensor("lengths") ? e_.cast(e_.tensor("lengths"), i32) : std::string();
    NodeAttributes attributes = {
        {"hidden_size", units_},
        {"direction", std::string(reverse ? "reverse" : "forward")},
    };
    if (cell_ == RecurrentCell::gru) attributes.push_back({"linear_before_reset", std::int64_t{1}});
    if (cell_ == RecurrentCell::rnn_relu)
      attributes.push_back({"activations", std::vector<std::string>{"Relu"}});
    std::vector<std::string> operands = {in.x,    in.weight, in.state_weight,
                                         in.bias, lengths,   e_.unsqueeze(h, {0})};
    if (lstm && !c.empty()) operands.push_back(e_.unsqueeze(c, {0}));
    const std::vector<std::string> made =
        e_.graph.node(type_.name, operands, attributes, lstm ? 3 : 2);

    // firn's result is one row: the states of all steps together with the state before the first
    // step, and then the last c.
    std::string last = made[1], last_c = lstm ? made[2] : std::string();
    if (!lengths.empty()) {
      // The state of a sequence without steps does not change; runtimes differ here.
      const std::string any =
          e_.unsqueeze(e_("Greater", {lengths, e_.graph.scalar(i32, 0)}), {0, 2});
      last = e_("Where", {any, last, e_.unsqueeze(h, {0})});
      if (lstm)
        last_c = e_("Where", {any, last_c, c.empty() ? e_.constant(0) : e_.unsqueeze(c, {0})});
    }
    // After the end of a sequence a node gives zeros, so the last state replaces them.
    const std::string others =
        e_("Slice", {made[0], e_.graph.list({reverse ? 1 : 0}),
                     e_.graph.list({reverse ? steps_ : steps_ - 1}), e_.graph.list({0})});
    std::vector<std::string> parts = {flat(h), flat(others), flat(last)};
    if (reverse) std::swap(parts[0], parts[2]);
    if (lstm) parts.push_back(flat(last_c));
    e_.done(e_("Concat", parts, {{"axis", std::int64_t{0}}}));
  }

 private:
  /// Operands of a node with one direction.
  struct Inputs {
    std::string x;             ///< [steps, batch, in]
    std::string weight;        ///< [1, gates n, in]
    std::string state_weight;  ///< [1, gates n, n]
    std::string bias;          ///< [1, 2 gates n]; empty: no bias
  };

  std::int64_t gates() const { return static_cast<std::int64_t>(type_.gates.size()); }
  std::int64_t rows() const { return gates() * units_; }
  std::string flat(const std::string& x) { return e_("Reshape", {x, e_.graph.list({-1})}); }

  /// Returns the parameters of all gates in the order of the node.
  std::string in_order(const std::string& x) {
    if (gates() == 1) return x;
    Integers rows;
    for (const std::int64_t gate : type_.gates)
      for (std::int64_t i = 0; i < units_; ++i) rows.push_back(gate * units_ + i);
    const auto count = static_cast<std::int64_t>(rows.size());
    const std::string order =
        e_.graph.initializer("gates", firn::tensor(rows, {count}, Device::cpu()));
    return e_("Gather", {x, order}, {{"axis", std::int64_t{0}}});
  }

  Inputs inputs() {
    // linear() of [steps, batch, in] is a product of rows, and a reshape to three axes.
    const TracedOp* const shaped = e_.maker(e_.number_of(kGates));
    const TracedOp* const product =
        shaped && shaped->rule == "reshape" ? e_.maker(shaped->inputs[0]) : nullptr;
    Inputs in;
    std::string bias;
    if (product && product->rule == "linear") {
      const int weight = product->inputs[1];
      const Size width = e_.model.values[static_cast<std::size_t>(weight)].shape[1];
      in.x = e_.reshape(e_.in_dtype(product->inputs[0]), {{steps_, 0}, batch_, width});
      in.weight = e_.unsqueeze(in_order(e_.in_dtype(weight)), {0});
      bias = e_.in_dtype(product->inputs[2]);
    } else {  // use the gates themselves, times 1
      in.x = e_.in(kGates);
      const Tensor one = firn::cast(eye(rows(), {.device = Device::cpu()}), e_.dtype);
      in.weight = e_.unsqueeze(in_order(e_.graph.initializer("eye", one)), {0});
    }
    in.state_weight = e_.unsqueeze(in_order(e_.in(kWeight)), {0});
    if (bias.empty() && !e_.has(kBias)) return in;
    std::string state_bias = e_.in(kBias);
    for (std::string* b : {&bias, &state_bias}) {
      if (b->empty())
        *b = e_.graph.initializer("zeros", zeros({rows()}, e_.dtype, Device::cpu()));
      else
        *b = in_order(*b);
    }
    in.bias = e_.unsqueeze(e_("Concat", {bias, state_bias}, {{"axis", std::int64_t{0}}}), {0});
    return in;
  }

  /// Returns a state before the first step. If it is not given, returns zeros of `shape`, or empty
  /// without a shape.
  std::string state(Operand which, const Sizes& shape) {
    if (e_.has(which)) return e_.in(which);
    return shape.empty() ? std::string() : e_("Expand", {e_.constant(0), e_.graph.shape(shape)});
  }

  Emit& e_;
  RecurrentCell cell_;
  NodeType type_;
  std::int64_t steps_;
  Size batch_;
  std::int64_t units_;
};

const std::array kRules = {
    Rule{"recurrent", Width::wide, [](Emit& e) { Layer(e).write(); }},
};

}  // namespace

std::span<const Rule> recurrent_rules() { return kRules; }

}  // namespace firn::io::onnx
