// Reads the bytes of a plain or gzip file in order, with errors that name file and offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "io/file/input_file.h"

namespace firn::data {

/// Reads a file once from front to back. Its first two bytes decide whether it is gzip. A file of
/// fewer bytes is a truncated gzip file if its name is "*.gz" or its byte is gzip's first.
class ByteReader {
 public:
  /// Throws IoError (its op is `op`) if `path` cannot be opened, is not a regular file, or ends
  /// within gzip's first two bytes.
  ByteReader(const char* op, const std::string& path);
  ~ByteReader();
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  /// Reads up to `bytes` bytes (decompressed if the file is gzip); fewer only at the end. At the
  /// end of a gzip member its checksum and length are verified. Throws IoError on damage.
  std::size_t read(void* to, std::size_t bytes);
  /// Number of bytes returned so far.
  std::uint64_t offset() const noexcept { return offset_; }
  bool compressed() const noexcept { return gzip_; }
  std::uint64_t file_bytes() const noexcept { return file_.bytes(); }
  /// Upper bound of the bytes in the whole file; deflate never expands by more than 1032 times.
  std::uint64_t most_bytes() const noexcept;
  /// Returns "decompressed byte 12" or "byte 12".
  std::string at(std::uint64_t offset) const;
  /// Throws IoError about this file.
  [[noreturn]] void fail(const std::string& message, const std::string& hint = {}) const {
    file_.fail(message, hint);
  }

 private:
  std::size_t read_gzip(void* to, std::size_t bytes);

  struct Inflate;
  io::InputFile file_;
  bool gzip_ = false;
  std::uint64_t offset_ = 0;
  std::unique_ptr<Inflate> inflate_;
};

}  // namespace firn::data
