// Elements of a file as a tensor.
#pragma once

#include <cstdint>

#include "firn/tensor.h"
#include "io/file/input_file.h"

namespace firn::io {

/// Returns the elements from byte `begin` of the file on. They are a part of `map`, the mapped
/// file, unless that is null or they are not aligned to their dtype in the file: then they are
/// read. The file must have them. Throws IoError, and OutOfMemory in the name of `op`.
Tensor file_tensor(const char* op, const InputFile& file, const Ref<Storage>& map,
                   std::uint64_t begin, const Shape& shape, DType dtype);

}  // namespace firn::io
