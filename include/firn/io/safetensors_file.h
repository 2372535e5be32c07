// Reads safetensors files: lists their contents, and loads single tensors by name.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "firn/tensor.h"

namespace firn::io {

namespace detail {
class TensorFiles;
}

/// A key of a file's metadata, and its value.
using Metadata = std::pair<std::string, std::string>;

struct ReadOptions {
  /// Tensors share the file's pages in memory instead of having copies of their own. The pages are
  /// read when they are first used.
  bool map = false;
};

/// A safetensors file (github.com/huggingface/safetensors), or a model that is sharded into several
/// such files. `path` is
/// - a file in the format;
/// - the index of a sharded model, a text whose name ends in ".json", as huggingface.co writes it:
///   `{"metadata": {"total_size": n}, "weight_map": {name: file}}`. The files are beside it. A
///   tensor that the index does not name is left out;
/// - a folder, which means its model.safetensors.index.json or, without one, its model.safetensors.
///
///   const io::SafetensorsFile file("gpt2");
///   Tensor wte = file.read("wte.weight");
///
/// The constructor reads and checks headers, not elements. It throws IoError, naming the byte
/// within the header, for an invalid file: see load_safetensors(). An index may name only files of
/// its own folder: a path, absolute or through "..", is refused. The files stay open.
///
/// A tensor whose dtype firn lacks (U64, C64, F8_E8M0), or that has more than 8 axes, is among the
/// names. Reading it throws IoError, which names it; the other tensors can be read.
///
/// With `{.map = true}` a tensor is a part of the mapped file, which stays mapped as long as one of
/// its tensors lives. Writes to such a tensor stay in this process: the file never changes. A
/// tensor that is not aligned to its dtype in the file is copied. Mapped memory belongs to the
/// system's page cache, so memory_stats() does not count it. If another process shortens the file,
/// reading a lost page ends this process with SIGBUS. If it overwrites the file, elements may
/// change. So map only files that do not change. A file may be replaced by renaming, as
/// save_safetensors() does it. By default files are read, not mapped.
///
/// A const SafetensorsFile may be used by several threads at once.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path, const ReadOptions& options = {});
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  std::size_t size() const noexcept;  ///< number of tensors
  /// Names of the tensors, in the order of the header or the index.
  std::vector<std::string> names() const;
  /// True if the file has a tensor of this name.
  bool contains(const std::string& name) const noexcept;
  /// Return the shape and the dtype of a tensor, from the header. Both throw Error if no tensor has
  /// this name, and IoError if firn lacks its dtype or it has more than 8 axes.
  const Shape& shape(const std::string& name) const;
  DType dtype(const std::string& name) const;
  /// Returns the pairs of "__metadata__", in the order of the file. For an index, returns the pairs
  /// of its "metadata", with numbers as they are written there, and without lists and objects.
  std::vector<Metadata> metadata() const;

  /// Reads the tensor onto the CPU. Throws Error if no tensor has this name. Throws IoError if the
  /// file has changed its size since it was opened, or if a bool is neither 0 nor 1. Also throws
  /// what dtype() throws.
  Tensor read(const std::string& name) const;
  /// Reads all tensors, in the order of names(). Each file is read once, in the order of its bytes.
  /// Throws what read() throws. If firn cannot represent one of the tensors, it throws before it
  /// reads.
  std::vector<NamedTensor> read_all() const;

 private:
  std::unique_ptr<const detail::TensorFiles> files_;
};

}  // namespace firn::io
