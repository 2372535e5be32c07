// The host's half of Fault (firn/kernel_support.h).
#pragma once

#include "firn/device.h"

namespace firn::memory {

/// After the host has waited for the device: throws Error with the fault that a kernel recorded,
/// once, and clears the record. synchronize() and copies to the host call it.
void throw_fault(Device device);

}  // namespace firn::memory
