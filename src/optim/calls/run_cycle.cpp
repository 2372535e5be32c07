// Whole cycles from a function that computes a loss, with a retry if gradients overflow.
#include <functional>
#include <optional>

#include "firn/ops/losses.h"
#include "firn/runtime/rollback.h"
#include "optim/calls/scopes.h"
#include "optim/impl.h"

namespace firn::optim {
namespace {

constexpr int kMaxRetries = 64;

}  // namespace

void Optimizer::restore_on_retry(std::vector<Tensor> buffers) try {
  Impl& impl = this->impl();
  for (std::size_t i = 0; i < buffers.size(); ++i)
    FIRN_CHECK(buffers[i].defined(), impl.store.op(), "leave it out", "buffer {} is undefined", i);
  impl.notes.restored = std::move(buffers);
}
FIRN_OUT_OF_MEMORY("restore_on_retry")

StepReport Optimizer::run_cycle(std::int64_t micro_steps,
                                const std::function<Loss(std::int64_t i)>& micro_batch) try {
  Impl& impl = this->impl();
  const std::string& op = impl.store.op();
  impl.require_outside_cycle("run_cycle()");
  const auto call = [&] {
    FIRN_CHECK(micro_steps >= 1, op, "give the number of micro-batches, 1 or more",
               "{} micro-steps make no cycle", micro_steps);
    require_function(op, micro_batch, "give a function that computes a micro-batch's loss",
                     "the function of run_cycle()");
    const OthersScope others(impl, [&] { return micro_batch(micro_steps - 1); });
    const MakerScope maker(impl, "run_cycle()");
    return impl.run_cycle(micro_steps, [&](std::int64_t i) { impl.add_loss(micro_batch(i)); });
  };
  return impl.extension->whole_call(std::ref(call));
}
FIRN_OUT_OF_MEMORY("run_cycle")

StepReport Optimizer::Impl::run_cycle(std::int64_t micro_steps,
                                      const std::function<void(std::int64_t i)>& micro_step) {
  require_no_cycle();
  const LossScale& scale = options.loss_scale;
  const bool retry = retries(scale);
  if (retry)
    runtime::refuse_capture(store.op().c_str(), store.device(),
                            "whether a cycle is computed again is decided by the host");
  std::optional<RollbackPoint> start;
  if (retry) start.emplace({Rollback::random, Rollback::statistics, Rollback::data});
  for (int attempt = 0;; ++attempt) {
    StepReport report = whole_cycle(
        [&] {
          if (attempt > 0) start->roll_back();
          about_to_change_restored(*this);
          hooks.now_and_at_replay([micro_steps](Impl& i) {
            about_to_change_cycle(i);
            i.at.length = micro_steps;
          });
          extension->run_micro_steps(micro_steps, micro_step);
        },
        [&] {
          if (start) start->roll_back();
        });
    if (!retry || attempt == kMaxRetries || report.applied() ||
        report.non_finite() != NonFinite::gradient)
      return report;
    // At the minimum scale the next try would overflow like this one.
    if (scaler.scale() >= report.loss_scale() && report.loss_scale() <= scale.options().min)
      return report;
  }
}

}  // namespace firn::optim
