#include "onnx/rules.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "firn/ops/ops.h"

namespace firn::io::onnx {
namespace {

constexpr const char* kLossHint = "export the model without its loss";
constexpr const char* kNoBits = "ONNX has operations on bits from opset 18 on";
constexpr const char* kNoFactors = "opset 17 has no factors of matrices";
constexpr const char* kFactorsHint = "compute them before, and export what follows";
constexpr const char* kNoWindows = "opset 17 has no windows as columns";
constexpr const char* kWindowsHint = "a convolution or slices may do the same";
constexpr const char* kBitsHint = "on bools use logical_and() and the like";

constexpr const char* kMeet = "ONNX leaves open which of the elements that meet stays";
constexpr const char* kMeetHint = "slice_scatter() and its like, or where() with a mask";

constexpr std::array kRefusals = {
    Refusal{"dropout", "it draws random numbers", "call model.eval()"},
    Refusal{"bincount", "the size of its result depends on the values",
            "count on the host, or compare with one_hot() and sum()"},
    Refusal{"diag", "opset 17 has no diagonal", "multiply by eye()"},
    Refusal{"unfold", kNoWindows, kWindowsHint},
    Refusal{"fold", kNoWindows, kWindowsHint},
    Refusal{"unfold_axis", kNoWindows, kWindowsHint},
    Refusal{"histogram", "ONNX has no search in a list", "count on the host"},
    Refusal{"nonzero", "the size of its result depends on the values", "where() keeps the shape"},
    Refusal{"masked_select", "the size of its result depends on the values",
            "where() keeps the shape"},
    Refusal{"scatter", kMeet, kMeetHint},
    Refusal{"index_copy", kMeet, kMeetHint},
    Refusal{"index_fill", kMeet, kMeetHint},
    Refusal{"index_put", kMeet, kMeetHint},
    Refusal{"put", kMeet, kMeetHint},
    Refusal{"scatter_reduce", "opset 17 combines sums and products alone",
            "scatter_add() for sums"},
    Refusal{"index_reduce", "opset 17 combines sums and products alone", "index_add() for sums"},
    Refusal{"searchsorted", "ONNX has no search in a list", "compare with the list, and sum()"},
    Refusal{"unique", "the size of its result depends on the values", "find them on the host"},
    Refusal{"median", "ONNX puts NaN anywhere", "quantile() of 0.5, if no element is NaN"},
    Refusal{"cumprod", "ONNX has no scan of products", "multiply slices, or sum logarithms"},
    Refusal{"logcumsumexp", "ONNX has no scan of logarithms", "log(cumsum(exp(x))) of small x"},
    Refusal{"cummax", "ONNX has no scan of extrema", "take maximum() of slices"},
    Refusal{"cummin", "ONNX has no scan of extrema", "take minimum() of slices"},
    Refusal{"custom", "its result is not that of recorded operations",
            "write its forward pass with firn's operations"},
    Refusal{"cholesky", kNoFactors, kFactorsHint},
    Refusal{"qr", kNoFactors, kFactorsHint},
    Refusal{"svd", kNoFactors, kFactorsHint},
    Refusal{"eigh", kNoFactors, kFactorsHint},
    Refusal{"det", kNoFactors, kFactorsHint},
    Refusal{"slogdet", kNoFactors, kFactorsHint},
    Refusal{"inverse", kNoFactors, kFactorsHint},
    Refusal{"solve", kNoFactors, kFactorsHint},
    Refusal{"solve_triangular", kNoFactors, kFactorsHint},
    Refusal{"lstsq", kNoFactors, kFactorsHint},
    Refusal{"bitwise_not", kNoBits, kBitsHint},
    Refusal{"bitwise_and", kNoBits, kBitsHint},
    Refusal{"bitwise_or", kNoBits, kBitsHint},
    Refusal{"bitwise_xor", kNoBits, kBitsHint},
    Refusal{"squared_error", "it is a loss", kLossHint},
    Refusal{"absolute_error", "it is a loss", kLossHint},
    Refusal{"huber", "it is a loss", kLossHint},
    Refusal{"bce_with_logits", "it is a loss", kLossHint},
    Refusal{"bce", "it is a loss", kLossHint},
    Refusal{"kl_div", "it is a loss", kLossHint},
    Refusal{"cross_entropy", "it is a loss", kLossHint},
    Refusal{"nll_loss", "it is a loss", kLossHint},
    Refusal{"linear_cross_entropy", "it is a loss", kLossHint},
    Refusal{"ctc_loss", "it is a loss", kLossHint},
};

DType computes_in(DType dtype, Width width) {
  const bool wide = width == Width::wide || width == Width::both;
  const bool whole = width == Width::whole || width == Width::both;
  if (wide && dtype == f16) return f32;
  if (whole && (dtype == u8 || dtype == boolean)) return i32;
  return dtype;
}

[[noreturn]] void fail(const TracedOp& op, const std::string& message, std::string_view hint) {
  Error e(kExport, message, hint);
  if (!op.module.empty()) e.set_module(op.module);
  throw e;
}

}  // namespace

// ---- One operation ----

Emit::Emit(Graph& g, const Model& m, const std::vector<std::string>& names, const ModelOp& op,
           Width width)
    : graph(g), model(m), dtype(f32), names_(names), op_(op) {
  for (const int x : op.traced->inputs)
    if (x >= 0) {
      dtype = computes_in(model.values[static_cast<std::size_t>(x)].dtype, width);
      break;
    }
}

std::string Emit::raw(std::size_t i) const {
  const int x = op_.traced->inputs.at(i);
  return x < 0 ? std::string() : names_[static_cast<std::size_t>(x)];
}
std::string Emit::in(std::size_t i) { return in_dtype(number_of(i)); }
std::string Emit::in_dtype(int value) {
  if (value < 0) return {};
  const auto at = static_cast<std::size_t>(value);
  return model.values[at].dtype == dtype ? names_[at] : cast(names_[at], dtype);
}
const TracedOp* Emit::maker(int value) const {
  for (const ModelOp& op : model.ops)
    for (const int y : op.traced->outputs)
      if (y == value) return op.traced;
  return nullptr;
}
const ModelValue& Emit::value(std::size_t i) const {
  return model.values[static_cast<std::size_t>(op_.traced->inputs.at(i))];
}
const ModelValue& Emit::result(std::size_t i) const {
  return model.values[static_cast<std::size_t>(op_.traced->outputs.at(i))];
}
std::int64_t Emit::size(std::int64_t axis, std::size_t i) const {
  const Sizes& s = value(i).shape;
  return fixed(s[static_cast<std::size_t>(axis < 0 ? axis + rank(i) : axis)], "a size");
}
std::vector<std::int64_t> Emit::integers(const char* name) const {
  std::vector<std::int64_t> out;
  for (const Size& s : std::get<Sizes>(op_.numbers.at(name))) out.push_back(fixed(s, name));
  return out;
}
std::int64_t Emit::fixed(const Size& s, const char* what) const {
  if (!s.is_fixed())
    refuse(fmt::format("{} depends on the batch", what),
           "{.dynamic_batch = false} fixes the batch");
  return s.fixed;
}
void Emit::refuse(const std::string& why, const char* hint) const {
  fail(*op_.traced, fmt::format("{} cannot be exported here: {}", op_.traced->op, why), hint);
}

std::string Emit::reshape(const std::string& x, const Sizes& shape) {
  // One size may be -1, and it is the one that depends on the batch.
  int symbolic = 0;
  bool empty = false;
  std::vector<std::int64_t> sizes;
  for (const Size& s : shape) {
    symbolic += s.is_fixed() ? 0 : 1;
    empty = empty || s == Size{};
    sizes.push_back(s.is_fixed() ? s.fixed : -1);
  }
  if (symbolic <= 1 && !empty) return graph.node("Reshape", {x, graph.list(sizes)});
  return graph.node("Reshape", {x, graph.shape(shape)}, {{"allowzero", std::int64_t{1}}});
}

void Emit::done(const std::string& y, DType computed) {
  results.insert(results.begin(), computed == result().dtype ? y : cast(y, result().dtype));
}

// ---- The tables ----

std::span<const Refusal> refusals() { return kRefusals; }

const Rule* rule_of(std::string_view op) {
  for (const auto rules : {elementwise_rules(), shape_rules(), reduction_rules(), image_rules(),
                           layer_rules(), recurrent_rules()})
    for (const Rule& r : rules)
      if (r.op == op) return &r;
  return nullptr;
}

// ---- The graph ----

namespace {

/// Adds a constant, which may grow with the batch.
std::string constant(Graph& graph, const ModelConstant& c, const ModelValue& v) {
  graph.enter("");
  if (c.counts) {
    const std::string end = graph.node("Squeeze", {graph.size(v.shape[0]), graph.list({0})});
    const std::string counted =
        graph.node("Range", {graph.scalar(i64, 0), end, graph.scalar(i64, 1)});
    return v.dtype == i64 ? counted : graph.node("Cast", {counted}, {{"to", onnx_dtype(v.dtype)}});
  }
  if (!c.name.empty()) {
    graph.parameter(c.name, c.value);
    return c.name;
  }
  const std::string name = graph.initializer("constant", c.value);
  const bool grows =
      std::any_of(v.shape.begin(), v.shape.end(), [](const Size& s) { return !s.is_fixed(); });
  return grows ? graph.node("Expand", {name, graph.shape(v.shape)}) : name;
}

bool gives_any(const TracedOp& op, const std::vector<bool>& values) {
  return std::any_of(op.outputs.begin(), op.outputs.end(),
                     [&values](int y) { return values[static_cast<std::size_t>(y)]; });
}

/// Marks the outputs and the values on which they depend.
std::vector<bool> read_values(const Model& model) {
  std::vector<bool> read(model.values.size());
  const auto note = [&read](int value) {
    if (value >= 0) read[static_cast<std::size_t>(value)] = true;
  };
  for (const int value : model.trace.outputs) note(value);
  for (auto op = model.ops.rbegin(); op != model.ops.rend(); ++op) {
    const TracedOp& traced = *op->traced;
    if (!gives_any(traced, read)) continue;
    for (const int x : traced.inputs) note(x);
    for (const auto& [name, x] : traced.tensors) note(x);
  }
  return read;
}

}  // namespace

Graph graph_of(const Model& model, const std::vector<std::string>& inputs,
               const std::vector<std::string>& outputs) {
  Graph graph;
  for (const auto* list : {&inputs, &outputs})
    for (const std::string& name : *list) graph.reserve(name);
  for (const auto& [at, c] : model.constants)
    if (!c.name.empty()) graph.reserve(c.name);
  std::vector<std::string> names(model.values.size());
  bool has_batch = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto at = static_cast<std::size_t>(model.trace.inputs[i]);
    names[at] = inputs[i];
    graph.input(inputs[i], model.values[at]);
    if (has_batch || model.values[at].shape.empty() || model.values[at].shape[0] != Size{0, 1})
      continue;
    graph.batch_from(inputs[i]);
    has_batch = true;
  }
  const std::vector<bool> read = read_values(model);
  for (const auto& [at, c] : model.constants)
    if (read[static_cast<std::size_t>(at)])
      names[static_cast<std::size_t>(at)] =
          constant(graph, c, model.values[static_cast<std::size_t>(at)]);

  for (const ModelOp& op : model.ops) {
    const TracedOp& traced = *op.traced;
    if (!gives_any(traced, read)) continue;
    const Rule* const rule = rule_of(traced.rule);
    if (!rule) {
      for (const Refusal& r : refusals())
        if (r.op == traced.rule)
          fail(traced, fmt::format("{} cannot be exported: {}", traced.op, r.why), r.hint);
      fail(traced, fmt::format("{} cannot be exported: there is no rule for it", traced.op),
           "write the model with firn's other operations");
    }
    graph.enter(traced.module);
    Emit emit(graph, model, names, op, rule->width);
    rule->write(emit);
    for (std::size_t i = 0; i < traced.outputs.size(); ++i)
      names[static_cast<std::size_t>(traced.outputs[i])] = emit.results.at(i);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto at = static_cast<std::size_t>(model.trace.outputs[i]);
    graph.output(outputs[i], names[at], model.values[at]);
  }
  graph.drop_unread();
  return graph;
}

}  // namespace firn::io::onnx
