// _FORTIFY_SOURCE makes inline functions of the ones that are defined here.
#undef _FORTIFY_SOURCE
#include "durability/syscalls.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <iterator>
#include <utility>

namespace firn::testing {
namespace {

thread_local Plan* active = nullptr;

std::string text_of_link(const std::string& link) {
  std::string text(PATH_MAX, '\0');
  const ssize_t n = ::readlink(link.c_str(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

/// What the descriptor has open; empty if that cannot be told.
std::string path_of(int fd) { return text_of_link("/proc/self/fd/" + std::to_string(fd)); }

std::string path_of(int folder, const char* name) {
  std::filesystem::path path = name;
  if (path.is_relative())
    path = std::filesystem::path(folder == AT_FDCWD ? text_of_link("/proc/self/cwd")
                                                    : path_of(folder)) /
           path;
  return path.lexically_normal().native();
}

}  // namespace

struct Plan::Seen {
  /// Whether a plan is about this path; `path` is made relative.
  static bool watches(std::string& path) {
    if (active == nullptr) return false;
    const std::string& folder = active->folder_.native();
    if (!path.starts_with(folder)) return false;
    std::string rest = path.substr(folder.size());
    if (!rest.empty() && rest.front() != '/') return false;
    while (!rest.empty() && rest.front() == '/') rest.erase(0, 1);
    while (!rest.empty() && rest.back() == '/') rest.pop_back();  // "." and ".." leave one
    path = std::move(rest);
    return true;
  }

  /// `real` takes the number of bytes to write, which other calls ignore.
  template <class Real>
  static std::int64_t run(Call call, Real&& real) {
    Plan& plan = *std::exchange(active, nullptr);  // what follows is no call of the library
    const Fault fault = plan.rule_ ? plan.rule_(call, plan.calls_.size()) : Fault{};
    const std::size_t all = call.data.size();
    if (fault.kind == Fault::Kind::kill_before) ::kill(::getpid(), SIGKILL);
    if (fault.kind == Fault::Kind::kill_within) {
      real(all / 2);
      ::kill(::getpid(), SIGKILL);
    }
    const bool undone = fault.kind == Fault::Kind::error && call.name != "close";
    const bool skipped = call.name == "fsync" && !plan.flush_;
    errno = 0;
    call.result =
        undone    ? -1
        : skipped ? 0
                  : real(fault.kind == Fault::Kind::shortened ? std::min(fault.bytes, all) : all);
    call.error = call.result < 0 ? errno : 0;
    if (fault.kind == Fault::Kind::kill_after) ::kill(::getpid(), SIGKILL);
    if (fault.kind == Fault::Kind::error || fault.kind == Fault::Kind::error_after) {
      call.result = -1;
      call.error = fault.error;
    }
    const auto result = call.result;
    const int error = call.error;
    plan.calls_.push_back(std::move(call));
    active = &plan;
    errno = error;
    return result;
  }
};

bool Call::creates() const { return name == "open" && (flags & O_CREAT) != 0; }

std::string to_string(const Call& call) {
  std::string out = call.name + "(" + call.path;
  if (!call.target.empty()) out += " -> " + call.target;
  if (call.name == "write")
    out += ", " + std::to_string(call.data.size()) + " bytes at " + std::to_string(call.offset);
  return out + ")";
}

Plan::Plan(const std::filesystem::path& folder, Rule rule, bool flush)
    : folder_(std::filesystem::canonical(folder)), rule_(std::move(rule)), flush_(flush) {
  active = this;
}
Plan::~Plan() { active = nullptr; }

Rule at(std::size_t index, Fault fault) {
  return [=](const Call&, std::size_t i) { return i == index ? fault : Fault{}; };
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator begin("/proc/self/fd"), end;
  return static_cast<std::size_t>(std::distance(begin, end));
}

namespace {

template <class Real>
std::int64_t of_path(const char* name, std::string path, Real&& real, int flags = 0) {
  if (!Plan::Seen::watches(path)) return real(0);
  Call call{name, std::move(path)};
  call.flags = flags;
  return Plan::Seen::run(std::move(call), real);
}

template <class Real>
std::int64_t of_descriptor(const char* name, int fd, Real&& real, std::int64_t offset = 0) {
  std::string path = active == nullptr ? std::string() : path_of(fd);
  if (!Plan::Seen::watches(path)) return real(0);
  Call call{name, std::move(path)};
  call.offset = offset;
  return Plan::Seen::run(std::move(call), real);
}

template <class Real>
ssize_t of_write(int fd, const void* data, std::size_t bytes, std::int64_t offset, Real&& real) {
  std::string path = active == nullptr ? std::string() : path_of(fd);
  if (!Plan::Seen::watches(path)) return real(bytes);
  Call call{"write", std::move(path)};
  call.data.assign(static_cast<const char*>(data), bytes);
  call.offset = offset >= 0 ? offset : ::lseek(fd, 0, SEEK_CUR);
  return Plan::Seen::run(std::move(call), real);
}

int opened(int folder, const char* name, int flags, mode_t mode) {
  const auto real = [&](std::size_t) -> std::int64_t {
    return ::syscall(SYS_openat, folder, name, flags, mode);
  };
  if (active == nullptr) return static_cast<int>(real(0));
  return static_cast<int>(of_path("open", path_of(folder, name), real, flags));
}

int looked_up(const char* name, int folder, const char* path, struct stat* out, int flags) {
  const auto real = [&](std::size_t) -> std::int64_t {
    return ::syscall(SYS_newfstatat, folder, path, out, flags);
  };
  if (active == nullptr) return static_cast<int>(real(0));
  return static_cast<int>(of_path(name, path_of(folder, path), real));
}

int removed(int folder, const char* name, int flags) {
  const auto real = [&](std::size_t) -> std::int64_t {
    return ::syscall(SYS_unlinkat, folder, name, flags);
  };
  if (active == nullptr) return static_cast<int>(real(0));
  return static_cast<int>(of_path("unlink", path_of(folder, name), real));
}

int renamed(int from_folder, const char* from, int to_folder, const char* to) {
  const auto real = [&](std::size_t) -> std::int64_t {
    return ::syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
  };
  if (active == nullptr) return static_cast<int>(real(0));
  Call call{"rename", path_of(from_folder, from), path_of(to_folder, to)};
  if (!Plan::Seen::watches(call.path) || !Plan::Seen::watches(call.target))
    return static_cast<int>(real(0));
  return static_cast<int>(Plan::Seen::run(std::move(call), real));
}

/// The mode that follows the flags, if one does.
mode_t mode_after(int flags, std::va_list& more) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
}

}  // namespace
}  // namespace firn::testing

// The functions themselves, with the signatures of the C library's headers.
using namespace firn::testing;

extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = mode_after(flags, more);
  va_end(more);
  return opened(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = mode_after(flags, more);
  va_end(more);
  return opened(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = mode_after(flags, more);
  va_end(more);
  return opened(folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) {
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = mode_after(flags, more);
  va_end(more);
  return opened(folder, path, flags, mode);
}
// What _FORTIFY_SOURCE calls in their place.
int __open_2(const char* path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __openat_2(int folder, const char* path, int flags) { return opened(folder, path, flags, 0); }

ssize_t write(int fd, const void* data, size_t bytes) {
  return of_write(fd, data, bytes, -1,
                  [&](std::size_t n) { return ::syscall(SYS_write, fd, data, n); });
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return of_write(fd, data, bytes, offset,
                  [&](std::size_t n) { return ::syscall(SYS_pwrite64, fd, data, n, offset); });
}
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  return of_write(fd, data, bytes, offset,
                  [&](std::size_t n) { return ::syscall(SYS_pwrite64, fd, data, n, offset); });
}
int ftruncate(int fd, off_t length) noexcept {
  return static_cast<int>(of_descriptor(
      "ftruncate", fd, [&](std::size_t) { return ::syscall(SYS_ftruncate, fd, length); }, length));
}
int fsync(int fd) {
  return static_cast<int>(
      of_descriptor("fsync", fd, [&](std::size_t) { return ::syscall(SYS_fsync, fd); }));
}
int fdatasync(int fd) {
  return static_cast<int>(
      of_descriptor("fsync", fd, [&](std::size_t) { return ::syscall(SYS_fdatasync, fd); }));
}
int close(int fd) {
  return static_cast<int>(
      of_descriptor("close", fd, [&](std::size_t) { return ::syscall(SYS_close, fd); }));
}
int fchmod(int fd, mode_t mode) noexcept {
  return static_cast<int>(
      of_descriptor("fchmod", fd, [&](std::size_t) { return ::syscall(SYS_fchmod, fd, mode); }));
}
int flock(int fd, int operation) noexcept {
  return static_cast<int>(
      of_descriptor("flock", fd, [&](std::size_t) { return ::syscall(SYS_flock, fd, operation); }));
}
int fstat(int fd, struct stat* out) noexcept {
  return static_cast<int>(of_descriptor("fstat", fd, [&](std::size_t) {
    return ::syscall(SYS_newfstatat, fd, "", out, AT_EMPTY_PATH);
  }));
}
int lstat(const char* path, struct stat* out) noexcept {
  return looked_up("lstat", AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
int fstatat(int folder, const char* path, struct stat* out, int flags) noexcept {
  return looked_up("fstatat", folder, path, out, flags);
}
int access(const char* path, int mode) noexcept {
  const auto real = [&](std::size_t) { return ::syscall(SYS_faccessat, AT_FDCWD, path, mode); };
  return static_cast<int>(active == nullptr ? real(0)
                                            : of_path("access", path_of(AT_FDCWD, path), real));
}
int rename(const char* from, const char* to) noexcept {
  return renamed(AT_FDCWD, from, AT_FDCWD, to);
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return renamed(from_folder, from, to_folder, to);
}
int unlink(const char* path) noexcept { return removed(AT_FDCWD, path, 0); }
int unlinkat(int folder, const char* path, int flags) noexcept {
  return removed(folder, path, flags);
}
DIR* opendir(const char* path) {
  const int fd =
      static_cast<int>(opened(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_DIRECTORY | O_CLOEXEC, 0));
  return fd < 0 ? nullptr : ::fdopendir(fd);
}
ssize_t getrandom(void* out, size_t bytes, unsigned flags) {
  const auto real = [&](std::size_t) { return ::syscall(SYS_getrandom, out, bytes, flags); };
  if (active == nullptr) return real(0);
  return Plan::Seen::run(Call{"getrandom", ""}, real);  // of no file: a save draws a name with it
}

}  // extern "C"
