// A step by shapes alone: kernels do nothing, models of the allocators answer, and what the step
// changes on the host is put back.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_set>
#include <vector>

#include "base/program_seed.h"
#include "base/thread/cpus.h"
#include "firn/device.h"
#include "firn/ref.h"
#include "firn/runtime/rollback.h"
#include "runtime/plan/model.h"

namespace firn::memory {

/// While alive, this thread runs dry: runtime::dry_run(). The destructor puts things back, the
/// latest change first.
class DryRun {
 public:
  /// For a step on `device`; what it allocates on the CPU is modelled as well. Throws Error in
  /// another dry run and while this thread captures a graph.
  explicit DryRun(Device device);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  Model& model() const noexcept { return *models_.back(); }
  /// Different from those of other dry runs.
  std::uint32_t number() const noexcept { return number_; }
  /// Implements runtime::at_dry_end().
  void at_end(const void* what, std::function<void()> put_back);

 private:
  void leave() noexcept;

  /// What a step may set of the process.
  struct Settings {
    ProgramSeed seed = program_seed();
    int threads = chosen_threads();
    void put_back() const noexcept;
  };

  const std::uint32_t number_;
  const Settings before_;
  std::vector<Ref<Model>> models_;  ///< that of the CPU first
  std::vector<std::function<void()>> changes_;
  std::unordered_set<const void*> known_;
};

}  // namespace firn::memory
