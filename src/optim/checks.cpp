#include "optim/checks.h"

#include <algorithm>

#include "firn/ops/losses.h"
#include "firn/warning.h"
#include "optim/impl.h"

namespace firn::optim {
namespace {

/// Returns true if a warning is to be given now. A plan gives none and notes none: the step that it
/// plans follows.
bool is_due(OptimizerImpl& impl, Warned warning) {
  return !runtime::dry_run() && impl.notes.warned.first(warning);
}

}  // namespace

void require_scalar(const OptimizerImpl& impl, const Tensor& sum) {
  const ParamStore& store = impl.store;
  const std::string& op = store.op();
  FIRN_CHECK(sum.defined(), op, "compute it from the model's output, with a function of losses.h",
             "the loss is undefined");
  FIRN_CHECK(
      sum.numel() == 1 && is_floating(sum.dtype()) && compute_dtype(sum.dtype()) == sum.dtype(), op,
      "sum it, in f32", "the loss is {}, not an f32 or f64 scalar", firn::describe(sum));
  FIRN_CHECK(sum.device() == store.device(), op, "move the model or the data",
             "the loss is {}, and the parameters are on {}", firn::describe(sum), store.device());
  FIRN_CHECK(sum.requires_grad(), op,
             "compute it from the parameters given to the optimizer, outside of NoGrad and Freeze",
             "the loss {} requires no gradient", firn::describe(sum));
}

void require_weight(const OptimizerImpl& impl, const Loss& loss) {
  const Tensor& w = loss.weight;
  FIRN_CHECK(w.defined() && w.numel() == 1 && compute_dtype(w.dtype()) == w.dtype() &&
                 is_floating(w.dtype()) && w.device() == impl.store.device(),
             impl.store.op(), "take the loss from a function of losses.h",
             "the loss's weight is {}, not an f32 or f64 scalar on {}",
             w.defined() ? firn::describe(w) : "undefined", impl.store.device());
}

void require_own_scale(const OptimizerImpl& impl, const char* instead) {
  FIRN_CHECK(!impl.options.scaler.defined(), impl.store.op(), fmt::format("call {}", instead),
             "its loss scale is shared with other optimizers");
}

void require_no_retry(const OptimizerImpl& impl, const char* call) {
  FIRN_CHECK(!retries(impl.options.loss_scale), impl.store.op(),
             "call run_batch() or run_cycle() with a function of the loss, or set "
             "OverflowPolicy::skip",
             "{} with OverflowPolicy::retry, which computes a cycle again", call);
}

void fail_of_function(const OptimizerImpl& impl) {
  char text[128];  // the heap may have no memory for it
  const auto end = fmt::format_to_n(text, sizeof text, "the function given to {}", impl.call.maker);
  detail::out_of_memory({text, std::min(end.size, sizeof text)});
}

void check_skips(OptimizerImpl& impl) {
  if (impl.options.max_skips == 0) return;
  const math::StepOutcome o = impl.store.last_seen();
  if (o.status != math::StepStatus::skipped_non_finite || o.skips_in_row < impl.options.max_skips ||
      o.cycle == impl.notes.complained)
    return;
  impl.notes.complained = o.cycle;
  std::string culprit = "the averaged gradient";
  if (o.culprit >= 0) {
    culprit =
        fmt::format("the gradient of {},", impl.store.label(static_cast<std::size_t>(o.culprit)));
  }
  if (o.non_finite == math::NonFinite::weight) culprit = "the loss's weight";
  if (o.non_finite == math::NonFinite::loss) culprit = "the loss";
  if (o.non_finite == math::NonFinite::learning_rate) culprit = "the learning rate";
  FIRN_CHECK(
      false, impl.store.op(),
      "this is no matter of the loss scale: look at the data, the learning rate, and the "
      "model's operations (AnomalyMode names the one)",
      "{} steps in a row were skipped, the last one because {} is not finite (loss scale {})",
      o.skips_in_row, culprit, o.loss_scale);
}

void warn_if_unreached(OptimizerImpl& impl, bool reached) {
  if (!impl.notes.unheld.empty() && is_due(impl, Warned::unheld)) {
    impl.notes.warned.first(Warned::unreached);  // that warning would say less
    warn(impl.store.op(),
         fmt::format("nothing but the optimizer holds these parameters, and no gradient reaches "
                     "them: {}",
                     impl.notes.unheld),
         "a module or parameter was assigned to after the optimizer was made, and what replaced it "
         "is not trained: make the optimizer afterwards, or copy_() values into the old parameter");
    return;
  }
  if (reached || !is_due(impl, Warned::unreached)) return;
  warn(impl.store.op(),
       fmt::format("no gradient has reached any parameter: {}", impl.store.names()),
       "compute the loss from these parameters: a copied or frozen model, detach() or NoGrad cuts "
       "the way to them");
}

void warn_of_empty_step(OptimizerImpl& impl) {
  if (!is_due(impl, Warned::empty)) return;
  warn(impl.store.op(),
       "step() was called without a backward() since the last one: it does nothing",
       "call opt.backward(loss) first; loss.backward() does not count");
}

void warn_of_dropped_calls(OptimizerImpl& impl) {
  if (impl.at.calls == 0 || impl.at.has_new_micro_step()) return;
  if (!is_due(impl, Warned::dropped)) return;
  warn(impl.store.op(),
       fmt::format("zero_grad() drops a cycle of which step() has counted {} of {} micro-steps",
                   impl.at.calls, impl.at.length_or_next(impl.options.accumulate)),
       "a step() that ends a cycle clears the gradients itself: leave zero_grad() out of the loop. "
       "flush(Partial::drop) drops a cycle without this warning");
}

void warn_if_unscaled(OptimizerImpl& impl) {
  if (!impl.notes.no_scale_chosen || !impl.reads_f16()) return;
  if (!is_due(impl, Warned::unscaled)) return;
  warn(impl.store.op(),
       "Autocast runs f32 parameters in f16, and no loss scale is set: gradients below 6e-8 become "
       "0 on their way",
       "set StepOptions::loss_scale to LossScale::dynamic(), or to LossScale::none() if that is "
       "meant; bf16 needs none");
}

}  // namespace firn::optim
