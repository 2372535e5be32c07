// The facts that CMake and the compiler know of this build. The build writes the file with
// revision().
#include <string>

#include "environment/parts.h"

namespace firn::environment_parts {

Environment::Build build() {
  Environment::Build b;
  b.version = version();
  b.revision = revision();
#if defined(__clang__)
  b.compiler = "clang++ " __clang_version__;
#else
  b.compiler = "g++ " __VERSION__;
#endif
  while (b.compiler.ends_with(' ')) b.compiler.pop_back();
  b.type = FIRN_BUILD_TYPE;
  b.native = FIRN_BUILT_NATIVE;
  b.shared = FIRN_BUILT_SHARED;
  b.sanitizers = FIRN_BUILT_SANITIZERS;
  return b;
}

}  // namespace firn::environment_parts
