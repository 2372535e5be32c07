// The file of a RunLog. A line is one write(), so what is killed loses no line.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "firn/train/record.h"
#include "io/file/atomic_file.h"

namespace firn::train {

struct RunLog::File {
  ~File() {
    if (descriptor >= 0) ::close(descriptor);
  }
  [[noreturn]] void fail(const char* what, int error, const char* hint = "") const {
    throw IoError("RunLog", path, fmt::format("{}: {}", what, std::strerror(error)), hint);
  }

  std::string path;
  int descriptor = -1;
  std::int64_t bytes = 0;
};

RunLog::RunLog() = default;
RunLog::~RunLog() = default;
RunLog::RunLog(RunLog&&) noexcept = default;
RunLog& RunLog::operator=(RunLog&&) noexcept = default;

RunLog::RunLog(const std::string& path, std::int64_t keep) try : file_(std::make_unique<File>()) {
  io::refuse_dry_run("RunLog");
  FIRN_CHECK(!path.empty(), "RunLog", "give the log's file", "the path is empty");
  FIRN_CHECK(keep >= 0, "RunLog", "0 or more", "{} bytes are to stay", keep);
  File& f = *file_;
  f.path = path;
  f.descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666);
  if (f.descriptor < 0)
    f.fail("cannot be opened", errno,
           errno == ENOENT ? "does its folder exist?" : "give a file that may be written");
  struct stat now {};
  if (::fstat(f.descriptor, &now) != 0) f.fail("cannot be read", errno);
  // A file system without locks locks nothing.
  if (S_ISREG(now.st_mode) && ::flock(f.descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw IoError("RunLog", path, "another log writes to it", "give each a file of its own");
  if (keep > 0 && now.st_size < keep)
    throw IoError("RunLog", path,
                  fmt::format("has {} bytes, and {} are to stay", now.st_size, keep),
                  "it is the log of another run, or was cut");
  // A pipe or a terminal keeps what it was sent.
  if (S_ISREG(now.st_mode) && ::ftruncate(f.descriptor, keep) != 0) f.fail("cannot be cut", errno);
  f.bytes = keep;
}
FIRN_OUT_OF_MEMORY("RunLog")

std::int64_t RunLog::bytes() const noexcept { return file_ ? file_->bytes : 0; }

void RunLog::write(const Record& record) try {
  if (!file_) return;
  io::refuse_dry_run("RunLog");
  File& f = *file_;
  const std::string line = record.text() + '\n';
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t n = ::write(f.descriptor, line.data() + done, line.size() - done);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
      continue;
    }
    const int error = errno;
    if (error == EINTR) continue;
    // Half a line would spoil the next one; a pipe cannot be cut.
    if (done > 0 && ::ftruncate(f.descriptor, f.bytes) != 0)
      f.bytes += static_cast<std::int64_t>(done);
    f.fail("cannot be written", error, "is the disk full?");
  }
  f.bytes += static_cast<std::int64_t>(line.size());
}
FIRN_OUT_OF_MEMORY("RunLog")

}  // namespace firn::train
