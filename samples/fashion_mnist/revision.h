// The version of firn; revision.cmake writes the values at build time.
#pragma once

namespace sample {

extern const char* const kVersion;   ///< "0.1.0"
extern const char* const kRevision;  ///< of the source tree, from git; "unknown" elsewhere

}  // namespace sample
