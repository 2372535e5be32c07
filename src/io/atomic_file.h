// A file that replaces its target whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace firn::io {

/// Writes to a temporary file beside `path`; commit() flushes it to disk and renames it over
/// `path`. Without commit() the temporary file is removed and `path` is as it was.
class AtomicFile {
 public:
  /// Throws IoError (its op is `op`) where the temporary file cannot be made.
  AtomicFile(const char* op, const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Throws IoError where not all bytes could be written.
  void write(const void* data, std::size_t bytes);
  /// File to disk, rename, folder to disk. Throws IoError.
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  const char* op_;
  std::string path_;
  std::string temporary_;
  std::uint64_t written_ = 0;
  int fd_ = -1;
};

}  // namespace firn::io
