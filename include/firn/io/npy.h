// Reading and writing single arrays in NumPy's .npy format.
#pragma once

#include <string>

#include "firn/tensor.h"

namespace firn::io {

/// Reads an array that numpy.save() wrote, onto the CPU, in format version 1.0, 2.0 or 3.0
/// (numpy.lib.format): f16, f32, f64, i8 to i64, u8 to u32 or bool, in either byte order. An array
/// in Fortran order becomes a transposed view, whose strides are not row-major.
///
/// Throws IoError, naming the byte, for another dtype, a header that is not a dictionary of
/// 'descr', 'fortran_order' and 'shape', more than 8 axes, elements that do not fill the file
/// exactly, and a bool that is neither 0 nor 1. bfloat16 is not a dtype of NumPy: it arrives as
/// 'V2' and is refused.
Tensor read_npy(const std::string& path);

/// Writes a tensor, from any device, as a row-major little-endian array of version 1.0. The file
/// replaces an old one as save_safetensors() does it. Throws Error for bf16, which NumPy does not
/// have, and for an undefined tensor, and IoError if the file cannot be written.
void write_npy(const std::string& path, const Tensor& t);

}  // namespace firn::io
