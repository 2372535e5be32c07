// Records a run. A tensor is identified by its impl, or by the storage and geometry of its
// elements, at the storage's version. An in-place write makes a new value; other tensors that share
// the memory are then no longer known.
#include "onnx/trace.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "autograd/op_attributes.h"
#include "autograd/op_mode.h"
#include "base/check.h"
#include "firn/autograd.h"
#include "firn/memory/labels.h"
#include "firn/ops/autocast.h"
#include "firn/ops/ops.h"
#include "firn/runtime/storage.h"
#include "firn/thread_context.h"
#include "tensor/impl.h"

namespace firn::io::onnx {
namespace {

using autograd::Attribute;
using autograd::AttributeSink;

/// Returns the path of the module that is being called, without the name of the root's type.
std::string module_now() {
  const std::string_view path = runtime::module_path(thread_context.labels.module);
  const std::size_t dot = path.find('.');
  return dot == std::string_view::npos ? std::string() : std::string(path.substr(dot + 1));
}

bool same_place(const TensorImpl& a, const TensorImpl& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  if (a.shape.product() == 0) return true;
  if (a.offset != b.offset) return false;
  for (int i = 0; i < a.shape.size(); ++i)
    if (a.shape[i] > 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

bool writes_in_place(std::string_view op) { return op.ends_with('_'); }

class Recorder final : public autograd::OpListener, public AttributeSink {
 public:
  explicit Recorder(const std::vector<NamedTensor>& named) : before_(thread_context.attributes) {
    for (const NamedTensor& n : named) named_[n.tensor.storage().get()].push_back(&n);
    thread_context.attributes = this;
  }
  ~Recorder() override {
    stop();
    thread_context.attributes = before_;
  }

  void add_input(const Tensor& x) { out_.inputs.push_back(result(x)); }
  void add_output(const Tensor& y) { out_.outputs.push_back(operand("an output", y)); }
  Trace take() { return std::move(out_); }

  // ---- AttributeSink ----

  void about(const char* op, std::span<const Attribute> attributes) override {
    if (pending_.op != op) pending_ = {.op = op};
    for (const Attribute& a : attributes) {
      if (const auto* const t = std::get_if<const Tensor*>(&a.value)) {
        const Tensor given = *t ? **t : Tensor();
        pending_.tensors.push_back({a.name, given, given.defined() ? find(given) : kUndefined});
      } else {
        pending_.numbers[a.name] = number(a);
      }
    }
    // This check comes before the layer changes its running statistics.
    if (pending_.op == "batch_norm" && pending_.numbers.contains("computed") &&
        pending_.numbers.at("computed") == Number(std::int64_t{1}))
      cannot_repeat(op, "it normalises by the statistics of the batch", "call model.eval()");
    if (!writes_in_place(op) || pending_.tensors.empty()) return;
    refuse_named(op, pending_.tensors.front().tensor);
    // The operation will overwrite the tensors that it reads.
    const bool traced = std::any_of(pending_.tensors.begin(), pending_.tensors.end(),
                                    [this](const Lent& l) { return is_traced(l.tensor); });
    for (Lent& l : pending_.tensors)
      if (traced && std::string_view(l.name) != "target") l.value = operand(op, l.tensor);
  }

  void wrote(const char* op, const Tensor& x) override {
    const Pending given = take_pending(op);
    const Lent* source = nullptr;
    for (const Lent& l : given.tensors)
      if (std::string_view(l.name) == "source") source = &l;
    const bool reads_traced = source && source->value >= 0 && !is_constant(source->value);
    if (!reads_traced && !is_traced(x)) return;
    TracedOp made = described(op, given);
    if (source) made.inputs = {source->value >= 0 ? source->value : operand(op, source->tensor)};
    made.tensors.clear();
    made.outputs = {result(x)};
    out_.ops.push_back(std::move(made));
  }

  void cannot_repeat(const char* op, const char* why, const char* hint) override {
    Error e(kExport, fmt::format("{} has no place in a model: {}", op, why), hint);
    if (const std::string path = module_now(); !path.empty()) e.set_module(path);
    throw e;
  }

  // ---- OpListener ----

  void ran(const char* op, std::span<const Tensor* const> operands, const Tensor& y) override {
    const std::string_view name = op;
    const Pending given = take_pending(op);
    if (name == "copy_" && given.op.empty()) return;  // wrote() has recorded it
    const bool custom = given.numbers.contains("custom");
    // It may have computed its result with operations, which are already recorded.
    if (custom && find(y) >= 0 && !is_constant(find(y))) return;
    const bool in_place = !custom && writes_in_place(op);
    const bool view = name == "reshape" || name == "permute";
    if (!any_traced(in_place ? std::span<const Tensor* const>() : operands, view, given)) return;
    if (!custom && moves_only(name)) return know(y, operand(op, *operands[0]));

    TracedOp made = described(op, given);
    std::vector<const Lent*> in_order;
    for (const Lent& l : given.tensors) {
      if (std::string_view(l.name) == "operand") {
        in_order.push_back(&l);
      } else if (!gives_positions(name)) {
        made.tensors[l.name] = value_of(op, l);
      }
    }
    // Elementwise operations report their operands as they were before a write.
    for (const Lent* l : in_order) made.inputs.push_back(value_of(op, *l));
    for (const Tensor* t : operands)
      if (in_order.empty()) made.inputs.push_back(t->defined() ? operand(op, *t) : -1);
    made.outputs = {result(y)};
    if (gives_positions(name))
      for (const Lent& l : given.tensors) made.outputs.push_back(result(l.tensor));
    out_.ops.push_back(std::move(made));
  }

 private:
  static constexpr int kUnknown = -2, kUndefined = -1;

  /// A tensor that an operation reported, and its number at that time.
  struct Lent {
    const char* name;
    Tensor tensor;
    int value;
  };
  struct Pending {
    std::string_view op;
    std::vector<Lent> tensors = {};
    std::map<std::string, Number> numbers = {};
  };
  struct Known {
    Tensor tensor;
    std::uint32_t version;
    int value;
  };

  static bool moves_only(std::string_view op) {
    return op == "contiguous" || op == "clone" || op == "channels_last" || op == "to_device";
  }
  static bool gives_positions(std::string_view op) { return op == "sort" || op == "topk"; }
  static Number number(const Attribute& a) {
    if (const auto* const v = std::get_if<std::int64_t>(&a.value)) return *v;
    if (const auto* const v = std::get_if<double>(&a.value)) return *v;
    if (const auto* const v = std::get_if<Dims>(&a.value)) return *v;
    return std::string(std::get<const char*>(a.value));
  }

  Pending take_pending(std::string_view op) {
    return pending_.op == op ? std::exchange(pending_, {}) : Pending{};
  }
  TracedOp described(const char* op, const Pending& given) {
    TracedOp made;
    made.op = made.rule = op;
    made.module = module_now();
    made.numbers = given.numbers;
    if (made.numbers.contains("custom")) made.rule = "custom";
    if (const auto formula = made.numbers.find("formula"); formula != made.numbers.end()) {
      made.rule = std::get<std::string>(formula->second);
      made.numbers.erase(formula);
    }
    return made;
  }

  // ---- Values ----

  /// Returns the number of a tensor's value; kUnknown if it has none.
  int find(const Tensor& t) const {
    const std::uint32_t version = t.storage()->version();
    if (const auto at = by_impl_.find(t.impl());
        at != by_impl_.end() && at->second.version == version)
      return at->second.value;
    if (const auto at = places_.find(t.storage().get()); at != places_.end())
      for (const Known& k : at->second)
        if (k.version == version && same_place(*k.tensor.impl(), *t.impl())) return k.value;
    return kUnknown;
  }
  bool is_constant(int value) const { return out_.constants.contains(value); }
  /// Returns true if the tensor depends on an input.
  bool is_traced(const Tensor& t) const {
    if (!t.defined()) return false;
    const int value = find(t);
    return value >= 0 ? !is_constant(value) : computed_.contains(t.storage().get());
  }
  bool any_traced(std::span<const Tensor* const> operands, bool view, const Pending& given) const {
    for (const Tensor* t : operands) {
      // A view of a parameter is recorded as an operation, so that the parameter keeps its name in
      // the file.
      if (is_traced(*t) || (view && t->defined() && named_.contains(t->storage().get())))
        return true;
    }
    for (const Lent& l : given.tensors)
      if (l.value >= 0 ? !is_constant(l.value) : is_traced(l.tensor)) return true;
    return false;
  }

  int value_of(const char* op, const Lent& l) {
    if (l.value != kUnknown) return l.value;
    return operand(op, l.tensor);
  }
  /// Returns the number of an operand. A value that depends on no input becomes a constant.
  int operand(const char* op, const Tensor& t) {
    if (!t.defined()) return kUndefined;
    if (const int known = find(t); known >= 0) return known;
    if (computed_.contains(t.storage().get())) {
      const std::string writer = t.storage()->last_writer();
      Error e(kExport,
              writer.empty()
                  ? fmt::format("{} reads {}, a view that no operation made", op, describe(t))
                  : fmt::format("{} reads {}, whose memory {} has written through another tensor",
                                op, describe(t), writer),
              "build it with cat(), stack() or where()");
      if (const std::string path = module_now(); !path.empty()) e.set_module(path);
      throw e;
    }
    Constant c;
    if (const auto at = named_.find(t.storage().get()); at != named_.end())
      for (const NamedTensor* n : at->second)
        if (same_place(*n->tensor.impl(), *t.impl())) c = {n->name, n->tensor};
    if (!c.value.defined()) c.value = on_host(t);
    const int value = number_for(t);
    out_.constants.emplace(value, std::move(c));
    by_impl_.insert_or_assign(t.impl(), Known{t, t.storage()->version(), value});
    places_[t.storage().get()].push_back({t, t.storage()->version(), value});
    return value;
  }
  int number_for(const Tensor& t) {
    out_.values.push_back({t.dtype(), t.shape()});
    return static_cast<int>(out_.values.size()) - 1;
  }
  /// Sets the number of the value that `t` has from now on.
  void know(const Tensor& t, int value) {
    by_impl_.insert_or_assign(t.impl(), Known{t, t.storage()->version(), value});
    places_[t.storage().get()].push_back({t, t.storage()->version(), value});
    if (!named_.contains(t.storage().get())) computed_.insert(t.storage().get());
  }
  int result(const Tensor& t) {
    const int value = number_for(t);
    know(t, value);
    return value;
  }
  void refuse_named(const char* op, const Tensor& x) const {
    const auto at = named_.find(x.storage().get());
    if (at == named_.end()) return;
    Error e(kExport,
            fmt::format("{} writes to \"{}\", a part of the model's state", op,
                        at->second.front()->name),
            "an ONNX model keeps no state between its runs: give it as an input and an output");
    if (const std::string path = module_now(); !path.empty()) e.set_module(path);
    throw e;
  }

  AttributeSink* before_;
  Trace out_;
  Pending pending_;
  std::unordered_map<const TensorImpl*, Known> by_impl_;
  std::unordered_map<const Storage*, std::vector<Known>> places_;
  std::unordered_map<const Storage*, std::vector<const NamedTensor*>> named_;
  std::unordered_set<const Storage*> computed_;  ///< memory of values that depend on an input
};

}  // namespace

Tensor on_host(const Tensor& t) {
  const autograd::OpMode::Plain unheard;
  struct Silence {
    AttributeSink* sink = std::exchange(thread_context.attributes, nullptr);
    bool anomaly =
        std::exchange(thread_context.op_mode.anomaly, false);  // a mask may have infinities
    ~Silence() {
      thread_context.attributes = sink;
      thread_context.op_mode.anomaly = anomaly;
    }
  } const silence;
  return clone(to_device(t.detach(), Device::cpu()));
}

Trace trace(const Function& f, const std::vector<Tensor>& inputs,
            const std::vector<NamedTensor>& named) {
  const NoGrad no_grad;
  const NoAutocast no_autocast;
  Recorder recorder(named);
  for (const Tensor& x : inputs) recorder.add_input(x);
  const std::vector<Tensor> outputs = f(inputs);
  FIRN_CHECK(!outputs.empty(), kExport, "return the tensors that the model computes",
             "the function returned no tensor");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    FIRN_CHECK(outputs[i].defined(), kExport, "return the tensors that the model computes",
               "output {} is undefined", i);
    recorder.add_output(outputs[i]);
  }
  return recorder.take();
}

}  // namespace firn::io::onnx
