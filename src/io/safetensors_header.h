// The header of a safetensors file: as much JSON as the format needs, read without trusting it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "firn/dtype.h"
#include "firn/shape.h"

namespace firn::io {

/// One tensor as the header describes it.
struct Entry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;  ///< of its bytes, counted from the end of the header
};

/// Reads a header; `path` is for errors. Throws IoError, naming the byte within the header, unless
/// it is an object of tensors and of metadata, with each name once, dtypes that firn has, and sizes
/// that fit into 62 bits. That the tensors lie where they should is for the caller to check.
std::vector<Entry> parse_header(const std::string& path, std::string_view json);

}  // namespace firn::io
