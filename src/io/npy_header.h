// The header of a .npy file: a Python dictionary, of which only what NumPy writes is understood.
#pragma once

#include <cstdint>
#include <string>

#include "firn/dtype.h"
#include "firn/shape.h"

namespace firn::io {

struct NpyHeader {
  DType dtype = DType::f32;
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
};

/// Parses the text of a header that begins at byte `offset` of the file. Throws IoError, naming the
/// byte of the file.
NpyHeader parse_npy_header(const char* op, const std::string& path, const std::string& text,
                           std::uint64_t offset);

/// The whole beginning of a file of version 1.0, up to the elements: 64 bytes or a multiple. Throws
/// Error for bf16.
std::string npy_header(const char* op, DType dtype, const Shape& shape);

}  // namespace firn::io
