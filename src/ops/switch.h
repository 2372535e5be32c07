// Switches of the process (kernels/settings/settings.h), as public functions set them.
#pragma once

#include <atomic>

#include "firn/error.h"
#include "firn/runtime/kernel_support.h"

namespace firn::ops {

/// Sets a switch. In a plan of a step it holds until the plan's end.
inline void set_switch(std::atomic<bool>& which, bool on) noexcept {
  if (runtime::planning()) {
    try {
      runtime::at_dry_end(&which, [&which, before = which.load()] { which = before; });
    } catch (const Error&) {  // without memory to put it back, it stays
      return;
    }
  }
  which = on;
}

}  // namespace firn::ops
