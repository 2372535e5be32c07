// How well a warp's accesses to device memory fall into 32-byte sectors, by source line: with
// CUSIM_COALESCING=1 in check mode, printed when the program ends.
#pragma once

#include <cstdint>

#include "check.h"

namespace cusim::check {

void note_coalescing(const Access& access, std::uint32_t thread);
/// The block ends, and its warps' requests with it.
void end_requests();

}  // namespace cusim::check
