// A safetensors file before it is written: the order of its tensors, and its header.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "firn/io/safetensors.h"

namespace firn::io {

struct SafetensorsLayout {
  std::vector<const NamedTensor*> order;  ///< in the order of their bytes
  std::string header;
};

/// Throws Error, naming `op`, for tensors and names that load_safetensors() would refuse.
void check_names(const char* op, std::span<const NamedTensor> tensors,
                 std::span<const Metadata> metadata);
/// Throws Error, naming `op`, as save_safetensors() does. The layout points at `tensors`.
SafetensorsLayout layout_of(const char* op, std::span<const NamedTensor> tensors,
                            std::span<const Metadata> metadata);
/// Writes the file atomically. Throws IoError.
void write_safetensors(const char* op, const std::string& path, const SafetensorsLayout& layout);
/// Returns the elements in row-major order on the CPU, which is `t` itself if it is so already.
Tensor on_cpu(const Tensor& t);

}  // namespace firn::io
