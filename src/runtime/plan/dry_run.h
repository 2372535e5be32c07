// A step by shapes alone: kernels do nothing, models of the allocators answer, and the step's
// changes on the host are undone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_set>
#include <vector>

#include "base/program_seed.h"
#include "base/thread/cpus.h"
#include "firn/device.h"
#include "firn/ref.h"
#include "firn/runtime/rollback.h"
#include "runtime/plan/after_plan.h"
#include "runtime/plan/model.h"

namespace firn::memory {

/// While alive, this thread runs dry: runtime::dry_run() is true. The destructor puts things back,
/// the latest change first, and then ends the scopes that have ended within the run.
class DryRun {
 public:
  /// Begins a dry run of a step on `device`. Allocations on the CPU are modelled as well. Throws
  /// Error in another dry run and while this thread captures a graph.
  explicit DryRun(Device device);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  Model& model() const noexcept { return *models_.back(); }
  /// Number that differs from those of other dry runs.
  std::uint32_t number() const noexcept { return number_; }
  /// Implements runtime::at_dry_end().
  void at_end(const void* what, std::function<void()> put_back);
  /// Implements runtime::at_end_of_plan().
  void after(std::shared_ptr<runtime::AfterPlan> end) noexcept;

 private:
  void leave() noexcept;

  /// Settings of the process that a step may change.
  struct Settings {
    ProgramSeed seed = program_seed();
    int threads = chosen_threads();
    void put_back() const noexcept;
  };

  const std::uint32_t number_;
  const Settings before_;
  std::vector<Ref<Model>> models_;  ///< the CPU's model first
  std::vector<std::function<void()>> changes_;
  std::unordered_set<const void*> known_;
  std::shared_ptr<runtime::AfterPlan> ended_scopes_;  ///< a list, the first one first
};

}  // namespace firn::memory
