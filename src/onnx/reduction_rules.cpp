// Rules of reductions and of operations on rows: softmax and norms over the last axis.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "firn/ops/ops.h"
#include "onnx/rules.h"

namespace firn::io::onnx {
namespace {

NodeAttribute keepdims(Emit& e) { return {"keepdims", e.integer("keepdims")}; }

/// Writes a reduction whose axes are an attribute; in opset 17 that is all but ReduceSum.
std::string reduced(Emit& e, const char* type, const std::string& x, const NodeAttribute& keep) {
  NodeAttributes attributes = {keep};
  if (const std::vector<std::int64_t> axes = e.integers("axes"); !axes.empty())
    attributes.push_back({"axes", axes});
  return e(type, {x}, attributes);
}
std::string summed(Emit& e, const std::string& x, const NodeAttribute& keep) {
  const std::vector<std::int64_t> axes = e.integers("axes");
  return e("ReduceSum", {x, axes.empty() ? std::string() : e.graph.list(axes)}, {keep});
}

void sum(Emit& e) {
  // Integers are added in 64 bits.
  if (is_floating(e.value().dtype)) return e.done(summed(e, e.in(), keepdims(e)));
  e.done(summed(e, e.cast(e.raw(), i64), keepdims(e)), i64);
}

/// Returns the number of elements that the reduction adds, minus `less`, in the dtype of the
/// computation.
std::string divisor(Emit& e, std::int64_t less) {
  std::int64_t fixed = 1;
  std::string count;
  for (const std::int64_t a : e.integers("axes")) {
    const Size& s = e.value().shape[static_cast<std::size_t>(a)];
    if (s.is_fixed()) {
      fixed *= s.fixed;
    } else {
      const std::string size = e.squeeze(e.graph.size(s), {0});
      count = count.empty() ? size : e("Mul", {count, size});
    }
  }
  if (count.empty())
    return e.constant(static_cast<double>(std::max<std::int64_t>(0, fixed - less)));
  if (fixed != 1) count = e("Mul", {count, e.graph.scalar(i64, static_cast<double>(fixed))});
  count = e("Sub", {count, e.graph.scalar(i64, static_cast<double>(less))});
  return e.cast(e("Max", {count, e.graph.scalar(i64, 0)}), e.dtype);
}

std::string variance(Emit& e) {
  const std::string x = e.in();
  const std::string mean = reduced(e, "ReduceMean", x, {"keepdims", std::int64_t{1}});
  const std::string distance = e("Sub", {x, mean});
  const std::string squares = summed(e, e("Mul", {distance, distance}), keepdims(e));
  return e("Div", {squares, divisor(e, e.integer("correction"))});
}

void norm(Emit& e) {
  const std::string x = e.in();
  e.done(e("Sqrt", {summed(e, e("Mul", {x, x}), keepdims(e))}));
}

void position(Emit& e, const char* type) {
  e.done(e(type, {e.in()}, {{"axis", e.integers("axes")[0]}, keepdims(e)}), i64);
}

void prod(Emit& e) {
  // Integers are multiplied in 64 bits.
  if (is_floating(e.value().dtype)) return e.done(reduced(e, "ReduceProd", e.in(), keepdims(e)));
  e.done(reduced(e, "ReduceProd", e.cast(e.raw(), i64), keepdims(e)), i64);
}

/// Writes any() or all(): the largest or smallest of "is not 0" as 0 and 1.
void truth(Emit& e, const char* type) {
  const std::string is_zero = e("Equal", {e.in(), e.constant(0)});
  e.done(reduced(e, type, e.cast(e("Not", {is_zero}), i32), keepdims(e)), i32);
}

void cumsum(Emit& e) {
  const std::string axis = e.graph.scalar(i64, static_cast<double>(e.integer("axis")));
  const bool scalar = e.rank() == 0;
  const auto sums = [&](const std::string& x) {
    const std::string y = e("CumSum", {scalar ? e.unsqueeze(x, {0}) : x, axis});
    return scalar ? e.squeeze(y, {0}) : y;
  };
  if (is_floating(e.value().dtype)) return e.done(sums(e.in()));
  e.done(sums(e.cast(e.raw(), i64)), i64);
}

// ---- Rows ----

constexpr std::int64_t kLast = -1;

/// Returns a weight or bias in the dtype of the computation, or one number everywhere.
std::string parameter(Emit& e, std::size_t i, double otherwise) {
  if (e.has(i)) return e.in(i);
  return e.graph.initializer(otherwise == 1 ? "ones" : "zeros",
                             full({e.size(kLast)}, otherwise, e.dtype, Device::cpu()));
}

void layer_norm(Emit& e) {
  const std::string bias = e.has(2) ? e.in(2) : std::string();
  e.done(e("LayerNormalization", {e.in(0), parameter(e, 1, 1), bias},
           {{"axis", kLast}, {"epsilon", static_cast<float>(e.number("eps"))}}));
}

void rms_norm(Emit& e) {
  const std::string x = e.in(0);
  const std::string mean =
      e("ReduceMean", {e("Mul", {x, x})},
        {{"axes", std::vector<std::int64_t>{kLast}}, {"keepdims", std::int64_t{1}}});
  const std::string root = e("Sqrt", {e("Add", {mean, e.constant(e.number("eps"))})});
  const std::string y = e("Div", {x, root});
  e.done(e.has(1) ? e("Mul", {y, e.in(1)}) : y);
}

const std::array kRules = {
    Rule{"sum", Width::wide, sum},
    Rule{"mean", Width::wide,
         [](Emit& e) { e.done(reduced(e, "ReduceMean", e.in(), keepdims(e))); }},
    Rule{"max", Width::whole,
         [](Emit& e) { e.done(reduced(e, "ReduceMax", e.in(), keepdims(e))); }},
    Rule{"min", Width::whole,
         [](Emit& e) { e.done(reduced(e, "ReduceMin", e.in(), keepdims(e))); }},
    Rule{"argmax", Width::both, [](Emit& e) { position(e, "ArgMax"); }},
    Rule{"argmin", Width::both, [](Emit& e) { position(e, "ArgMin"); }},
    Rule{"prod", Width::wide, prod},
    Rule{"any", Width::both, [](Emit& e) { truth(e, "ReduceMax"); }},
    Rule{"all", Width::both, [](Emit& e) { truth(e, "ReduceMin"); }},
    Rule{"logsumexp", Width::wide,
         [](Emit& e) { e.done(reduced(e, "ReduceLogSumExp", e.in(), keepdims(e))); }},
    Rule{"cumsum", Width::wide, cumsum},
    Rule{"var", Width::wide, [](Emit& e) { e.done(variance(e)); }},
    Rule{"std", Width::wide, [](Emit& e) { e.done(e("Sqrt", {variance(e)})); }},
    Rule{"norm", Width::wide, norm},
    Rule{"softmax", Width::wide,
         [](Emit& e) {
           e.done(e("Softmax", {e.in()}, {{"axis", kLast}}));
         }},
    Rule{"log_softmax", Width::wide,
         [](Emit& e) {
           e.done(e("LogSoftmax", {e.in()}, {{"axis", kLast}}));
         }},
    Rule{"layer_norm", Width::wide, layer_norm},
    Rule{"rms_norm", Width::wide, rms_norm},
};

}  // namespace

std::span<const Rule> reduction_rules() { return kRules; }

}  // namespace firn::io::onnx
