#include "runtime/stream/fault.h"

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/immortal.h"
#include "firn/runtime/kernel_support.h"
#include "runtime/cuda/cuda.h"
#include "runtime/memory/allocator.h"

namespace firn {
namespace {

using runtime::Fault;

struct Records {
  std::array<std::atomic<Fault*>, memory::cuda::kMaxDevices> of{};
  std::mutex mutex;
};
Records& records() noexcept {
  static Immortal<Records> all;
  return all.get();
}

/// The WaitChecks that are alive.
struct Checks {
  struct Check {
    Device device;
    std::function<void()> call;
  };
  std::recursive_mutex mutex;
  std::map<const runtime::WaitCheck*, Check> all;
  std::atomic<bool> any{false};
};
Checks& checks() noexcept {
  static Immortal<Checks> all;
  return all.get();
}

void call_checks(Device device) {
  if (!checks().any.load(std::memory_order_relaxed)) [[likely]]
    return;
  const std::lock_guard lock(checks().mutex);
  for (const auto& [owner, check] : checks().all)
    if (check.device == device) check.call();
}

}  // namespace

namespace runtime {

WaitCheck::WaitCheck(Device device, std::function<void()> check) {
  require_function("WaitCheck", check, "give a function that throws if the work has failed");
  const std::lock_guard lock(checks().mutex);
  checks().all[this] = {device, std::move(check)};
  checks().any.store(true, std::memory_order_relaxed);
}

WaitCheck::~WaitCheck() {
  const std::lock_guard lock(checks().mutex);
  checks().all.erase(this);
  checks().any.store(!checks().all.empty(), std::memory_order_relaxed);
}

Fault* fault_record(Device device) {
  auto& place = records().of[static_cast<std::size_t>(device.index)];
  if (Fault* record = place.load(std::memory_order_acquire)) [[likely]]
    return record;
  const std::lock_guard lock(records().mutex);
  if (!place.load()) {
    require_device("fault_record", device);
    // Zeroed, and at the same address for the host and for devices.
    place.store(static_cast<Fault*>(memory::pinned_allocate(sizeof(Fault))),
                std::memory_order_release);
  }
  return place.load();
}

}  // namespace runtime

namespace memory {

void throw_fault(Device device) {
  if (device.is_cpu()) return;
  call_checks(device);
  Fault* record = records().of[static_cast<std::size_t>(device.index)].load();
  if (!record) return;  // no kernel has received the record
  const std::atomic_ref<unsigned> raised(record->raised);
  if (raised.load(std::memory_order_acquire) != Fault::kComplete) [[likely]]
    return;
  const Fault fault = *record;
  raised.store(Fault::kNone, std::memory_order_release);
  throw Error(fault.op,
              fault.bound < 0
                  ? fmt::format("{}, found on {}", fault.what, to_string(device))
                  : fmt::format("{} {} at position {} is not in [0, {}), found on {}", fault.what,
                                fault.value, fault.position, fault.bound, to_string(device)),
              "the device reports it late: results since then are not to be used");
}

}  // namespace memory
}  // namespace firn
