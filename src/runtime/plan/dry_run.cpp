#include "runtime/plan/dry_run.h"

#include <atomic>
#include <exception>
#include <optional>
#include <utility>

#include "base/check.h"
#include "firn/memory/plan.h"
#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "runtime/plan/plan_number.h"
#include "runtime/rollback/silence.h"

namespace firn {
namespace memory {
namespace {
/// Counts the plans of the process from 1, and over again after 2^32.
std::uint32_t next_number() noexcept {
  static std::atomic<std::uint32_t> made{0};
  const std::uint32_t number = made.fetch_add(1, std::memory_order_relaxed) + 1;
  return number > 0 ? number : next_number();
}
}  // namespace

DryRun::DryRun(Device device) : number_(next_number()) {
  FIRN_CHECK(!thread_context.plan, "plan_memory", "plan one step after the other",
             "this thread is planning a step already");
  runtime::refuse_capture("plan_memory", device, "a step that is captured runs later");
  models_.push_back(Model::of(Device::cpu()));
  if (device.is_cuda()) models_.push_back(Model::of(device));
  for (const Ref<Model>& model : models_) Model::exchange_current(model->device(), model.get());
  thread_context.plan = this;
  thread_context.dry_run = true;
}

DryRun::~DryRun() {
  // Changes are undone while the run is still dry, so that nothing is written.
  while (!changes_.empty()) {
    try {
      changes_.back()();
    } catch (const std::exception&) {  // NOLINT: without memory for it, the others are put back
    }
    changes_.pop_back();
  }
  before_.put_back();
  leave();
  while (ended_scopes_) {
    const auto scope = std::exchange(ended_scopes_, std::move(ended_scopes_->next));
    scope->after_plan();
  }
}

void DryRun::Settings::put_back() const noexcept {
  // Other threads may draw meanwhile, and take numbers. So a seed that stays is not set.
  if (program_seed().seed != seed.seed) set_program_seed(seed);
  if (chosen_threads() != threads) set_num_threads(threads);
}

void DryRun::leave() noexcept {
  thread_context.dry_run = false;
  thread_context.plan = nullptr;
  for (const Ref<Model>& model : models_) Model::exchange_current(model->device(), nullptr);
}

void DryRun::at_end(const void* what, std::function<void()> put_back) {
  if (known_.contains(what)) return;
  changes_.push_back(std::move(put_back));
  known_.insert(what);
}

void DryRun::after(std::shared_ptr<runtime::AfterPlan> end) noexcept {
  std::shared_ptr<runtime::AfterPlan>* at = &ended_scopes_;
  while (*at) at = &(*at)->next;
  *at = std::move(end);
}

}  // namespace memory

bool runtime::planning() noexcept { return thread_context.plan != nullptr; }
std::uint32_t runtime::plan_number() noexcept {
  return thread_context.plan ? thread_context.plan->number() : 0;
}

void runtime::at_dry_end(const void* what, std::function<void()> put_back) try {
  require_function("at_dry_end", put_back, "give a function that puts the change back");
  if (thread_context.plan) thread_context.plan->at_end(what, std::move(put_back));
}
FIRN_OUT_OF_MEMORY("plan_memory")

bool runtime::at_end_of_plan(std::shared_ptr<AfterPlan> end) noexcept {
  if (!thread_context.plan) return false;
  thread_context.plan->after(std::move(end));
  return true;
}

MemoryPlan plan_memory(const std::function<void()>& step, Device device) try {
  require_device("plan_memory", device);
  require_function("plan_memory", step, "give a function", "the step");
  MemoryPlan plan;
  // Outer points would copy values that were not computed, and put those back later.
  const memory::SilentRollback silence;
  memory::DryRun run(device);
  {
    RollbackPoint start({Rollback::random, Rollback::data});
    struct Undo {
      RollbackPoint& point;
      ~Undo() {
        try {
          point.roll_back();
        } catch (const std::exception&) {  // NOLINT: the plan throws already
        }
      }
    } const undo{start};
    step();
    start.roll_back();  // here it may throw
  }
  plan.report = run.model().report();
  plan.peak = plan.report.stats.total.peak;
  return plan;
}
FIRN_OUT_OF_MEMORY("plan_memory")

}  // namespace firn
