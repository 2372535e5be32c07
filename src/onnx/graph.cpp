#include "onnx/graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "firn/ops/ops.h"
#include "firn/version.h"
#include "tensor/impl.h"

namespace firn::io::onnx {
namespace {

constexpr std::int64_t kOpset = 17, kIrVersion = 8;
constexpr std::size_t kMostBytes = (std::size_t{1} << 31) - 1;

/// Fields of the messages of onnx.proto, by message.
namespace field {
enum Model {
  ir_version = 1,
  producer = 2,
  producer_version = 3,
  model_doc = 6,
  graph = 7,
  opset = 8
};
enum Opset { opset_version = 2 };
enum Graph {
  graph_node = 1,
  graph_name = 2,
  graph_initializer = 5,
  graph_input = 11,
  graph_output = 12
};
enum Node { node_input = 1, node_output = 2, node_name = 3, node_type = 4, node_attribute = 5 };
enum Attribute {
  attribute_name = 1,
  float_ = 2,
  int_ = 3,
  string = 4,
  ints = 8,
  strings = 9,
  attribute_type = 20
};
enum AttributeType { kFloat = 1, kInt = 2, kString = 3, kInts = 7, kStrings = 8 };
enum TensorProto { dims = 1, data_type = 2, tensor_name = 8, raw_data = 9 };
enum ValueInfo { value_name = 1, value_type = 2 };
enum TypeProto { tensor_type = 1, elem_type = 1, type_shape = 2 };
enum TensorShape { dim = 1, dim_value = 1, dim_param = 2 };
}  // namespace field

/// Returns the name of a symbolic size: "batch", "batch*4".
std::string symbol(const Size& s) {
  return s.times == 1 ? std::string("batch") : fmt::format("batch*{}", s.times);
}

/// Returns true if two row-major tensors on the CPU are equal to the bit; false for any others.
bool same_elements(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.is_contiguous() &&
         b.is_contiguous() && a.device().is_cpu() && b.device().is_cpu() &&
         (a.numel() == 0 || std::memcmp(a.impl()->data(), b.impl()->data(), a.bytes()) == 0);
}

}  // namespace

std::int64_t onnx_dtype(DType dtype) {
  switch (dtype) {
    case f32:
      return 1;
    case u8:
      return 2;
    case i32:
      return 6;
    case i64:
      return 7;
    case boolean:
      return 9;
    case f16:
      return 10;
    case f64:
      return 11;
    default:
      FIRN_CHECK(false, kExport,
                 "convert the model, net.to(firn::f32), and call no module of it in bf16 by "
                 "set_autocast()",
                 "the model has values of {}, which few runtimes compute", dtype);
  }
}

void Graph::reserve(const std::string& name) { names_.insert(name); }

std::string Graph::fresh(const std::string& wanted) {
  int& count = count_[wanted];
  std::string name;
  do {
    name = count == 0 ? wanted : fmt::format("{}_{}", wanted, count);
    ++count;
  } while (!names_.insert(name).second);
  return name;
}

std::vector<std::string> Graph::node(const std::string& type, std::vector<std::string> inputs,
                                     const NodeAttributes& attributes, int results) {
  std::string path = "/" + module_;
  std::replace(path.begin(), path.end(), '.', '/');
  Node n{type, fresh((path == "/" ? "" : path) + "/" + type), std::move(inputs), {}, attributes};
  while (!n.inputs.empty() && n.inputs.back().empty()) n.inputs.pop_back();
  n.outputs.push_back(n.name);
  for (int i = 1; i < results; ++i) n.outputs.push_back(fresh(fmt::format("{}:{}", n.name, i)));
  nodes_.push_back(n);
  return nodes_.back().outputs;
}

// ---- Constants ----

std::string Graph::initializer(const std::string& wanted, const Tensor& value) {
  // Layers share tables and masks.
  const auto same = std::find_if(
      initializers_.begin(), initializers_.end(),
      [&](const Initializer& i) { return i.wanted == wanted && same_elements(i.value, value); });
  if (same != initializers_.end()) return same->name;
  const std::string name = fresh(wanted);
  parameter(name, value);
  initializers_.back().wanted = wanted;
  return name;
}

void Graph::parameter(const std::string& name, const Tensor& value) {
  onnx_dtype(value.dtype());
  initializers_.push_back({name, value, {}});
}

std::string Graph::scalar(DType dtype, double value) {
  // A number beyond the dtype's largest becomes infinite, as in firn's kernels: such a bound has no
  // effect.
  if (is_floating(dtype) && std::abs(value) > max_of(dtype)) value = std::copysign(INFINITY, value);
  std::string& name = constants_[fmt::format("{} {:a}", dtype, value)];
  if (name.empty()) {
    const Device cpu = Device::cpu();
    name =
        initializer("constant", dtype == i64 ? firn::tensor(static_cast<std::int64_t>(value), cpu)
                                             : full({}, value, dtype, cpu));
  }
  return name;
}

std::string Graph::list(const std::vector<std::int64_t>& values) {
  std::string& name = constants_[fmt::format("list {}", fmt::join(values, ","))];
  if (name.empty())
    name = initializer(
        "sizes", firn::tensor(values, {static_cast<std::int64_t>(values.size())}, Device::cpu()));
  return name;
}

// ---- Sizes ----

std::string Graph::size(const Size& s) {
  if (s.is_fixed()) return list({s.fixed});
  std::string& name = batch_[s.times];
  if (!name.empty()) return name;
  const std::string module = std::exchange(module_, "batch");
  if (s.times == 1) {
    name = node("Shape", {batch_input_}, {{"start", std::int64_t{0}}, {"end", std::int64_t{1}}});
  } else {
    const std::string one = size({0, 1});
    batch_[s.times] = node("Mul", {one, list({s.times})});
  }
  module_ = module;
  return batch_[s.times];
}

std::string Graph::shape(const Sizes& sizes) {
  std::vector<std::int64_t> fixed;
  for (const Size& s : sizes)
    if (s.is_fixed()) fixed.push_back(s.fixed);
  if (fixed.size() == sizes.size()) return list(fixed);
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < sizes.size();) {
    std::vector<std::int64_t> run;
    for (; i < sizes.size() && sizes[i].is_fixed(); ++i) run.push_back(sizes[i].fixed);
    if (!run.empty()) parts.push_back(list(run));
    if (i < sizes.size() && !sizes[i].is_fixed()) parts.push_back(size(sizes[i++]));
  }
  return parts.size() == 1 ? parts[0] : node("Concat", parts, {{"axis", std::int64_t{0}}});
}

// ---- Ends ----

void Graph::input(const std::string& name, const ModelValue& value) {
  inputs_.push_back({name, value});
}

void Graph::output(const std::string& name, const std::string& value, const ModelValue& type) {
  outputs_.push_back({name, type});
  const auto maker = std::find_if(nodes_.begin(), nodes_.end(), [&value](const Node& n) {
    return std::find(n.outputs.begin(), n.outputs.end(), value) != n.outputs.end();
  });
  if (maker == nodes_.end()) {  // an input, a constant, or an output already
    module_.clear();
    const auto other = renamed_.find(value);
    node("Identity", {other == renamed_.end() ? value : other->second});
    nodes_.back().outputs = {name};
    return;
  }
  for (Node& n : nodes_) {
    std::replace(n.inputs.begin(), n.inputs.end(), value, name);
    std::replace(n.outputs.begin(), n.outputs.end(), value, name);
  }
  renamed_.emplace(value, name);
}

void Graph::drop_unread() {
  std::unordered_set<std::string> read;
  for (const End& e : outputs_) read.insert(e.name);
  const auto unread = [&read](const std::string& name) { return !read.contains(name); };
  std::vector<Node> kept;
  for (auto n = nodes_.rbegin(); n != nodes_.rend(); ++n) {
    if (std::all_of(n->outputs.begin(), n->outputs.end(), unread)) continue;
    read.insert(n->inputs.begin(), n->inputs.end());
    kept.push_back(std::move(*n));
  }
  nodes_.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  std::erase_if(initializers_,
                [&](const Initializer& i) { return !i.wanted.empty() && unread(i.name); });
}

// ---- Encoding ----

Message Graph::encoded(const Node& n) {
  Message m;
  for (const std::string& x : n.inputs) m.text(field::node_input, x);
  for (const std::string& y : n.outputs) m.text(field::node_output, y);
  m.text(field::node_name, n.name).text(field::node_type, n.type);
  for (const NodeAttribute& a : n.attributes) {
    Message out;
    out.text(field::attribute_name, a.name);
    switch (a.kind) {
      case NodeAttribute::Kind::integer:
        out.integer(field::int_, a.integer).integer(field::attribute_type, field::kInt);
        break;
      case NodeAttribute::Kind::number:
        out.f32(field::float_, a.number).integer(field::attribute_type, field::kFloat);
        break;
      case NodeAttribute::Kind::integers:  // not packed, since onnx.proto uses protobuf 2
        for (const std::int64_t v : a.integers) out.integer(field::ints, v);
        out.integer(field::attribute_type, field::kInts);
        break;
      case NodeAttribute::Kind::text:
        out.text(field::string, a.text).integer(field::attribute_type, field::kString);
        break;
      case NodeAttribute::Kind::texts:
        for (const std::string& t : a.texts) out.text(field::strings, t);
        out.integer(field::attribute_type, field::kStrings);
        break;
    }
    m.message(field::node_attribute, out);
  }
  return m;
}

Message Graph::end(const End& e) {
  Message shape;
  for (const Size& s : e.value.shape) {
    Message dim;
    if (s.is_fixed()) {
      dim.integer(field::dim_value, s.fixed);
    } else {
      dim.text(field::dim_param, symbol(s));
    }
    shape.message(field::dim, dim);
  }
  const Message tensor = Message()
                             .integer(field::elem_type, onnx_dtype(e.value.dtype))
                             .message(field::type_shape, shape);
  return Message()
      .text(field::value_name, e.name)
      .message(field::value_type, Message().message(field::tensor_type, tensor));
}

std::array<std::string, 2> Graph::encode(const std::string& doc) const {
  std::size_t bytes = 0;
  for (const Initializer& i : initializers_) bytes += i.value.bytes();
  FIRN_CHECK(bytes < kMostBytes, kExport,
             "convert the model to 16 bits, net.to(firn::f16), or export its parts one by one",
             "the model has {} bytes of parameters and constants, and an ONNX file at most {}",
             bytes, kMostBytes);
  Message graph;
  graph.reserve(bytes + bytes / 8);
  for (const Node& n : nodes_) graph.message(field::graph_node, encoded(n));
  graph.text(field::graph_name, "firn");
  for (const Initializer& i : initializers_) {
    Message tensor;
    for (const std::int64_t d : i.value.shape()) tensor.integer(field::dims, d);
    tensor.integer(field::data_type, onnx_dtype(i.value.dtype())).text(field::tensor_name, i.name);
    const Tensor host = on_host(i.value);
    tensor.text(field::raw_data, {static_cast<const char*>(host.impl()->data()), host.bytes()});
    graph.message(field::graph_initializer, tensor);
  }
  for (const End& e : inputs_) graph.message(field::graph_input, end(e));
  for (const End& e : outputs_) graph.message(field::graph_output, end(e));

  Message model;
  model.integer(field::ir_version, kIrVersion)
      .text(field::producer, "firn")
      .text(field::producer_version, version());
  if (!doc.empty()) model.text(field::model_doc, doc);
  model.message(field::opset, Message().integer(field::opset_version, kOpset))
      .head(field::graph, graph.bytes().size());
  const std::size_t whole = model.bytes().size() + graph.bytes().size();
  FIRN_CHECK(whole <= kMostBytes, kExport, "export its parts one by one",
             "the file would have {} bytes, more than {}", whole, kMostBytes);
  return {model.take(), graph.take()};
}

}  // namespace firn::io::onnx
