// Compiled apart: a definition for all tests would keep presets from sharing what they compile.
#include "support/device/slow_device.h"

#include "firn/device.h"

namespace firn::testing {

bool on_slow_device() {
#ifdef FIRN_SLOW_SIMULATOR
  return default_device().is_cuda();
#else
  return false;
#endif
}

}  // namespace firn::testing
