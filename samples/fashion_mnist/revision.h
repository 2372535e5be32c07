// Which firn this is; the values are written at build time by revision.cmake.
#pragma once

namespace sample {

extern const char* const kVersion;   ///< "0.1.0"
extern const char* const kRevision;  ///< of the source tree, from git; "unknown" elsewhere

}  // namespace sample
