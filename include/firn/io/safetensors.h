// Writing tensors in the safetensors format, and loading files of it into modules.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "firn/io/safetensors_file.h"
#include "firn/nn/module.h"

namespace firn::io {

/// Writes `tensors` to `path` in the safetensors format (github.com/huggingface/safetensors). The
/// file begins with a little-endian u64 with the header's length. The JSON header has dtype, shape
/// and byte range of each tensor, and `metadata` under "__metadata__". The elements follow in
/// row-major order, without holes, those of wider dtypes first so that each is aligned. Views and
/// tensors on a device are written as row-major copies.
///
///   save_safetensors("mlp.safetensors", net.named_parameters());
///
/// The file is written beside `path`, flushed to disk and renamed over it. So after a failure, or a
/// crash at any point, `path` is either the complete old file or the complete new one. Several
/// threads or processes may save to one path; the last one wins. If `path` is a symbolic link, its
/// target is replaced and the link stays. The new file keeps the permissions of an old one.
///
/// Throws Error for an undefined tensor, for a name that is used twice or is not UTF-8, and for a
/// header that load_safetensors() would refuse. Throws IoError if `path` exists and is not a
/// regular file, or cannot be written. If only the folder cannot be flushed to disk, it throws too,
/// but `path` is the new file.
void save_safetensors(const std::string& path, std::span<const nn::NamedTensor> tensors,
                      std::span<const Metadata> metadata = {});
/// Saves a list: save_safetensors("w.safetensors", {{"w", w}}).
inline void save_safetensors(const std::string& path,
                             std::initializer_list<nn::NamedTensor> tensors,
                             std::span<const Metadata> metadata = {}) {
  save_safetensors(path, std::span(tensors.begin(), tensors.size()), metadata);
}

struct ShardOptions {
  /// Largest number of bytes of tensors in one file. A larger tensor gets a file of its own.
  std::uint64_t max_bytes = 5'000'000'000;
};
/// Writes `tensors` in their order into several files of `folder`, with an index, as huggingface.co
/// does: model-00001-of-00003.safetensors, ..., model.safetensors.index.json. The index's metadata
/// is "total_size", the bytes of all tensors, and `metadata`, which each file has too.
/// SafetensorsFile and load_safetensors() read the folder.
///
/// Every file is written as save_safetensors() does it, the index last. If the folder already has
/// an index, the new files get unused names ("model-r2-00001-of-00003.safetensors"), and the files
/// of the old index are removed at the end. So after a failure, or a crash at any point, the folder
/// holds either the complete old model or the complete new one. A save removes files that a killed
/// save has left behind. Concurrent saves to one folder wait for each other.
///
/// Returns the path of the index. Throws as save_safetensors() does. Throws Error if max_bytes is 0
/// or a key of `metadata` is "total_size", and IoError if the folder does not exist.
std::string save_safetensors_shards(const std::string& folder,
                                    std::span<const nn::NamedTensor> tensors,
                                    std::span<const Metadata> metadata = {},
                                    const ShardOptions& options = {});

/// Reads the tensors of a file in the order of its header, onto the CPU, and skips metadata. Beyond
/// the tensors it allocates little more than the size of the header. As for SafetensorsFile, `path`
/// is a file, an index or a folder. Throws IoError if it is not a regular file or cannot be read,
/// or if its header is invalid (100 MB and 200,000 names at most). Also throws IoError if the
/// tensors do not fill the file exactly, or if a bool is neither 0 nor 1. So it does for a tensor
/// whose dtype firn lacks, or that has more than 8 axes.
std::vector<nn::NamedTensor> load_safetensors(const std::string& path);

/// Overwrites parameters and buffers of a module with the tensors of a file, paired by name and
/// converted to the module's dtypes and device:
///
///   save_safetensors("net.safetensors", state_of(net));
///   load_safetensors("net.safetensors", other_net);
///
/// A tensor that firn cannot represent is ignored unless it is paired; then it counts as
/// mismatched. A tied tensor may have any of its names in the file, or several with the same
/// elements.
///
/// Throws what the function above throws. Also throws IoError, before it writes, if names of file
/// and module differ or a shape differs. So it does if a value does not fit the module's dtype
/// (70000 in f16). The error lists all differences. An optimizer notices the new weights at its
/// next backward() or step() (rule S28 of docs/semantics.md).
void load_safetensors(const std::string& path, nn::Module& module);

/// Maps the name of a tensor in a file to its name in a module, by a list of pairs or a function.
/// The empty name leaves the tensor out.
class Rename {
 public:
  Rename() = default;
  /// Maps by the list; a name that is not in it does not change.
  Rename(std::initializer_list<std::pair<std::string, std::string>> pairs) : pairs_(pairs) {}
  /// Maps by a function. Throws Error if it is an empty std::function or a null pointer.
  template <class F>
  requires std::is_invocable_r_v<std::string, F&, const std::string&> Rename(F function)  // NOLINT
      : function_(std::move(function)) {
    require_function();
  }
  /// Returns the name in the module, or an empty name if the tensor is left out.
  std::string operator()(const std::string& name) const;

 private:
  void require_function() const;

  std::vector<std::pair<std::string, std::string>> pairs_;
  std::function<std::string(const std::string&)> function_;
};

struct LoadOptions {
  /// If false, tensors that do not fit are reported and not written, and the rest is loaded.
  bool strict = true;
  /// Loads only tensors whose names in the file begin with this text, under the rest of their
  /// names.
  std::string prefix = {};
  /// Applied after the prefix was removed.
  Rename rename = {};
  /// Selects names of the module by returning true. The other names are neither missing nor
  /// unexpected.
  std::function<bool(const std::string&)> only = {};
  /// Selects names of the module by returning true: the file has these matrices as [in, out] where
  /// the module has [out, in], as GPT-2's.
  std::function<bool(const std::string&)> transposed = {};
  /// Maps the file into memory: see ReadOptions::map.
  bool map = false;
};

/// Result of a load. Names are those of the module, except for unexpected ones.
struct LoadReport {
  /// A tensor that the file has and the module cannot take.
  struct Mismatch {
    std::string name;  ///< name in the module
    std::string what;  ///< "is [6, 3], the module's is [5, 3]"
  };
  std::vector<std::string> loaded;      ///< tensors that were loaded
  std::vector<std::string> missing;     ///< tensors that the file does not have
  std::vector<std::string> unexpected;  ///< tensors that only the file has, by their names there
  std::vector<Mismatch> mismatched;     ///< another shape, or not floating where required

  /// True if file and module had the same tensors, and all were loaded.
  bool complete() const noexcept {
    return missing.empty() && unexpected.empty() && mismatched.empty();
  }
};

/// Loads a part of the file, or into a part of the module:
///
///   auto report = load_safetensors("resnet.safetensors", net, {.strict = false});
///   load_safetensors("gpt2", body, {.prefix = "transformer.", .rename = {{"wte.weight",
///   "embed.weight"}}});
///
/// Nothing is written before everything was checked and converted. Throws what the function above
/// throws. In non-strict mode too, throws IoError if no name begins with the prefix, if two tensors
/// get one name, or if the dtype cannot hold a value.
LoadReport load_safetensors(const std::string& path, nn::Module& module,
                            const LoadOptions& options);

/// Returns the tensors of a model that are saved: parameters, then buffers, with their names.
std::vector<nn::NamedTensor> state_of(const nn::Module& module);

}  // namespace firn::io
