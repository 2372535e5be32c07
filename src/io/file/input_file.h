// A regular file for reading, whose errors name the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "firn/runtime/storage.h"

namespace firn::io {

class InputFile {
 public:
  /// Throws IoError (its op is `op`) if `path` cannot be opened or is not a regular file. It never
  /// waits: a FIFO without a writer is refused too.
  InputFile(const char* op, std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Size of the file when it was opened, in bytes.
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// Number of bytes read so far.
  std::uint64_t offset() const noexcept { return offset_; }
  /// Reads up to `bytes` bytes; fewer only at the end. Throws IoError.
  std::size_t read(void* to, std::size_t bytes);
  /// Reads exactly `bytes` bytes. Throws IoError.
  void read_all(void* to, std::size_t bytes);
  /// Reads exactly `bytes` bytes from byte `offset` on. Several threads may call it at once; read()
  /// continues at its own position. Throws IoError.
  void read_at(std::uint64_t offset, void* to, std::size_t bytes) const;
  /// Maps the whole file as private memory: writes to it stay in this process. Throws IoError, also
  /// if the file is empty.
  Ref<Storage> map() const;
  /// Goes back to the first byte.
  void rewind();
  /// Throws IoError about this file.
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const;
  const std::string& path() const noexcept { return path_; }

 private:
  const char* op_;
  std::string path_;
  int fd_ = -1;
  std::uint64_t bytes_ = 0;
  std::uint64_t offset_ = 0;
};

}  // namespace firn::io
