// The optimizer's loss scale, the step of optimizers that share one, and what it all comes to in
// words.
#include "firn/losses.h"
#include "optim/optimizer_impl.h"

namespace firn::optim {
namespace {

std::string describe_scale(const LossScale& s, bool shared) {
  const DynamicLossScale& o = s.options();
  const char* whose = shared ? "shared " : "";
  switch (s.kind()) {
    case LossScale::Kind::fixed:
      return fmt::format("{}loss scale {:.10g}", whose, o.init);
    case LossScale::Kind::dynamic:
      return o.calibrate ? fmt::format("{}dynamic loss scale, calibrated by the first step", whose)
                         : fmt::format("{}dynamic loss scale from {:.10g}", whose, o.init);
    default:
      return "no loss scale";
  }
}

}  // namespace

double Optimizer::loss_scale() const {
  return impl_->policy.scale.scaled ? impl_->scaler.scale() : 1;
}

void Optimizer::set_loss_scale(double scale) {
  const ParamStore& store = impl_->store;
  check_scale(store.op().c_str(), impl_->options.loss_scale, scale);
  kernels::optim_set_scale(store.memory(), scale, impl_->policy.scale, store.stream());
}

std::vector<StepReport> step_all(std::initializer_list<Optimizer*> optimizers, SkipPolicy policy) {
  constexpr const char* kOp = "step_all";
  FIRN_CHECK(optimizers.size() > 0, kOp, "", "there is no optimizer");
  std::vector<kernels::StepMemory> memories;
  bool ends = false;
  for (const Optimizer* o : optimizers) {
    FIRN_CHECK(o, kOp, "", "optimizer {} is a null pointer", memories.size());
    Optimizer::Impl& i = *o->impl_;
    for (const kernels::StepMemory& m : memories)
      FIRN_CHECK(m.state.data != i.store.memory().state.data, kOp, "",
                 "optimizer {} is given twice", memories.size());
    o->check_ready();
    i.open_cycle();
    memories.push_back(i.store.memory());
    FIRN_CHECK(
        i.options.scaler.defined() && memories.back().scaler.data == memories.front().scaler.data,
        kOp, "give one LossScaler to the StepOptions of all",
        "optimizer {} does not share its loss scale with optimizer 0", memories.size() - 1);
    const bool last = i.calls + 1 >= i.length;
    if (memories.size() == 1) ends = last;
    FIRN_CHECK(last == ends, kOp, "give all the same `accumulate`",
               "optimizer {} is at another place of its cycle than optimizer 0",
               memories.size() - 1);
  }

  std::vector<StepReport> out;
  if (!ends) {
    for (const Optimizer* o : optimizers) {
      o->impl_->calls += 1;
      out.push_back(o->progress());
    }
    return out;
  }
  const Stream stream = (*optimizers.begin())->impl_->store.stream();
  for (const Optimizer* o : optimizers) o->impl_->decide();
  if (policy == SkipPolicy::all)
    kernels::optim_join(std::span<const kernels::StepMemory>(memories), stream);
  for (const Optimizer* o : optimizers) o->impl_->commit();
  kernels::optim_move_scale(std::span<const kernels::StepMemory>(memories),
                            (*optimizers.begin())->impl_->policy.scale, stream);
  for (const Optimizer* o : optimizers)
    out.emplace_back(o->impl_->store.step_state(), o->impl_->cycles);
  for (const Optimizer* o : optimizers) o->impl_->check_skips();
  return out;
}

std::string Optimizer::describe(std::int64_t micro_batch) const {
  const StepOptions& o = impl_->options;
  const std::int64_t n = cycle_length();
  std::string out = impl_->store.op() + ": ";
  if (micro_batch > 0) {
    out += fmt::format("{} x {} = {} samples per step", micro_batch, n, micro_batch * n);
  } else {
    out += fmt::format("{} micro-step{} per step", n, n == 1 ? "" : "s");
  }
  std::string types;
  for (const DType t : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const Tensor& p : impl_->store.parameters())
      if (p.dtype() == t) {
        types += fmt::format("{}{} parameters", types.empty() ? "" : ", ", to_string(t));
        if (t == DType::f16 || t == DType::bf16)
          types += o.stochastic_rounding ? " rounded stochastically" : " with f32 masters";
        break;
      }
  out += ", " + types + ", " + describe_scale(o.loss_scale, o.scaler.defined());
  if (o.clip_value > 0) out += fmt::format(", clip value {:.6g}", o.clip_value);
  if (o.clip_norm > 0) out += fmt::format(", clip norm {:.6g}", o.clip_norm);
  if (o.ema > 0) out += fmt::format(", average of weights {:.6g}", o.ema);
  return out + ", lr " + impl_->lr.describe();
}

}  // namespace firn::optim
