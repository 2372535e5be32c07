// Builds an ONNX graph: nodes, initializers, and their encoding (onnx.proto of ONNX 1.12, IR
// version 8, opset 17).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/protobuf.h"
#include "firn/tensor.h"
#include "onnx/model.h"

namespace firn::io::onnx {

using protobuf::Message;

/// An attribute of a node: an integer, a float, integers, a text or texts.
struct NodeAttribute {
  enum class Kind : std::uint8_t { integer, number, integers, text, texts };

  NodeAttribute(const char* n, std::int64_t v) : name(n), kind(Kind::integer), integer(v) {}
  NodeAttribute(const char* n, float v) : name(n), kind(Kind::number), number(v) {}
  NodeAttribute(const char* n, std::vector<std::int64_t> v)
      : name(n), kind(Kind::integers), integers(std::move(v)) {}
  NodeAttribute(const char* n, std::string v) : name(n), kind(Kind::text), text(std::move(v)) {}
  NodeAttribute(const char* n, std::vector<std::string> v)
      : name(n), kind(Kind::texts), texts(std::move(v)) {}

  const char* name;
  Kind kind;
  std::int64_t integer = 0;
  float number = 0;
  std::vector<std::int64_t> integers;
  std::string text;
  std::vector<std::string> texts;
};
using NodeAttributes = std::vector<NodeAttribute>;

/// Returns the number of a dtype in TensorProto.DataType. Throws Error for bf16, with which few
/// runtimes compute.
std::int64_t onnx_dtype(DType dtype);

class Graph {
 public:
  /// Reserves a name, so that no value of the graph gets it.
  void reserve(const std::string& name);
  /// Sets the path of the module to which the next nodes belong.
  void enter(const std::string& module) { module_ = module; }

  /// Adds a node and returns the names of its results. An empty input is an omitted one.
  std::vector<std::string> node(const std::string& type, std::vector<std::string> inputs,
                                const NodeAttributes& attributes, int results);
  std::string node(const std::string& type, std::vector<std::string> inputs,
                   const NodeAttributes& attributes = {}) {
    return node(type, std::move(inputs), attributes, 1)[0];
  }

  // ---- Constants ----
  /// Adds a constant and returns its name, `wanted` unless that is taken. Equal constants that want
  /// one name are stored once.
  std::string initializer(const std::string& wanted, const Tensor& value);
  /// Adds a constant under a reserved name.
  void parameter(const std::string& name, const Tensor& value);
  /// Returns the name of a scalar constant, which is stored once.
  std::string scalar(DType dtype, double value);
  /// Returns the name of a constant list of i64, which is stored once.
  std::string list(const std::vector<std::int64_t>& values);

  // ---- Sizes ----
  /// Sets the input that has the batch on axis 0.
  void batch_from(const std::string& input) { batch_input_ = input; }
  /// Returns the name of a size as a list of one i64.
  std::string size(const Size& s);
  /// Returns the name of a shape as a list of i64.
  std::string shape(const Sizes& sizes);

  // ---- Ends ----
  void input(const std::string& name, const ModelValue& value);
  /// Makes `value` the result `name`.
  void output(const std::string& name, const std::string& value, const ModelValue& type);
  /// Drops the nodes that no output depends on, and their constants.
  void drop_unread();
  /// Returns the bytes of the file in two parts; the second part is most of it. Throws Error above
  /// 2 GiB, the limit of protobuf messages.
  std::array<std::string, 2> encode(const std::string& doc) const;

 private:
  struct Node {
    std::string type, name;
    std::vector<std::string> inputs, outputs;
    NodeAttributes attributes;
  };
  struct End {
    std::string name;
    ModelValue value;
  };
  struct Initializer {
    std::string name;
    Tensor value;
    std::string wanted;  ///< the name before it was made unique; empty for parameters
  };

  std::string fresh(const std::string& wanted);
  static Message end(const End& e);
  static Message encoded(const Node& n);

  std::vector<Node> nodes_;
  std::vector<Initializer> initializers_;
  std::vector<End> inputs_, outputs_;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, int> count_;
  std::map<std::string, std::string> constants_;  ///< names by dtype and values
  std::map<std::int64_t, std::string> batch_;     ///< names of multiples of the batch's size
  std::string module_, batch_input_;
  std::unordered_map<std::string, std::string> renamed_;  ///< results that have become outputs
};

}  // namespace firn::io::onnx
