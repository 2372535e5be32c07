// IDX files: the format of MNIST and its descendants.
#pragma once

#include <string>

#include "firn/tensor.h"

namespace firn::data {

/// Reads an IDX file, plain or gzip (told apart by content, not by name), as a CPU tensor. It has
/// the shape and dtype that the header declares: u8, i8, i16, i32, f32 or f64. Memory is accounted
/// to Owner::data.
///
/// Format (LeCun, Cortes & Burges, "The MNIST database"): two zero bytes, a type byte, the
/// number of axes, one big-endian u32 per axis, then the elements, big-endian, in row-major order.
///
/// Throws IoError if the file cannot be read or is not IDX. Also throws IoError if it declares more
/// than it can hold, is shorter or longer than it declares, or fails gzip's checks. The error names
/// the file, the byte offset, the expected and the found value. Never allocates more than the
/// header declares, and allocates nothing if the file is too small to hold that.
Tensor read_idx(const std::string& path);

}  // namespace firn::data
