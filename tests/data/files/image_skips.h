// Tests that need libpng or libjpeg say so if firn was built without.
#pragma once

#include "data/files/image_bytes.h"
#include "support/catch.h"

namespace firn::test {

/// `reads`, with a warning for the log if not.
inline bool or_warn(bool reads, const char* library) {
  if (!reads) WARN("skipped: firn was built without " << library);
  return reads;
}
inline bool reads_png_or_warn() { return or_warn(reads_png(), "libpng"); }
inline bool reads_jpeg_or_warn() { return or_warn(reads_jpeg(), "libjpeg"); }

}  // namespace firn::test
