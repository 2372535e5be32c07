// A crash may come between any two steps, so the order matters: data to disk, rename, folder to
// disk.
#include "io/file/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"
#include "io/file/file_part.h"
#include "io/file/path.h"

namespace firn::io {
namespace {

constexpr std::string_view kMark = ".tmp-";
constexpr std::size_t kDigits = 16;
constexpr std::size_t kPart = 32 << 20;  // bytes that go to the disk at a time

/// Returns the common beginning of `name` and of its temporary files. It is short enough for the
/// whole name to fit.
std::string_view stem(std::string_view name) {
  return name.substr(0, NAME_MAX - kMark.size() - kDigits);
}

/// Returns the stem of the target for the name of a temporary file; empty for any other name.
std::string_view target_of(std::string_view name) {
  if (name.size() <= kMark.size() + kDigits) return {};
  const std::string_view begin = name.substr(0, name.size() - kMark.size() - kDigits);
  if (!name.substr(begin.size()).starts_with(kMark)) return {};
  const auto other = name.find_first_not_of("0123456789abcdef", begin.size() + kMark.size());
  return other == name.npos ? begin : std::string_view();
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "of an unknown kind";
}

/// Returns the text of a symbolic link; empty if it cannot be read.
std::string link_text(const std::string& path) {
  std::string text(PATH_MAX, '\0');
  const ssize_t n = ::readlink(path.c_str(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

/// A folder whose entries will be flushed to disk. It is opened before the rename, so that a lack
/// of descriptors is found while the old file still exists.
class Folder {
 public:
  explicit Folder(const std::string& path)
      : fd_(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
        error_(fd_ < 0 && errno != EACCES ? errno : 0) {}
  ~Folder() {
    if (fd_ >= 0) ::close(fd_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  /// 0, or the reason (errno) why it cannot be opened. A folder without read permission is not
  /// flushed.
  int error() const noexcept { return error_; }
  /// Returns 0, or the reason (errno) why the flush failed. Some file systems cannot flush a
  /// folder, which is not a failure.
  int flush() const noexcept {
    while (fd_ >= 0 && ::fsync(fd_) != 0) {
      if (errno == EINVAL || errno == EBADF || errno == ENOSYS || errno == ENOTSUP) return 0;
      if (errno != EINTR) return errno;
    }
    return 0;
  }

 private:
  int fd_;
  int error_;
};

}  // namespace

void refuse_dry_run(const char* op) {
  FIRN_CHECK(!runtime::dry_run(), op, "plan the step alone",
             "a plan of memory computes nothing that could be saved or loaded");
}

AtomicFile::AtomicFile(const char* op, const std::string& path) : op_(op), path_(path) {
  refuse_dry_run(op_);
  check_not_empty(op_, path_);
  check_path(op_, path_);
  check_target();
  remove_leftovers(folder_, [&](std::string_view target) { return target == stem(name_); });
  create_temporary();
}

/// Follows symbolic links to the target. It may be missing, but its folder must exist.
void AtomicFile::check_target() {
  std::string target = path_;
  for (int links = 0;; ++links) {
    const auto slash = target.find_last_of('/');
    folder_ = slash == std::string::npos ? "" : target.substr(0, slash + 1);
    name_ = target.substr(folder_.size());
    struct stat info {};
    if (::lstat(target.c_str(), &info) != 0) {
      if (errno != ENOENT || name_.empty()) fail("cannot be looked up");
      return;
    }
    if (!S_ISLNK(info.st_mode)) {
      if (!S_ISREG(info.st_mode))
        throw IoError(op_, path_, fmt::format("is {}, not a regular file", kind_of(info.st_mode)),
                      "name a file");
      if (::access(target.c_str(), W_OK) != 0) fail("may not be written");
      mode_ = static_cast<int>(info.st_mode & 0777);
      return;
    }
    const std::string text = link_text(target);
    if (text.empty() || links == 40) {
      errno = ELOOP;
      fail("cannot be looked up");
    }
    target = text.front() == '/' ? text : folder_ + text;
  }
}

void AtomicFile::create_temporary() {
  for (;;) {
    std::uint64_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != sizeof random) fail("found no random name");
    std::string temporary = fmt::format("{}{}{}{:016x}", folder_, stem(name_), kMark, random);
    fd_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                 mode_ < 0 ? 0666 : 0600);
    if (fd_ < 0 && errno == EEXIST) continue;
    if (fd_ < 0) fail("cannot be written: no temporary file can be created beside it");
    temporary_ = std::move(temporary);  // a copy could fail and leave the file behind
    // Another writer may have removed the file as a left-over before it was locked; then try again.
    // If the file system has no locks, no file counts as a left-over.
    struct stat info {};
    while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
    if (::fstat(fd_, &info) != 0 || info.st_nlink > 0) return;
    ::close(fd_);
    fd_ = -1;
  }
}

void AtomicFile::remove_leftovers(const std::string& folder,
                                  const std::function<bool(std::string_view)>& is_target,
                                  const std::function<void(const std::string&)>& look) noexcept {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(
      ::opendir(folder.empty() ? "." : folder.c_str()), ::closedir);
  if (!entries) return;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view target = target_of(entry->d_name);
    if (target.empty() || !is_target(target)) continue;
    const int folder_fd = ::dirfd(entries.get());
    const int fd =
        ::openat(folder_fd, entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    struct stat opened {
    }, named{};
    // If another process holds the lock, it is writing the file. The name may belong to another
    // file by now.
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0 && ::fstat(fd, &opened) == 0 &&
        S_ISREG(opened.st_mode) &&
        ::fstatat(folder_fd, entry->d_name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) {
      try {
        if (look) look(folder + entry->d_name);
      } catch (const std::exception&) {  // the file is removed nevertheless
      }
      ::unlinkat(folder_fd, entry->d_name, 0);
    }
    ::close(fd);
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, from, std::min(bytes, kPart));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;  // some full file systems only return 0; avoid an endless loop
    if (n <= 0) fail("cannot be written");
    from += n;
    bytes -= static_cast<std::size_t>(n);
    written_ += static_cast<std::uint64_t>(n);
    begin_flush();
  }
}

void AtomicFile::resize(std::uint64_t bytes) {
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) fail("cannot get its size");
}

void AtomicFile::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  errno = io::write_at(fd_, offset, data, bytes);
  if (errno != 0) fail("cannot be written");
}

/// Starts writing to disk while the rest is being written, so that commit() waits for less. This is
/// a hint that a file system may ignore: commit() flushes everything, and reports write errors.
void AtomicFile::begin_flush() noexcept {
  if (written_ - handed_over_ < kPart) return;
  ::sync_file_range(fd_, static_cast<off64_t>(handed_over_),
                    static_cast<off64_t>(written_ - handed_over_), SYNC_FILE_RANGE_WRITE);
  handed_over_ = written_;
}

void AtomicFile::commit() {
  if (mode_ >= 0 && ::fchmod(fd_, static_cast<mode_t>(mode_)) != 0)
    fail("cannot get the permissions of the old one");
  if (::fsync(fd_) != 0) fail("cannot be flushed to disk");
  const std::string target = folder_ + name_;  // now, since nothing may fail after the rename
  const Folder folder(folder_);
  if (folder.error() != 0) {
    errno = folder.error();
    fail("cannot be renamed over it, since its folder cannot be opened");
  }
  // Rename it while it is still locked, so that no writer removes it as a left-over.
  if (std::rename(temporary_.c_str(), target.c_str()) != 0) fail("cannot be renamed over it");
  temporary_.clear();
  ::close(fd_);
  fd_ = -1;
  if (const int error = folder.flush(); error != 0)
    throw IoError(op_, path_,
                  fmt::format("is written, but its folder cannot be flushed to disk: {}",
                              std::strerror(error)),
                  "it may be the old file again after a power failure; save once more");
}

void AtomicFile::fail(const char* what) const {
  const std::string reason = std::strerror(errno);
  if (temporary_.empty()) throw IoError(op_, path_, fmt::format("{}: {}", what, reason));
  throw IoError(
      op_, path_,
      fmt::format("temporary file {} {} at byte {}: {}", temporary_, what, written_, reason),
      "the old file, if there was one, is untouched");
}

}  // namespace firn::io
