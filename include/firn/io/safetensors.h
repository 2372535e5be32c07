// Writing tensors in the safetensors format.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "firn/nn/module.h"

namespace firn::io {

using Metadata = std::pair<std::string, std::string>;

/// Writes `tensors` to `path` in the safetensors format (github.com/huggingface/safetensors): a
/// little-endian u64 with the header's length; a JSON header with dtype, shape and byte range of
/// each tensor, and `metadata` under "__metadata__"; the elements in row-major order, without
/// holes, those of wider dtypes first so that each is aligned. Views and tensors on a device are
/// written as row-major copies.
///
///   save_safetensors("mlp.safetensors", net.named_parameters());
///
/// The file is written beside `path`, flushed to disk and renamed over it: after a failure, or a
/// crash at any point, `path` is the old file or the new one, whole. Throws Error on an undefined
/// tensor or a name used twice, IoError where the file cannot be written.
void save_safetensors(const std::string& path, std::span<const nn::NamedTensor> tensors,
                      std::span<const Metadata> metadata = {});

}  // namespace firn::io
