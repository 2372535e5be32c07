// The file of a RunLog. A line is one write(), so a killed program loses no line.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "base/check.h"
#include "firn/train/record.h"
#include "io/file/atomic_file.h"
#include "io/file/path.h"

namespace firn::train {
namespace {

/// While it exists, a pipe without a reader is an error of write() and does not end the program.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    ::sigemptyset(&pending);
    ::sigpending(&pending);
    waited_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipe() {
    const int error = errno;
    constexpr timespec kNow{};
    if (!waited_)
      while (::sigtimedwait(&pipe_, nullptr, &kNow) < 0 && errno == EINTR) {
      }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t pipe_, before_;
  bool waited_ = false;
};

}  // namespace

struct RunLog::File {
  ~File() {
    if (descriptor >= 0) ::close(descriptor);
  }
  [[noreturn]] void fail(const char* what, int error, const char* hint = "") const {
    throw IoError("RunLog", path, fmt::format("{}: {}", what, std::strerror(error)), hint);
  }

  std::string path;
  int descriptor = -1;
  bool regular = true;  ///< false for a pipe or a terminal
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
  io::check_path("RunLog", path);
  File& f = *file_;
  f.path = path;
  // O_NONBLOCK makes a pipe without a reader an error instead of an endless wait.
  f.descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | O_NONBLOCK, 0666);
  if (f.descriptor < 0)
    f.fail("cannot be opened", errno,
           errno == ENOENT  ? "does its folder exist?"
           : errno == ENXIO ? "start the reader of the pipe first"
                            : "give a file that may be written");
  const int flags = ::fcntl(f.descriptor, F_GETFL);
  if (flags < 0 || ::fcntl(f.descriptor, F_SETFL, flags & ~O_NONBLOCK) != 0)
    f.fail("cannot be opened", errno);
  struct stat now {};
  if (::fstat(f.descriptor, &now) != 0) f.fail("cannot be read", errno);
  f.regular = S_ISREG(now.st_mode);
  // On a file system without locks, flock() has no effect.
  if (f.regular && ::flock(f.descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw IoError("RunLog", path, "another log writes to it", "give each a file of its own");
  if (keep > 0 && now.st_size < keep)
    throw IoError("RunLog", path,
                  fmt::format("has {} bytes, and {} are to stay", now.st_size, keep),
                  "it is the log of another run, or was cut");
  // The output to a pipe or a terminal cannot be cut.
  if (f.regular && ::ftruncate(f.descriptor, keep) != 0) f.fail("cannot be cut", errno);
  f.bytes = keep;
}
FIRN_OUT_OF_MEMORY("RunLog")

std::int64_t RunLog::bytes() const noexcept { return file_ ? file_->bytes : 0; }

void RunLog::write(const Record& record) try {
  if (!file_) return;
  io::refuse_dry_run("RunLog");
  File& f = *file_;
  const std::string line = record.text() + '\n';
  std::optional<NoBrokenPipe> guard;
  if (!f.regular) guard.emplace();
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
    f.fail("cannot be written", error,
           error == EPIPE ? "the reader of the pipe is gone" : "is the disk full?");
  }
  f.bytes += static_cast<std::int64_t>(line.size());
}
FIRN_OUT_OF_MEMORY("RunLog")

}  // namespace firn::train
