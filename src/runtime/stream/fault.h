// Bad values that only a kernel on a device can see, as an index outside its axis. The kernel notes
// the first one in a record and goes on (its result for that element is NaN or left out, see the
// contract); the host throws the error at the next point where it waits for the device anyway. So a
// check costs no synchronisation, works in a captured graph, and leaves the device usable.
#pragma once

#include <cstdint>

#include "firn/device.h"

namespace firn::memory {

/// Filled in by one thread of one kernel. Lives in pinned host memory that the device can write.
struct Fault {
  static constexpr unsigned kNone = 0;
  static constexpr unsigned kClaimed = 1;   ///< somebody is filling it in
  static constexpr unsigned kComplete = 2;  ///< stored last, visible to the host with the rest

  unsigned raised;        ///< one of the above
  const char* op;         ///< a string literal of the host's
  const char* what;       ///< what is wrong with the value, as "index": a literal too
  std::int64_t position;  ///< of the value in its tensor
  std::int64_t value;
  std::int64_t bound;  ///< it should be in [0, bound)
};

/// The device's record, to be handed to kernels: see raise_fault in kernels/cuda/device/fault.cuh.
Fault* fault_record(Device device);

/// After the host has waited for the device: throws Error with what was noted, once, and clears the
/// record. Called by synchronize() and by copies to the host.
void throw_fault(Device device);

}  // namespace firn::memory
