#include "io/file/file_part.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "firn/error.h"

namespace firn::io {

int write_at(int fd, std::uint64_t offset, const void* data, std::size_t bytes) noexcept {
  constexpr std::size_t kMost = 32 << 20;
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, from, std::min(bytes, kMost), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? ENOSPC : errno;  // some full file systems only return 0
    from += n;
    offset += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::size_t>(n);
  }
  return 0;
}

FilePart::FilePart(const char* op, std::string path, std::uint64_t bytes)
    : op_(op),
      path_(std::move(path)),
      fd_(::open(path_.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)) {
  struct stat info {};
  if (fd_ < 0 || (::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode) &&
                  static_cast<std::uint64_t>(info.st_size) == bytes))
    return;
  ::close(fd_);
  fd_ = -1;
}

FilePart::~FilePart() {
  if (fd_ >= 0) ::close(fd_);
}

void FilePart::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  if (const int error = io::write_at(fd_, offset, data, bytes); error != 0)
    fail("cannot be written", error);
}

void FilePart::flush() {
  if (::fsync(fd_) != 0) fail("cannot be flushed to disk", errno);
}

void FilePart::fail(const char* what, int error) const {
  throw IoError(op_, path_, fmt::format("{}: {}", what, std::strerror(error)),
                "the old file, if there was one, is untouched");
}

}  // namespace firn::io
