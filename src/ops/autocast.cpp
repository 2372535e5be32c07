// Autocast: the guards, casts of operands, and the trace of dtypes.
#include "firn/ops/autocast.h"

#include <ostream>
#include <utility>

#include "firn/autograd.h"
#include "firn/thread_context.h"
#include "kernels/copy.h"
#include "ops/autocast.h"
#include "ops/common.h"

namespace firn {

using autograd::exchange_autocast;

// ---- Guards ----

Autocast::Autocast(DType dtype) {
  FIRN_CHECK(ops::castable(dtype), "Autocast", "take firn::f16, firn::bf16 or firn::f32",
             "cannot run in {}", dtype);
  previous_ = exchange_autocast(dtype);
}
Autocast::~Autocast() { exchange_autocast(previous_); }

NoAutocast::NoAutocast() noexcept : previous_(exchange_autocast({})) {}
NoAutocast::~NoAutocast() { exchange_autocast(previous_); }

std::optional<DType> autocast_dtype() noexcept { return autograd::autocast_mode(); }

// ---- Operands ----

namespace ops::detail {
namespace {

/// Returns the dtype in which a policy runs these operands.
DType target_dtype(Policy policy, std::span<const Tensor*> operands) {
  if (policy == Policy::lower) return thread_context.op_mode.autocast_dtype;
  if (policy == Policy::fp32) return f32;
  // The widest dtype: operands that differ are f32 and 16 bits, or f16 and bf16, which give f32.
  DType common = f32;
  bool first = true;
  for (const Tensor* t : operands) {
    if (!t->defined()) continue;
    if (!first && t->dtype() != common) return f32;
    common = t->dtype();
    first = false;
  }
  return common;
}

/// A 16-bit copy of an f32 operand that shares the operand's node in the graph: a gradient for the
/// copy goes directly to the operand, in f32.
Tensor stand_in(const Tensor& x, DType dtype) {
  const Tensor copy = empty(x.shape(), dtype, x.device(), format_of(x.shape(), x.strides()));
  kernels::copy(x.view(), copy.mutable_view(), stream_of(x));
  copy.impl()->node = x.impl()->node;
  if (dtype == f16 && grad_enabled())
    if (const autograd::Leaf* const leaf = autograd::leaf_of(x); leaf && leaf->cycle)
      leaf->cycle->note_f16();
  autograd::unrecorded("cast", copy, {&x});
  return copy;
}

}  // namespace

void apply_autocast(Policy policy, std::span<const Tensor*> operands, std::span<Tensor> casts) {
  if (policy == Policy::keep) return;
  for (const Tensor* t : operands)
    if (t->defined() && !castable(t->dtype())) return;
  const DType dtype = target_dtype(policy, operands);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Tensor& x = *operands[i];
    if (!x.defined() || x.dtype() == dtype) continue;
    // A matrix product writes f32 from 16-bit operands, so the gradient of an f32 operand is never
    // rounded to 16 bits.
    const bool direct = policy == Policy::lower && x.dtype() == f32;
    casts[i] = direct ? stand_in(x, dtype) : cast(x, dtype);
    operands[i] = &casts[i];
  }
}

}  // namespace ops::detail

std::vector<Tensor> ops::autocasted(Policy policy, std::span<const Tensor> operands) try {
  std::vector<const Tensor*> now;
  for (const Tensor& t : operands) now.push_back(&t);
  std::vector<Tensor> out(operands.size());
  detail::apply_autocast(policy, now, out);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (now[i] == &operands[i]) out[i] = operands[i];
  return out;
}
FIRN_OUT_OF_MEMORY("autocast")

// ---- The trace ----

class DtypeTrace::Recorder final : public autograd::OpListener {
 public:
  ~Recorder() override { stop(); }

  void ran(const char* op, std::span<const Tensor* const> operands, const Tensor& output) override {
    TracedOp entry{op, {}, output.dtype()};
    for (const Tensor* t : operands)
      if (t->defined()) entry.operands.push_back(t->dtype());
    ops.push_back(std::move(entry));
  }

  std::vector<TracedOp> ops;
};

DtypeTrace::DtypeTrace() try : recorder_(std::make_shared<Recorder>()) {}
FIRN_OUT_OF_MEMORY("DtypeTrace")
DtypeTrace::~DtypeTrace() = default;

const std::vector<TracedOp>& DtypeTrace::ops() const noexcept { return recorder_->ops; }

std::string DtypeTrace::text() const try {
  std::string lines;
  for (const TracedOp& op : ops()) lines += to_string(op) + "\n";
  return lines;
}
FIRN_OUT_OF_MEMORY("the text of a DtypeTrace")

std::string to_string(const TracedOp& op) try {
  std::string line = op.op;
  for (const DType t : op.operands) line += fmt::format(" {}", t);
  return line + fmt::format(" -> {}", op.output);
}
FIRN_OUT_OF_MEMORY("the text of a DtypeTrace")

std::ostream& operator<<(std::ostream& out, const DtypeTrace& trace) { return out << trace.text(); }

}  // namespace firn
