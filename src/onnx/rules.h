// Writes firn's operations as ONNX nodes: one rule for each operation, in tables by family.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/graph.h"
#include "onnx/model.h"

namespace firn::io::onnx {

/// Dtype in which the nodes of a rule compute.
enum class Width : std::uint8_t {
  same,   ///< dtype of the operands
  wide,   ///< f32 for f16: the rule has several nodes, and firn rounds once
  whole,  ///< i32 for u8 and bool, with which few runtimes compute
  both,   ///< wide and whole together
};

/// One operation, whose nodes a rule adds.
class Emit {
 public:
  Emit(Graph& graph, const Model& model, const std::vector<std::string>& names, const ModelOp& op,
       Width width);

  Graph& graph;
  const Model& model;

  // ---- Operands ----
  /// Returns operand i in the dtype of the computation.
  std::string in(std::size_t i = 0);
  /// Returns operand i in its own dtype.
  std::string raw(std::size_t i = 0) const;
  bool has(std::size_t i) const { return op_.traced->inputs.at(i) >= 0; }
  std::size_t count() const { return op_.traced->inputs.size(); }
  const ModelValue& value(std::size_t i = 0) const;
  int rank(std::size_t i = 0) const { return static_cast<int>(value(i).shape.size()); }
  /// Returns a size of operand i; `axis` may be negative. Throws Error if it depends on the batch.
  std::int64_t size(std::int64_t axis, std::size_t i = 0) const;
  /// Returns an operand that takes no gradient.
  std::string tensor(const char* name) const { return names_[index(name)]; }
  bool has_tensor(const char* name) const { return op_.traced->tensors.at(name) >= 0; }
  const ModelValue& tensor_value(const char* name) const { return model.values[index(name)]; }
  const ModelValue& result(std::size_t i = 0) const;

  // ---- Values before the operands ----
  /// Returns the number of operand i in the model; -1 if the operand was not given.
  int number_of(std::size_t i) const { return op_.traced->inputs.at(i); }
  /// Returns the operation that computes a value; null for inputs, constants and -1.
  const TracedOp* maker(int value) const;
  /// Returns a value in the dtype of the computation; empty for -1.
  std::string in_dtype(int value);

  // ---- Attributes ----
  bool given(const char* name) const { return op_.numbers.contains(name); }
  Size any(const char* name) const { return std::get<Size>(op_.numbers.at(name)); }
  std::int64_t integer(const char* name) const { return fixed(any(name), name); }
  double number(const char* name) const { return std::get<double>(op_.numbers.at(name)); }
  std::vector<std::int64_t> integers(const char* name) const;
  const std::string& text(const char* name) const {
    return std::get<std::string>(op_.numbers.at(name));
  }

  // ---- Nodes ----
  std::string operator()(const char* type, std::vector<std::string> inputs,
                         const NodeAttributes& attributes = {}) {
    return graph.node(type, std::move(inputs), attributes);
  }
  /// Returns a scalar in the dtype of the computation.
  std::string constant(double v) { return graph.scalar(dtype, v); }
  std::string cast(const std::string& x, DType to) {
    return graph.node("Cast", {x}, {{"to", onnx_dtype(to)}});
  }
  std::string reshape(const std::string& x, const Sizes& shape);
  std::string unsqueeze(const std::string& x, const std::vector<std::int64_t>& axes) {
    return graph.node("Unsqueeze", {x, graph.list(axes)});
  }
  std::string squeeze(const std::string& x, const std::vector<std::int64_t>& axes) {
    return graph.node("Squeeze", {x, graph.list(axes)});
  }

  /// Sets the result, which was computed in `dtype`.
  void done(const std::string& y) { done(y, dtype); }
  /// Sets the result, which was computed in another dtype.
  void done(const std::string& y, DType computed);
  /// Adds a further result, in its own dtype.
  void also(const std::string& y) { results.push_back(y); }
  /// Throws Error.
  [[noreturn]] void refuse(const std::string& why, const char* hint) const;

  DType dtype;  ///< dtype of the computation
  std::vector<std::string> results;

 private:
  std::size_t index(const char* name) const {
    return static_cast<std::size_t>(op_.traced->tensors.at(name));
  }
  std::int64_t fixed(const Size& s, const char* what) const;

  const std::vector<std::string>& names_;
  const ModelOp& op_;
};

struct Rule {
  std::string_view op;  ///< operation or formula (kernels/math/unary.h, binary.h)
  Width width;
  void (*write)(Emit&);
};

/// Adds the nodes of gelu_tanh(x), with which other rules end too.
std::string gelu_tanh(Emit& e, const std::string& x);

/// The tables of the families.
std::span<const Rule> elementwise_rules();
std::span<const Rule> shape_rules();
std::span<const Rule> reduction_rules();
std::span<const Rule> image_rules();
std::span<const Rule> layer_rules();
std::span<const Rule> recurrent_rules();

/// Returns the rule of an operation or formula; null if there is no rule.
const Rule* rule_of(std::string_view op);

/// An operation that cannot be exported, and why.
struct Refusal {
  std::string_view op, why, hint;
};
std::span<const Refusal> refusals();

/// Returns the model as a graph with these names of inputs and outputs. Throws Error, naming
/// operation and module, for an operation without a rule.
Graph graph_of(const Model& model, const std::vector<std::string>& inputs,
               const std::vector<std::string>& outputs);

}  // namespace firn::io::onnx
