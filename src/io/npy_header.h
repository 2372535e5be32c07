// The header of a .npy file: a Python dictionary. Only the forms that NumPy writes are understood.
#pragma once

#include <cstdint>
#include <string>

#include "firn/dtype.h"
#include "firn/shape.h"
#include "io/file/input_file.h"

namespace firn::io {

struct NpyHeader {
  DType dtype = DType::f32;
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
};

/// Reads the beginning of a file, up to the elements. Throws IoError, naming the byte of the file.
NpyHeader read_npy_header(const char* op, InputFile& in);

/// Returns the beginning of a file of version 1.0, up to the elements, in a multiple of 64 bytes.
/// Throws Error for bf16.
std::string npy_header(const char* op, DType dtype, const Shape& shape);

}  // namespace firn::io
