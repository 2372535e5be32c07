// One or several safetensors files with their headers parsed, for SafetensorsFile and
// load_safetensors().
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "firn/io/safetensors_file.h"
#include "io/file/input_file.h"
#include "io/safetensors_header.h"

namespace firn::io::detail {

/// A file whose header has been read and checked against its size.
class TensorFile {
 public:
  TensorFile(const char* op, const std::string& path, bool map);

  const std::vector<Entry>& entries() const noexcept { return header_.entries; }
  const Header& header() const noexcept { return header_; }
  /// The header with the bytes of the file; parsing has decoded names in `text_`.
  std::string header_text() const;
  Tensor read(const Entry& e) const;

 private:
  void check_extents() const;
  void check_booleans(const Entry& e, const Tensor& t) const;

  InputFile file_;
  std::string text_;  ///< text that the header points into
  Header header_;
  std::uint64_t data_ = 0;  ///< position in the file at which the elements begin
  Ref<Storage> map_;        ///< mapped file; null: the file is read
};

class TensorFiles {
 public:
  /// Errors name `op`.
  TensorFiles(const char* op, const std::string& path, bool map);

  /// A tensor and the file that has it.
  struct Item {
    const TensorFile* file;
    const Entry* entry;
    Tensor read() const { return file->read(*entry); }
  };
  const std::vector<Item>& items() const noexcept { return items_; }
  /// Returns null if no tensor has this name.
  const Item* find(std::string_view name) const noexcept;
  /// Positions of items(), file by file, in the order of bytes.
  std::vector<std::size_t> order_of_bytes() const;
  std::vector<NamedTensor> read_all() const;
  std::vector<Metadata> metadata() const;
  /// Path of the file or the index, as the caller gave it or as the folder has it.
  const std::string& path() const noexcept { return path_; }

 private:
  void read_index(const char* op, bool map);
  void sort_names();

  std::string path_;
  std::string index_;             ///< the text of the index, if there is one
  std::deque<TensorFile> files_;  ///< items point at them
  std::vector<Item> items_;
  std::vector<std::uint32_t> by_name_;
  std::vector<std::pair<std::string_view, std::string_view>> metadata_;
};

}  // namespace firn::io::detail
