// A file that another process of this run has made, and of which this process writes a part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace firn::io {

/// Writes `bytes` bytes to the open file at byte `offset`. Returns 0, or the error (errno).
int write_at(int fd, std::uint64_t offset, const void* data, std::size_t bytes) noexcept;

class FilePart {
 public:
  /// Opens a regular file of `bytes` bytes. is_open() returns false if there is no such file.
  FilePart(const char* op, std::string path, std::uint64_t bytes);
  ~FilePart();
  FilePart(const FilePart&) = delete;
  FilePart& operator=(const FilePart&) = delete;

  bool is_open() const noexcept { return fd_ >= 0; }
  /// Both throw IoError.
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes);
  void flush();

 private:
  [[noreturn]] void fail(const char* what, int error) const;

  const char* op_;
  std::string path_;
  int fd_ = -1;
};

}  // namespace firn::io
