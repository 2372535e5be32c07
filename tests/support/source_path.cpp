#include "support/source_path.h"

namespace firn::testing {

std::string source_path(const std::string& relative) { return FIRN_SOURCE_DIR "/" + relative; }

}  // namespace firn::testing
