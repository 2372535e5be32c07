// Tickets of launches.
#include "kernels/cuda/device/tickets.cuh"

#include <map>
#include <mutex>
#include <utility>

#include "firn/runtime/kernel_support.h"

namespace firn::kernels::cuda {
namespace {

/// Slots below this are for streams, the others for captured launches. Both wrap around.
constexpr unsigned kStreamSlots = 1024;

}  // namespace

unsigned ticket_slot(Stream stream) {
  static std::mutex mutex;
  static std::map<std::pair<int, void*>, unsigned> slots;
  static unsigned captured = 0;
  const std::lock_guard lock(mutex);
  if (runtime::capturing(stream.device)) {
    return kStreamSlots + captured++ % (kTickets - kStreamSlots);
  }
  const auto [at, isnew] = slots.try_emplace({stream.device.index, stream.handle},
                                             static_cast<unsigned>(slots.size()) % kStreamSlots);
  return at->second;
}

}  // namespace firn::kernels::cuda
