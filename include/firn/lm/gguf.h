// Reads GGUF files: the metadata by key, and the tensors by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "firn/io/safetensors_file.h"
#include "firn/lm/gguf_type.h"
#include "firn/tensor.h"

namespace firn::lm {

namespace detail {
class GgufContents;
}

/// The type of a value in the metadata, by the numbers of the format.
enum class GgufValueType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};
/// Returns the format's name of a type: "UINT32", "STRING".
const char* to_string(GgufValueType type) noexcept;

/// A key of a file's metadata, and the type of its value.
struct GgufEntry {
  std::string key;                                 ///< name, such as "llama.block_count"
  GgufValueType type = GgufValueType::u8;          ///< type of the value
  GgufValueType element_type = GgufValueType::u8;  ///< type of an array's elements; else `type`
  std::uint64_t count = 1;                         ///< number of an array's elements; else 1
};

/// A GGUF file (github.com/ggml-org/ggml, docs/gguf.md), version 2 or 3, little-endian: a language
/// model with its settings and its tokenizer.
///
///   const lm::GgufFile file("SmolLM2-135M-Instruct.Q4_1.gguf");
///   const std::int64_t blocks = file.integer("llama.block_count", 1, 1000);
///   Tensor weight = file.read("blk.0.attn_q.weight");  // [out, in], f32
///
/// The constructor reads and checks everything but the elements of tensors: counts, lengths, types,
/// booleans, names that occur twice, the alignment, and that tensors lie within the file and do not
/// overlap. It throws IoError, which names the byte of the file, the key or tensor, and the value.
/// A header of more than 256 MiB, and more than 200,000 keys or tensors, are refused. Texts are the
/// bytes of the file: the format says that they are UTF-8, and nothing checks it.
///
/// **Shapes** are firn's, in row-major order. GGUF lists sizes in the reverse order: a weight
/// [out, in] has `ne = {in, out}` there.
///
/// **Types.** Tensors of F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K and Q6_K can be read. Tensors of
/// other types are among the names, and reading one throws IoError with the type's name.
///
/// **Memory.** By default tensors of plain numbers and blocks() are parts of the mapped file: see
/// io::ReadOptions::map and io::SafetensorsFile, whose rules for mapped files hold here. The file
/// stays mapped as long as one of them lives. With `{.map = false}` they are read.
///
/// A model in several files has `split.count` in its metadata; each file is read by itself. A const
/// GgufFile may be used by several threads at once.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path, const io::ReadOptions& options = {.map = true});
  GgufFile(const GgufFile&) =
      default;  ///< Copies share the file, and so does an object moved from.
  GgufFile& operator=(const GgufFile&) = default;

  /// Path of the file, as the caller gave it.
  const std::string& path() const noexcept;
  /// Version of the format: 2 or 3.
  std::uint32_t version() const noexcept;

  // Metadata. Functions that return values throw IoError, which names the key, its type and its
  // value, if the key is missing or has a value of another type.

  /// Lists the keys in the order of the file.
  std::vector<GgufEntry> entries() const;
  /// Returns the entry of one key.
  GgufEntry entry(const std::string& key) const;
  /// True if the metadata has this key.
  bool has(const std::string& key) const noexcept;

  std::string text(const std::string& key) const;  ///< a STRING
  bool flag(const std::string& key) const;         ///< a BOOL
  /// A whole number of any width. Throws IoError if it is not in the range [least, most].
  std::int64_t integer(const std::string& key,
                       std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  double real(const std::string& key) const;  ///< a FLOAT32 or FLOAT64

  // The elements of arrays. No function returns arrays of arrays.

  std::vector<std::string> texts(const std::string& key) const;      ///< STRING
  std::vector<bool> flags(const std::string& key) const;             ///< BOOL
  std::vector<std::int64_t> integers(const std::string& key) const;  ///< whole numbers of one width
  std::vector<double> reals(const std::string& key) const;           ///< FLOAT32 or FLOAT64

  // Tensors. All but names() and contains() throw IoError if no tensor has this name.

  /// Names of the tensors, in the order of the file.
  std::vector<std::string> names() const;
  /// True if the file has a tensor of this name.
  bool contains(const std::string& name) const noexcept;
  const Shape& shape(const std::string& name) const;  ///< shape in row-major order
  GgufType type(const std::string& name) const;       ///< how the elements are stored

  /// Reads a tensor onto the CPU, F32, F16 and BF16 in their own dtype, and blocks as f32. Each
  /// value of a block is rounded once: no product in its formula needs more bits than f32 has.
  Tensor read(const std::string& name) const;
  /// Reads a tensor as `dtype`, which must be f16, bf16, f32 or f64. Values of blocks are computed
  /// in f32, then converted.
  Tensor read(const std::string& name, DType dtype) const;
  /// Returns the stored bytes as u8 [..., bytes of a row]: the tensor's shape, with the blocks of a
  /// row in the place of its elements. block_elements() and block_bytes() have the sizes of a
  /// block.
  Tensor blocks(const std::string& name) const;

 private:
  std::shared_ptr<const detail::GgufContents> contents_;
};

}  // namespace firn::lm
