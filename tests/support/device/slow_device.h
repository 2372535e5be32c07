// Loops over many settings, which take minutes on a simulator that is slowed down.
#pragma once

namespace firn::testing {

/// Whether kernels of the default device run on the simulator with checks or sanitizers.
bool on_slow_device();

/// The step of a loop over settings: 1, and n on a slow device.
inline int fewer(int n) { return on_slow_device() ? n : 1; }

}  // namespace firn::testing
