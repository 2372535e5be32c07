// The header of a .npy file: a Python dictionary, of which only what NumPy writes is understood.
#pragma once

#include <cstdint>
#include <string>

#include "firn/dtype.h"
#include "firn/shape.h"
#include "io/file/input_file.h"

namespace firn::io {

struct NpyHeader {
  DType dtype = DType::f32;
  int unsigned_bytes = 0;  ///< 2 or 4: of u2 or u4, which no dtype is; then `dtype` has no meaning
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
};

/// Whether unsigned numbers of 2 and 4 bytes are refused, as every type that no dtype is, or read.
enum class NpyUnsigned : bool { refused, read };

/// Reads the beginning of a file, up to the elements. Throws IoError, naming the byte of the file.
NpyHeader read_npy_header(const char* op, InputFile& in, NpyUnsigned words = NpyUnsigned::refused);

/// The whole beginning of a file of version 1.0, up to the elements: 64 bytes or a multiple. Throws
/// Error for bf16.
std::string npy_header(const char* op, DType dtype, const Shape& shape);

}  // namespace firn::io
