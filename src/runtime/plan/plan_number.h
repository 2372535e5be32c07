// The number of the plan that a thread makes. Changes of a plan on the host count within that plan
// alone.
#pragma once

#include <cstdint>

namespace firn::runtime {

/// Returns the number of the plan that this thread makes, from 1, or 0 if it makes none.
/// SkipKernels alone (firn/runtime/kernel_support.h) does not make a plan.
std::uint32_t plan_number() noexcept;

}  // namespace firn::runtime
