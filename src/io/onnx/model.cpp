// Comparison of two runs: the same operations on the same operands, and numbers that are equal or
// grow with the batch.
#include "io/onnx/model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/ops/ops.h"
#include "tensor/impl.h"

namespace firn::io::onnx {
namespace {

constexpr const char* kFixedHint =
    "sizes may depend on the batch, operations and numbers may not; {.dynamic_batch = false} "
    "exports the model for the batch of the examples";

[[noreturn]] void fail(const TracedOp& op, const std::string& message, const char* hint) {
  Error e(kExport, message, hint);
  if (!op.module.empty()) e.set_module(op.module);
  throw e;
}

class Merger {
 public:
  Merger(const Trace& a, const Trace& b, std::int64_t n1, std::int64_t n2)
      : a_(a), b_(b), n1_(n1), n2_(n2) {}

  void run(Model& out) {
    for (std::size_t i = 0; i < std::min(a_.ops.size(), b_.ops.size()); ++i)
      compare(a_.ops[i], b_.ops[i], i);
    if (a_.ops.size() != b_.ops.size()) {
      const bool more = a_.ops.size() > b_.ops.size();
      const TracedOp& extra = (more ? a_ : b_).ops[std::min(a_.ops.size(), b_.ops.size())];
      fail(extra,
           fmt::format("the model runs {} operations for a batch of {} and {} for one of {}; the "
                       "first that only one has is {}",
                       a_.ops.size(), n1_, b_.ops.size(), n2_, extra.op),
           kFixedHint);
    }
    FIRN_CHECK(a_.outputs == b_.outputs, kExport, kFixedHint,
               "the model returns other results for a batch of {} than for one of {}", n1_, n2_);
    for (std::size_t i = 0; i < a_.values.size(); ++i) {
      const TracedValue &x = a_.values[i], &y = b_.values[i];
      FIRN_CHECK(x.dtype == y.dtype && x.shape.size() == y.shape.size(), kExport, kFixedHint,
                 "a value is {} {} for a batch of {} and {} {} for one of {}", x.shape, x.dtype,
                 n1_, y.shape, y.dtype, n2_);
      out.values.push_back(
          {x.dtype, sizes("a shape", maker_of(static_cast<int>(i)), x.shape, y.shape)});
    }
    for (std::size_t i = 0; i < a_.ops.size(); ++i) {
      ModelOp op{&a_.ops[i], {}};
      for (const auto& [name, number] : a_.ops[i].numbers)
        op.numbers.emplace(name, merged(a_.ops[i], name, number, b_.ops[i].numbers.at(name)));
      out.ops.push_back(std::move(op));
    }
    for (const auto& [value, constant] : a_.constants)
      out.constants.emplace(value,
                            merged(constant, b_.constants.at(value),
                                   out.values[static_cast<std::size_t>(value)].shape, value));
  }

 private:
  void compare(const TracedOp& x, const TracedOp& y, std::size_t i) const {
    if (x.rule != y.rule)
      fail(x,
           fmt::format("operation {} is {} for a batch of {} and {} for one of {}", i, x.op, n1_,
                       y.op, n2_),
           kFixedHint);
    const bool same = x.inputs == y.inputs && x.outputs == y.outputs && x.tensors == y.tensors &&
                      same_names(x.numbers, y.numbers);
    if (!same)
      fail(x,
           fmt::format("operation {}, {}, has other operands for a batch of {} than for one of {}",
                       i, x.op, n1_, n2_),
           kFixedHint);
  }
  static bool same_names(const std::map<std::string, Number>& x,
                         const std::map<std::string, Number>& y) {
    if (x.size() != y.size()) return false;
    for (auto i = x.begin(), j = y.begin(); i != x.end(); ++i, ++j)
      if (i->first != j->first || i->second.index() != j->second.index()) return false;
    return true;
  }

  const TracedOp& maker_of(int value) const {
    static const TracedOp none{};
    for (const TracedOp& op : a_.ops)
      for (const int y : op.outputs)
        if (y == value) return op;
    return none;
  }
  Size size(const char* what, const TracedOp& op, std::int64_t x, std::int64_t y) const {
    if (x == y) return {x, 0};
    if (x % n1_ == 0 && y % n2_ == 0 && x / n1_ == y / n2_) return {0, x / n1_};
    fail(op,
         fmt::format("{} of {} has the number {} for a batch of {} and {} for one of {}, which is "
                     "no multiple of it",
                     what, op.op.empty() ? "an input" : op.op, x, n1_, y, n2_),
         kFixedHint);
  }
  Sizes sizes(const char* what, const TracedOp& op, const Dims& x, const Dims& y) const {
    Sizes out;
    for (int i = 0; i < x.size(); ++i) out.push_back(size(what, op, x[i], y[i]));
    return out;
  }

  ModelNumber merged(const TracedOp& op, const std::string& name, const Number& x,
                     const Number& y) const {
    if (const auto* const v = std::get_if<std::int64_t>(&x))
      return size(name.c_str(), op, *v, std::get<std::int64_t>(y));
    if (const auto* const v = std::get_if<Dims>(&x)) {
      const Dims& w = std::get<Dims>(y);
      if (v->size() == w.size()) return sizes(name.c_str(), op, *v, w);
    } else if (const auto* const number = std::get_if<double>(&x)) {
      const double other = std::get<double>(y);
      if (std::memcmp(number, &other, sizeof(double)) == 0) return *number;
      fail(op,
           fmt::format("{} of {} is {} for a batch of {} and {} for one of {}", name, op.op,
                       *number, n1_, other, n2_),
           kFixedHint);
    } else if (std::get<std::string>(x) == std::get<std::string>(y)) {
      return std::get<std::string>(x);
    }
    fail(op, fmt::format("{} of {} depends on the size of the batch", name, op.op), kFixedHint);
  }

  /// The operation that reads a constant first, to name it in errors.
  const TracedOp& reader_of(int value) const {
    static const TracedOp none = [] {
      TracedOp op;
      op.op = "an output";
      return op;
    }();
    for (const TracedOp& op : a_.ops) {
      for (const int x : op.inputs)
        if (x == value) return op;
      for (const auto& [name, x] : op.tensors)
        if (x == value) return op;
    }
    return none;
  }
  ModelConstant merged(const Constant& x, const Constant& y, const Sizes& shape, int value) const {
    if (!x.name.empty() && x.name == y.name) return {x.name, x.value};
    const Tensor &p = x.value, &q = y.value;
    bool grows = false;
    for (const Size& s : shape) grows = grows || !s.is_fixed();
    if (!grows) {
      if (same_bytes(p, q)) return {{}, p};
    } else if (counts(p) && counts(q)) {
      return {{}, {}, true};
    } else {
      // The same along the axes that grow with the batch.
      const auto first_of = [&shape](const Tensor& t) {
        Tensor part = t;
        for (int i = 0; i < t.rank(); ++i)
          if (!shape[static_cast<std::size_t>(i)].is_fixed()) part = slice(part, i, 0, 1);
        return part;
      };
      const Tensor one = on_host(first_of(p)), other = on_host(first_of(q));
      if (same_bytes(one, other) && same_bytes(on_host(expand(one, p.shape())), p) &&
          same_bytes(on_host(expand(other, q.shape())), q))
        return {{}, one};
    }
    const TracedOp& op = reader_of(value);
    fail(op,
         fmt::format("{} reads {}, which no recorded operation computes from the inputs, but whose "
                     "elements depend on the batch",
                     op.op, describe(p)),
         "compute it with firn's operations: what is read to the host by item() or to_vector() is "
         "not recorded");
  }
  static bool same_bytes(const Tensor& p, const Tensor& q) {
    if (p.dtype() != q.dtype() || p.shape() != q.shape()) return false;
    const Tensor x = on_host(p), y = on_host(q);
    return p.numel() == 0 || std::memcmp(x.impl()->data(), y.impl()->data(), p.bytes()) == 0;
  }
  /// Whether it is an index 0, 1, 2, ...
  static bool counts(const Tensor& t) {
    if (t.rank() != 1 || t.dtype() == boolean) return false;
    const std::vector<double> v = t.to_vector<double>();
    for (std::size_t i = 0; i < v.size(); ++i)
      if (v[i] != static_cast<double>(i)) return false;
    return true;
  }

  const Trace &a_, &b_;
  std::int64_t n1_, n2_;
};

}  // namespace

Model merge(Trace first, const Trace& second, std::int64_t n1, std::int64_t n2) {
  const NoGrad guard;
  Model out{.trace = std::move(first), .values = {}, .ops = {}, .constants = {}};
  Merger(out.trace, second, n1, n2).run(out);
  return out;
}

Model fixed_model(Trace trace) {
  Model out{.trace = std::move(trace), .values = {}, .ops = {}, .constants = {}};
  // A run is the same as itself.
  Merger(out.trace, out.trace, 1, 1).run(out);
  return out;
}

}  // namespace firn::io::onnx
