// The order matters (a crash may come between any two steps): data to disk, rename, folder to disk.
#include "io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "firn/error.h"

namespace firn::io {
namespace {

std::string folder_of(const std::string& path) {
  const auto slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

AtomicFile::AtomicFile(const char* op, const std::string& path)
    : op_(op), path_(path), temporary_(fmt::format("{}.tmp-{}", path, ::getpid())) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("cannot be created beside it");
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, from, std::min<std::size_t>(bytes, std::size_t{1} << 30));
    if (n < 0) {
      if (errno == EINTR) continue;
      fail("cannot be written");
    }
    from += n;
    bytes -= static_cast<std::size_t>(n);
    written_ += static_cast<std::uint64_t>(n);
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) fail("cannot be flushed to disk");
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) fail("cannot be closed");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be renamed over it");
  temporary_.clear();
  // Some file systems refuse to sync a folder; the file itself is whole either way.
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
}

void AtomicFile::fail(const char* what) const {
  const std::string reason = std::strerror(errno);
  throw IoError(
      op_, path_,
      fmt::format("temporary file {} {} at byte {}: {}", temporary_, what, written_, reason),
      "the old file, where there was one, is untouched");
}

}  // namespace firn::io
