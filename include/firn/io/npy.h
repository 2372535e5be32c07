// Reading and writing single arrays in NumPy's .npy format.
#pragma once

#include <string>

#include "firn/tensor.h"

namespace firn::io {

/// Reads an array that numpy.save() wrote, onto the CPU. It reads format versions 1.0, 2.0 and 3.0
/// (numpy.lib.format) with f16, f32, f64, i8 to i64, u8 to u32 or bool, in either byte order. An
/// array in Fortran order becomes a transposed view, whose strides are not row-major.
///
/// Throws IoError, naming the byte, for another dtype or for more than 8 axes. Throws it if the
/// header is not a dictionary of 'descr', 'fortran_order' and 'shape', or the elements do not fill
/// the file exactly. Throws it for a bool that is neither 0 nor 1. NumPy has no bfloat16: such an
/// array has the dtype 'V2' and is refused.
Tensor read_npy(const std::string& path);

/// Writes a tensor, from any device, as a row-major little-endian array of version 1.0. The file
/// replaces an old one as save_safetensors() does it. Throws Error for an undefined tensor, and for
/// bf16, which NumPy does not have. Throws IoError if the file cannot be written.
void write_npy(const std::string& path, const Tensor& t);

}  // namespace firn::io
