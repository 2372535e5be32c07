#include "firn/version.h"

namespace firn {

const char* version() noexcept { return FIRN_VERSION; }

}  // namespace firn
