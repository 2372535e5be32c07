// Parts that this build of firn contains.
#pragma once

namespace firn {

#ifdef FIRN_HAS_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

}  // namespace firn
