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
/// crash at any point, `path` is the old file or the new one, whole. Several threads or processes
/// may save to one path; the last one wins. A symbolic link at `path` stays, and what it points at
/// is replaced; the permissions of an old file stay too.
///
/// Throws Error for an undefined tensor, a name used twice or not in UTF-8, and a header that
/// load_safetensors() would refuse. Throws IoError if `path` exists and is no regular file, or
/// cannot be written.
void save_safetensors(const std::string& path, std::span<const nn::NamedTensor> tensors,
                      std::span<const Metadata> metadata = {});

/// Reads the tensors of a file in the order of its header, onto the CPU, and skips metadata. Beyond
/// the tensors it allocates little more than the size of the header. Throws IoError if `path` is
/// not a regular file or cannot be read, or if its header is invalid (100 MB and 200,000 names at
/// most). So it does if the tensors do not fill the file exactly, or a bool is neither 0 nor 1.
std::vector<nn::NamedTensor> load_safetensors(const std::string& path);

/// Overwrites parameters and buffers of a module with the tensors of a file, paired by name and
/// converted to the module's dtypes and device:
///
///   save_safetensors("net.safetensors", state_of(net));
///   load_safetensors("net.safetensors", other_net);
///
/// Throws as the function above. Also throws IoError, before it writes, if names of file and module
/// differ, a shape differs, or a value does not fit the module's dtype (70000 in f16). An optimizer
/// notices the new weights by itself, at its next backward() or step() (rule S28 of
/// docs/semantics.md).
void load_safetensors(const std::string& path, nn::Module& module);

/// The content of a saved model: parameters, then buffers, with their names.
std::vector<nn::NamedTensor> state_of(const nn::Module& module);

}  // namespace firn::io
