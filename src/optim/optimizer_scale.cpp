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
  return own().policy.scale.scaled ? own().scaler.scale() : 1;
}

void Optimizer::set_loss_scale(double scale) {
  const ParamStore& store = own().store;
  check_scale(store.op().c_str(), own().options.loss_scale, scale);
  kernels::optim_set_scale(store.memory(), scale, own().policy.scale, store.stream());
}

// ---- Optimizers that share a scale ----

struct Optimizer::Joint {
  /// Checks that they can step together.
  static std::vector<kernels::StepMemory> memories(const char* op,
                                                   std::initializer_list<Optimizer*> optimizers);
  static std::vector<StepReport> end_cycles(std::initializer_list<Optimizer*> optimizers,
                                            const std::vector<kernels::StepMemory>& memories,
                                            SkipPolicy policy);
};

std::vector<kernels::StepMemory> Optimizer::Joint::memories(
    const char* op, std::initializer_list<Optimizer*> optimizers) {
  FIRN_CHECK(optimizers.size() > 0, op, "", "there is no optimizer");
  std::vector<kernels::StepMemory> out;
  for (const Optimizer* o : optimizers) {
    FIRN_CHECK(o, op, "", "optimizer {} is a null pointer", out.size());
    const kernels::StepMemory memory = o->own().store.memory();
    for (const kernels::StepMemory& m : out)
      FIRN_CHECK(m.state.data != memory.state.data, op, "", "optimizer {} is given twice",
                 out.size());
    FIRN_CHECK(o->own().options.scaler.defined() &&
                   (out.empty() || memory.scaler.data == out.front().scaler.data),
               op, "give one LossScaler to the StepOptions of all",
               "optimizer {} does not share its loss scale with the others", out.size());
    o->check_ready();
    out.push_back(memory);
  }
  return out;
}

std::vector<StepReport> Optimizer::Joint::end_cycles(
    std::initializer_list<Optimizer*> optimizers, const std::vector<kernels::StepMemory>& memories,
    SkipPolicy policy) try {
  const Impl& first = (*optimizers.begin())->own();
  const std::span<const kernels::StepMemory> all(memories);
  for (const Optimizer* o : optimizers) o->own().check_skips();
  std::vector<bool> reached;
  for (const Optimizer* o : optimizers) reached.push_back(o->own().decide());
  if (policy == SkipPolicy::all) kernels::optim_join(all, first.store.stream());
  for (const Optimizer* o : optimizers) o->own().commit(false);
  kernels::optim_move_scale(all, first.policy.scale, first.store.stream());
  std::vector<StepReport> out;
  for (const Optimizer* o : optimizers)
    out.emplace_back(o->own().store.step_state(), o->own().at.cycles, -1,
                     o->own().store.short_names());
  for (const Optimizer* o : optimizers) o->own().check_skips();
  std::size_t index = 0;
  for (const Optimizer* o : optimizers) o->own().warn_if_unreached(reached[index++]);
  return out;
}
FIRN_OUT_OF_MEMORY("step_all")

std::vector<StepReport> step_all(std::initializer_list<Optimizer*> optimizers, SkipPolicy policy) {
  constexpr const char* kOp = "step_all";
  const std::vector<kernels::StepMemory> memories = Optimizer::Joint::memories(kOp, optimizers);
  std::size_t index = 0;
  bool ends = false, due = false;
  for (const Optimizer* o : optimizers) due = due || o->own().has_new_micro_step();
  if (!due) {
    (*optimizers.begin())->own().warn_of_empty_step();
    std::vector<StepReport> out;
    for (const Optimizer* o : optimizers) out.push_back(o->progress());
    return out;
  }
  for (const Optimizer* o : optimizers) {
    o->own().open_cycle();
    const bool last = o->own().at.calls + 1 >= o->own().at.length;
    if (index == 0) ends = last;
    FIRN_CHECK(last == ends, kOp, "give all the same `accumulate`",
               "optimizer {} is at another place of its cycle than optimizer 0", index);
    ++index;
  }
  if (ends) return Optimizer::Joint::end_cycles(optimizers, memories, policy);
  std::vector<StepReport> out;
  for (const Optimizer* o : optimizers) {
    o->own().count_call();
    out.push_back(o->progress());
  }
  return out;
}

std::vector<StepReport> flush_all(std::initializer_list<Optimizer*> optimizers, Partial partial,
                                  SkipPolicy policy) {
  const std::vector<kernels::StepMemory> memories =
      Optimizer::Joint::memories("flush_all", optimizers);
  std::int64_t micro_steps = 0;
  for (Optimizer* o : optimizers) {
    if (partial == Partial::drop) o->zero_grad();
    micro_steps += o->own().at.micro_steps;
  }
  if (partial == Partial::apply && micro_steps > 0)
    return Optimizer::Joint::end_cycles(optimizers, memories, policy);
  std::vector<StepReport> out;
  for (const Optimizer* o : optimizers) out.push_back(o->progress());
  return out;
}

std::string Optimizer::describe(std::int64_t micro_batch) const {
  const StepOptions& o = own().options;
  const std::int64_t n = cycle_length();
  std::string out = own().store.op() + ": ";
  if (micro_batch > 0) {
    out += fmt::format("{} x {} = {} samples per step", micro_batch, n, micro_batch * n);
  } else {
    out += fmt::format("{} micro-step{} per step", n, n == 1 ? "" : "s");
  }
  std::string types;
  for (const DType t : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const Tensor& p : own().store.parameters())
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
  return out + ", lr " + own().lr.describe();
}

}  // namespace firn::optim
