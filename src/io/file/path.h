// Checks of paths, for reading and writing.
#pragma once

#include <cstddef>
#include <string>

#include "firn/error.h"

namespace firn::io {

/// Throws IoError if `path`, the name of a file, is empty.
inline void check_not_empty(const char* op, const std::string& path) {
  if (path.empty()) throw IoError(op, path, "the path is empty", "name a file");
}

/// Throws IoError if `path` has a NUL character, since the system would take the text before it for
/// the whole name.
inline void check_path(const char* op, const std::string& path) {
  const std::size_t at = path.find('\0');
  if (at == std::string::npos) return;
  throw IoError(op, path.substr(0, at),
                "a NUL character follows this part of the path, which has " +
                    std::to_string(path.size()) + " characters",
                "give a path without NUL characters");
}

}  // namespace firn::io
