// The peak of a kernel's workspace follows from shapes and the number of threads, never from
// timing; and a dry run has the same.
#include <atomic>
#include <thread>

#include "dry_run/calls.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/workspace.h"
#include "kernels/settings/settings.h"
#include "support/catch.h"
#include "support/dry_run.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

using kernels::cpu::Slot;

/// While alive, another thread keeps the pool busy, so that kernels of this thread run alone.
class BusyPool {
 public:
  BusyPool()
      : other_([this] {
          while (!done_) {
            kernels::cpu::parallel_for(4, kernels::cpu::kParallelWork, [&](std::int64_t) {
              for (int i = 0; i < 2000 && !done_; ++i) rounds_.fetch_add(1);
            });
          }
        }) {}
  ~BusyPool() {
    done_ = true;
    other_.join();
  }
  BusyPool(const BusyPool&) = delete;
  BusyPool& operator=(const BusyPool&) = delete;

 private:
  std::atomic<bool> done_{false};
  std::atomic<std::int64_t> rounds_{0};
  std::thread other_;
};

TEST_CASE("the workspace of a kernel has the same peak in every run", "[host][training]") {
  const DType dtype = GENERATE(f32, f16);
  const int threads = GENERATE(2, 3);
  const Threads scope(threads);
  for (const LargeCall& call : large_calls(dtype)) {
    INFO(call.name << " in " << to_string(dtype) << " on " << threads << " threads");
    const auto workspace = [&] { return footprint_of([&] { call.run(); }).workspace(); };
    const std::size_t first = workspace();
    for (int i = 1; i < 20; ++i) REQUIRE(workspace() == first);
    const BusyPool pool;
    for (int i = 0; i < 5; ++i) REQUIRE(workspace() == first);
  }
  CHECK(Slot::overflows() == 0);
}

TEST_CASE("large operations in a dry run allocate the same and write nothing", "[long]") {
  const DType dtype = GENERATE(f32, f64, f16, bf16);
  const Threads scope(default_device().is_cpu() ? GENERATE(1, 2, 3) : 1);
  int compared = 0;
  for (const LargeCall& call : large_calls(dtype))
    compared += check_dry_run(
        call.name + " in " + to_string(dtype), [&] { return call.run(); }, call.operands);
  CHECK(compared > 60);
}

TEST_CASE("products that must be batch-invariant have the same peak in a dry run", "[host]") {
  const Threads scope(GENERATE(1, 3));
  require_batch_invariance(true);
  for (const DType dtype : {f32, f64}) {
    for (const LargeCall& call : large_calls(dtype))
      if (call.name.starts_with("matmul"))
        check_dry_run(
            call.name, [&] { return call.run(); }, call.operands);
  }
  require_batch_invariance(false);
}

}  // namespace
}  // namespace firn::testing
