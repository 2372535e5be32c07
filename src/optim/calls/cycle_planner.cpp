#include "optim/calls/cycle_planner.h"

#include <algorithm>
#include <utility>

#include "firn/ops/losses.h"
#include "firn/runtime/rollback.h"
#include "optim/calls/scopes.h"
#include "optim/impl.h"

namespace firn::optim {

StepReport run_in_parts(Optimizer& optimizer, std::int64_t samples, std::int64_t size,
                        const LossOf& loss, const std::function<void(std::int64_t)>& between) {
  auto& impl = OptimizerAccess::impl(optimizer);
  impl.require_no_cycle();
  const BatchScope batch(impl, samples);
  return impl.extension->run_batch(samples, size, loss, between);
}

std::string refusal_to_split(const std::string& layer) {
  return fmt::format(
      "{}, so smaller micro-batches would compute "
      "something else: allow it with {{.split_statistics = true}}, let blocks compute again "
      "(optim::plan_within()), or use nn::convert_to_group_norm(net, groups)",
      layer);
}

CyclePlanner::CyclePlanner(Optimizer& optimizer, std::int64_t samples, std::size_t budget,
                           bool split_statistics, const LossOf& loss)
    : optimizer_(optimizer),
      device_(OptimizerAccess::impl(optimizer).store.device()),
      samples_(samples),
      chunk_(std::min(samples, OptimizerAccess::impl(optimizer).options.exact.chunk)),
      budget_(budget),
      split_statistics_(split_statistics),
      loss_(loss) {}

bool CyclePlanner::fits(std::int64_t parts) {
  const std::int64_t size = size_of(parts);
  const autograd::CouplingScope coupling;
  const MemoryPlan plan = plan_memory(
      [&] {
        const RollbackPoint start;  // counts the memory of its copies
        run_in_parts(optimizer_, samples_, size, loss_);
      },
      device_);
  last_ = {chunk_ > 0 ? chunk_ : size, plan.peak, plan.report.peak_op, coupling.layer};
  if (plan.peak > budget_) return false;
  fitting_ = last_;
  return true;
}

std::int64_t CyclePlanner::largest(std::int64_t least) {
  if (fits(1)) return samples_;
  const std::int64_t most = samples_ / least;  // number of parts
  if (may_not_split() || most == 1 || chunk_ > 0) return 0;
  // `few` parts do not fit, `enough` parts do.
  std::int64_t few = 1, enough = 2;
  while (enough < most && !fits(enough)) few = std::exchange(enough, 2 * enough);
  enough = std::min(enough, most);
  if (enough == most && !fits(enough)) return 0;
  while (enough - few > 1) {
    const std::int64_t middle = few + (enough - few) / 2;
    (fits(middle) ? enough : few) = middle;
  }
  return size_of(enough);
}

std::string CyclePlanner::why_not() const {
  if (may_not_split())
    return fmt::format("a batch of {} samples has a peak of {} bytes, and the budget is {}; {}",
                       samples_, last_.peak, budget_, refusal_to_split(last_.layer));
  return fmt::format(
      "micro-batches of {} have a peak of {} bytes on {} (during {}), and the budget is {}",
      last_.size == 1 ? "one sample" : fmt::format("{} samples", last_.size), last_.peak, device_,
      last_.op, budget_);
}

}  // namespace firn::optim
