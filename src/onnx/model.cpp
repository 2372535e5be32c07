// Compares runs: they must have equal operations on equal operands, and numbers that are equal or
// grow with the batch.
#include "onnx/model.h"

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
  Merger(const Trace& first, std::int64_t batch, std::span<const BatchRun> others)
      : a_(first), n_(batch), others_(others) {}

  void run(Model& out) {
    for (const BatchRun& other : others_) compare(other);
    for (std::size_t i = 0; i < a_.values.size(); ++i) {
      std::vector<const Dims*> all;
      for (const BatchRun& other : others_) all.push_back(&other.trace.values[i].shape);
      const TracedValue& x = a_.values[i];
      out.values.push_back(
          {x.dtype, sizes("a shape", maker_of(static_cast<int>(i)), x.shape, all)});
    }
    for (std::size_t i = 0; i < a_.ops.size(); ++i) {
      ModelOp op{&a_.ops[i], {}};
      for (const auto& [name, number] : a_.ops[i].numbers) {
        std::vector<const Number*> all;
        for (const BatchRun& other : others_) all.push_back(&other.trace.ops[i].numbers.at(name));
        op.numbers.emplace(name, merged(a_.ops[i], name, number, all));
      }
      out.ops.push_back(std::move(op));
    }
    for (const auto& [value, constant] : a_.constants)
      out.constants.emplace(
          value, merged(constant, out.values[static_cast<std::size_t>(value)].shape, value));
  }

 private:
  /// Throws unless the two runs have equal operations on equal values.
  void compare(const BatchRun& other) const {
    const Trace& b = other.trace;
    for (std::size_t i = 0; i < std::min(a_.ops.size(), b.ops.size()); ++i)
      compare(a_.ops[i], b.ops[i], i, other.batch);
    if (a_.ops.size() != b.ops.size()) {
      const bool more = a_.ops.size() > b.ops.size();
      const TracedOp& extra = (more ? a_ : b).ops[std::min(a_.ops.size(), b.ops.size())];
      fail(extra,
           fmt::format("the model runs {} operations for a batch of {} and {} for one of {}; the "
                       "first that only one has is {}",
                       a_.ops.size(), n_, b.ops.size(), other.batch, extra.op),
           kFixedHint);
    }
    FIRN_CHECK(a_.outputs == b.outputs, kExport, kFixedHint,
               "the model returns other results for a batch of {} than for one of {}", n_,
               other.batch);
    for (std::size_t i = 0; i < a_.values.size(); ++i) {
      const TracedValue &x = a_.values[i], &y = b.values[i];
      FIRN_CHECK(x.dtype == y.dtype && x.shape.size() == y.shape.size(), kExport, kFixedHint,
                 "a value is {} {} for a batch of {} and {} {} for one of {}", x.shape, x.dtype, n_,
                 y.shape, y.dtype, other.batch);
    }
  }
  void compare(const TracedOp& x, const TracedOp& y, std::size_t i, std::int64_t batch) const {
    if (x.rule != y.rule)
      fail(x,
           fmt::format("operation {} is {} for a batch of {} and {} for one of {}", i, x.op, n_,
                       y.op, batch),
           kFixedHint);
    const bool same = x.inputs == y.inputs && x.outputs == y.outputs && x.tensors == y.tensors &&
                      same_names(x.numbers, y.numbers);
    if (!same)
      fail(x,
           fmt::format("operation {}, {}, has other operands for a batch of {} than for one of {}",
                       i, x.op, n_, batch),
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
  /// Merges a size of the first run with `all`, the sizes in the other runs.
  Size size(const char* what, const TracedOp& op, std::int64_t x,
            const std::vector<std::int64_t>& all) const {
    bool same = true, grows = x % n_ == 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::int64_t n = others_[i].batch;
      same = same && all[i] == x;
      grows = grows && all[i] % n == 0 && all[i] / n == x / n_;
    }
    if (same) return {x, 0};
    if (grows) return {0, x / n_};
    std::string others;
    for (std::size_t i = 0; i < all.size(); ++i)
      others += fmt::format("{}{} for one of {}", i + 1 < all.size() ? ", " : " and ", all[i],
                            others_[i].batch);
    fail(op,
         fmt::format("{} of {} has the number {} for a batch of {}{}, which is no multiple of it",
                     what, op.op.empty() ? "an input" : op.op, x, n_, others),
         kFixedHint);
  }
  Sizes sizes(const char* what, const TracedOp& op, const Dims& x,
              const std::vector<const Dims*>& all) const {
    Sizes out;
    for (int i = 0; i < x.size(); ++i) {
      std::vector<std::int64_t> numbers;
      for (const Dims* const y : all) numbers.push_back((*y)[i]);
      out.push_back(size(what, op, x[i], numbers));
    }
    return out;
  }

  ModelNumber merged(const TracedOp& op, const std::string& name, const Number& x,
                     const std::vector<const Number*>& all) const {
    if (const auto* const v = std::get_if<std::int64_t>(&x)) {
      std::vector<std::int64_t> numbers;
      for (const Number* const y : all) numbers.push_back(std::get<std::int64_t>(*y));
      return size(name.c_str(), op, *v, numbers);
    }
    if (const auto* const v = std::get_if<Dims>(&x)) {
      std::vector<const Dims*> dims;
      for (const Number* const y : all) dims.push_back(&std::get<Dims>(*y));
      if (std::all_of(dims.begin(), dims.end(),
                      [v](const Dims* w) { return w->size() == v->size(); }))
        return sizes(name.c_str(), op, *v, dims);
    } else if (const auto* const number = std::get_if<double>(&x)) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        const double other = std::get<double>(*all[i]);
        if (std::memcmp(number, &other, sizeof(double)) != 0)
          fail(op,
               fmt::format("{} of {} is {} for a batch of {} and {} for one of {}", name, op.op,
                           *number, n_, other, others_[i].batch),
               kFixedHint);
      }
      return *number;
    } else if (std::all_of(all.begin(), all.end(), [&x](const Number* y) { return *y == x; })) {
      return std::get<std::string>(x);
    }
    fail(op, fmt::format("{} of {} depends on the size of the batch", name, op.op), kFixedHint);
  }

  /// Returns the first operation that reads a constant, for errors.
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
  /// Merges a constant of all runs. No constant counts in one run and is repeated in another, since
  /// the first run has two rows or more.
  ModelConstant merged(const Constant& x, const Sizes& shape, int value) const {
    ModelConstant out{x.name, x.value};
    for (const BatchRun& other : others_)
      out = merged(x, other.trace.constants.at(value), shape, value);
    return out;
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
      // The constant must repeat along the axes that grow with the batch.
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
  /// Returns true for an index 0, 1, 2, ...
  static bool counts(const Tensor& t) {
    if (t.rank() != 1 || t.dtype() == boolean) return false;
    const std::vector<double> v = t.to_vector<double>();
    for (std::size_t i = 0; i < v.size(); ++i)
      if (v[i] != static_cast<double>(i)) return false;
    return true;
  }

  const Trace& a_;
  std::int64_t n_;
  std::span<const BatchRun> others_;
};

}  // namespace

Model merge(BatchRun first, std::span<const BatchRun> others) {
  const NoGrad guard;
  Model out{.trace = std::move(first.trace), .values = {}, .ops = {}, .constants = {}};
  Merger(out.trace, first.batch, others).run(out);
  return out;
}

}  // namespace firn::io::onnx
