// Moved to firn/kernel_support.h; these names go away.
#pragma once

#include "firn/kernel_support.h"

namespace firn::memory {
using runtime::capturing;
using runtime::note_kernel;
using runtime::on_abandon;
using runtime::on_replay;
using runtime::refuse_capture;
using runtime::reserve_random;
}  // namespace firn::memory
