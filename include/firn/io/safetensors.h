// Writing and reading tensors in the safetensors format.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

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

/// The tensors of a file in the order of its header, on the CPU. Throws IoError naming path and
/// what is wrong where the file cannot be read, its header is not what the format demands, its
/// tensors do not fill it exactly, or a bool is neither 0 nor 1. Metadata are skipped.
std::vector<nn::NamedTensor> load_safetensors(const std::string& path);

/// Overwrites parameters and buffers of a module with the tensors of a file, paired by name and
/// converted to the module's dtypes and device:
///
///   save_safetensors("net.safetensors", state_of(net));
///   load_safetensors("net.safetensors", other_net);
///
/// Throws as the function above, and IoError, before anything is written, where a name is missing
/// in the file or not in the module, or a shape differs. An optimizer that has masters of 16-bit
/// parameters is told by refresh_masters().
void load_safetensors(const std::string& path, nn::Module& module);

/// Parameters, then buffers, by name: what a saved model consists of.
std::vector<nn::NamedTensor> state_of(const nn::Module& module);

}  // namespace firn::io
