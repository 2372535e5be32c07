// The version of firn.
#pragma once

namespace firn {

/// "0.1.0".
const char* version() noexcept;

}  // namespace firn
