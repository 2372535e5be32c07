#include "io/file/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "io/file/path.h"

namespace firn::io {

InputFile::InputFile(const char* op, std::string path) : op_(op), path_(std::move(path)) {
  check_not_empty(op_, path_);
  check_path(op_, path_);
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) {
    const int error = errno;
    fail(fmt::format("cannot be opened: {}", std::strerror(error)),
         error == ENOENT ? "check the path; one without a leading / begins at the current folder"
                         : "");
  }
  try {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) fail(fmt::format("fstat failed: {}", std::strerror(errno)));
    if (S_ISDIR(info.st_mode)) fail("is a directory; expected a file");
    if (!S_ISREG(info.st_mode)) fail("is not a regular file", "copy its bytes into a file first");
    bytes_ = static_cast<std::uint64_t>(info.st_size);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

InputFile::~InputFile() { ::close(fd_); }

std::size_t InputFile::read(void* to, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::read(fd_, static_cast<char*>(to) + done,
                             std::min<std::size_t>(bytes - done, std::size_t{1} << 30));
    if (n < 0) {
      if (errno == EINTR) continue;
      fail(fmt::format("reading failed at byte {}: {}", offset_, std::strerror(errno)));
    }
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
    offset_ += static_cast<std::uint64_t>(n);
  }
  return done;
}

void InputFile::read_all(void* to, std::size_t bytes) {
  if (read(to, bytes) != bytes)
    fail(fmt::format("ends at byte {}; it had {} bytes when it was opened", offset_, bytes_),
         "something else wrote to it meanwhile");
}

void InputFile::read_at(std::uint64_t offset, void* to, std::size_t bytes) const {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = ::pread(fd_, static_cast<char*>(to) + done,
                              std::min<std::size_t>(bytes - done, std::size_t{1} << 30),
                              static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      fail(fmt::format("reading failed at byte {}: {}", offset + done, std::strerror(errno)));
    if (n == 0)
      fail(
          fmt::format("ends at byte {}; it had {} bytes when it was opened", offset + done, bytes_),
          "something else wrote to it meanwhile");
    done += static_cast<std::size_t>(n);
  }
}

Ref<Storage> InputFile::map() const {
  // No swap space is reserved, because few of the pages are ever written.
  void* const data =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd_, 0);
  if (data == MAP_FAILED)
    fail(fmt::format("cannot be mapped into memory: {}", std::strerror(errno)),
         "read it without {.map = true}");
  const auto unmap = [](void* from, std::size_t bytes) noexcept { ::munmap(from, bytes); };
  try {
    return Storage::adopt(data, bytes_, Device::cpu(), unmap);
  } catch (...) {
    unmap(data, bytes_);
    throw;
  }
}

void InputFile::rewind() {
  if (::lseek(fd_, 0, SEEK_SET) != 0) fail(fmt::format("lseek failed: {}", std::strerror(errno)));
  offset_ = 0;
}

void InputFile::fail(const std::string& what, const std::string& hint) const {
  throw IoError(op_, path_, what, hint);
}

}  // namespace firn::io
