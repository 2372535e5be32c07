// Which plan of a step a thread makes: what a plan changes on the host counts within that plan
// alone.
#pragma once

#include <cstdint>

namespace firn::runtime {

/// The number of the plan that this thread makes, from 1; 0: it makes none. SkipKernels alone
/// (firn/runtime/kernel_support.h) is no plan.
std::uint32_t plan_number() noexcept;

}  // namespace firn::runtime
