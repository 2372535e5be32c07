// Whole cycles from a function that computes a loss, and their retry if gradients overflow.
#include <algorithm>

#include "firn/losses.h"
#include "optim/optimizer_impl.h"
#include "optim/retry_point.h"

namespace firn::optim {
namespace {

constexpr int kMaxRetries = 64;

}  // namespace

void Optimizer::restore_on_retry(std::vector<Tensor> buffers) {
  for (std::size_t i = 0; i < buffers.size(); ++i)
    FIRN_CHECK(buffers[i].defined(), own().store.op(), "", "buffer {} is undefined", i);
  own().restored = std::move(buffers);
}

void Optimizer::require_no_cycle() const {
  const std::string& op = own().store.op();
  FIRN_CHECK(own().at.micro_steps == 0 && own().at.calls == 0, op,
             "end it with step() or flush(), or drop it with zero_grad()",
             "a cycle is under way: it has {} micro-steps", own().at.micro_steps);
  check_ready();
  FIRN_CHECK(!own().options.scaler.defined(), op, "call backward() of each and step_all()",
             "its loss scale is shared with other optimizers");
}

StepReport Optimizer::run_cycle(std::int64_t micro_steps,
                                const std::function<Loss(std::int64_t i)>& micro_batch) try {
  FIRN_CHECK(micro_steps >= 1, own().store.op(), "", "{} micro-steps make no cycle", micro_steps);
  require_no_cycle();
  const LossScale& scale = own().options.loss_scale;
  const bool retry = scale.kind() == LossScale::Kind::dynamic &&
                     scale.options().on_overflow == OverflowPolicy::retry;
  if (retry)
    runtime::refuse_capture(own().store.op().c_str(), own().store.device(),
                            "whether a cycle is computed again is decided by the host");
  std::optional<RetryPoint> start;
  if (retry) start.emplace(own().restored);
  for (int attempt = 0;; ++attempt) {
    try {
      own().on_host([micro_steps](Impl& impl) { impl.at.length = micro_steps; });
      for (std::int64_t i = 0; i < micro_steps; ++i) backward(micro_batch(i));
    } catch (...) {
      zero_grad();
      throw;
    }
    StepReport report = end_cycle();
    if (!retry || attempt == kMaxRetries || report.applied() ||
        report.non_finite() != NonFinite::gradient)
      return report;
    // At the minimum the next try would end as this one did.
    if (loss_scale() >= report.loss_scale() && report.loss_scale() <= scale.options().min)
      return report;
    start->restore();
  }
}
FIRN_OUT_OF_MEMORY("run_cycle")

StepReport Optimizer::run_batch(
    std::int64_t samples, std::int64_t micro_batch,
    const std::function<Loss(std::int64_t first, std::int64_t last)>& loss) {
  const std::string& op = own().store.op();
  FIRN_CHECK(samples >= 1 && micro_batch >= 1, op, "",
             "{} samples cannot be cut into micro-batches of {}", samples, micro_batch);
  return run_cycle((samples + micro_batch - 1) / micro_batch, [&](std::int64_t i) {
    return loss(i * micro_batch, std::min(samples, (i + 1) * micro_batch));
  });
}

}  // namespace firn::optim
