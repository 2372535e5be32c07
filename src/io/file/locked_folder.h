// A lock that admits one writer at a time to a folder.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "firn/error.h"
#include "io/file/path.h"

namespace firn::io {

/// Holds the lock against other writers, also in this process, as long as it exists. On a file
/// system without locks it has no effect.
class LockedFolder {
 public:
  enum class IfLocked : bool { wait, fail };

  /// Throws IoError in the name of `op` if the folder cannot be opened. With `fail`, also throws if
  /// it is locked.
  LockedFolder(const char* op, const std::string& path, IfLocked if_locked) {
    check_path(op, path);
    fd_ = ::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd_ < 0)
      throw IoError(op, path, fmt::format("cannot be opened: {}", std::strerror(errno)),
                    "make the folder first");
    const int how = LOCK_EX | (if_locked == IfLocked::fail ? LOCK_NB : 0);
    while (::flock(fd_, how) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) return;
      ::close(fd_);
      throw IoError(op, path, "another writer is at work there", "give each a folder of its own");
    }
  }
  ~LockedFolder() { ::close(fd_); }
  LockedFolder(const LockedFolder&) = delete;
  LockedFolder& operator=(const LockedFolder&) = delete;

 private:
  int fd_;
};

}  // namespace firn::io
