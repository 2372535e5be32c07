// What DLPack's own header says of its structs. It and firn's declarations have the same names, so
// each is seen by a file of its own.
#pragma once

#include <cstddef>
#include <vector>

namespace firn::testing {

/// Sizes and offsets of what DLPack has had since before 1.0.
template <class Plain, class Managed>
std::vector<std::size_t> layout_of_old_structs() {
  return {sizeof(Plain),
          offsetof(Plain, data),
          offsetof(Plain, device),
          offsetof(Plain, ndim),
          offsetof(Plain, dtype),
          offsetof(Plain, shape),
          offsetof(Plain, strides),
          offsetof(Plain, byte_offset),
          sizeof(Managed),
          offsetof(Managed, dl_tensor),
          offsetof(Managed, manager_ctx),
          offsetof(Managed, deleter)};
}
template <class Versioned>
std::vector<std::size_t> layout_of_new_struct() {
  return {sizeof(Versioned),
          offsetof(Versioned, version),
          offsetof(Versioned, manager_ctx),
          offsetof(Versioned, deleter),
          offsetof(Versioned, flags),
          offsetof(Versioned, dl_tensor)};
}

/// The same of dlpack/dlpack.h; empty if it is not installed.
std::vector<std::size_t> official_old_layout();
/// Empty also if it is older than 1.0.
std::vector<std::size_t> official_new_layout();
/// CPU, CUDA, pinned; int, uint, float, bool, bfloat; read-only, copied. Empty as
/// official_new_layout() is.
std::vector<long> official_numbers();

}  // namespace firn::testing
