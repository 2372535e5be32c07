// The host's part of Fault (firn/runtime/kernel_support.h).
#pragma once

#include "firn/device.h"

namespace firn::memory {

/// Calls the device's WaitChecks. If a kernel recorded a fault, clears the record and throws Error.
/// synchronize() and copies to the host call it after they have waited for the device.
void throw_fault(Device device);

}  // namespace firn::memory
