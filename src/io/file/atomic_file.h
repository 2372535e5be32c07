// A file that replaces its target atomically.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace firn::io {

/// Throws Error in a dry run (plan_memory()), in which the data to save was not computed.
void refuse_dry_run(const char* op);

/// Writes to a temporary file beside the target; commit() flushes it to disk and renames it over
/// the target. Without commit() the temporary file is removed and the target stays unchanged.
///
/// The target is `path`. If that is a symbolic link, the target is the file it points to, and the
/// link stays. A new file keeps the permissions of the one it replaces. Any number of threads,
/// processes and machines may save to one path at once: the last commit() wins with its whole file.
///
/// The temporary file is named "NAME.tmp-" and 16 random digits, and stays locked while it is
/// written. An unlocked one is the left-over of a dead process; the next writer of the same target
/// removes it.
class AtomicFile {
 public:
  /// Throws Error in a dry run. Throws IoError (its op is `op`) if the target exists and is not a
  /// regular file, or may not be written. Also throws it if the temporary file cannot be created.
  AtomicFile(const char* op, const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Throws IoError unless all bytes could be written.
  void write(const void* data, std::size_t bytes);
  /// Sets the size of the file; bytes that were not written are zeros. Throws IoError.
  void resize(std::uint64_t bytes);
  /// Writes at byte `offset`; write() continues at its own position. Throws IoError.
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes);
  /// Flushes the file to disk, renames it, and flushes the folder to disk. Throws IoError; after
  /// the rename it does so only if the folder cannot be flushed.
  void commit();
  /// True if the target is the new file, even if commit() then threw.
  bool is_renamed() const noexcept { return temporary_.empty(); }
  /// Path of the temporary file, which has the bytes until commit().
  const std::string& temporary() const noexcept { return temporary_; }

  /// Removes the left-overs of dead processes from `folder` ("": the current one), if `is_target`
  /// is true for the name of the file that they would have replaced. Before that, it calls `look`
  /// with the path of each, and ignores its exceptions.
  static void remove_leftovers(
      const std::string& folder, const std::function<bool(std::string_view)>& is_target,
      const std::function<void(const std::string&)>& look = nullptr) noexcept;

 private:
  void check_target();
  void create_temporary();
  void begin_flush() noexcept;
  [[noreturn]] void fail(const char* what) const;

  const char* op_;
  std::string path_;       ///< the caller's path, for errors
  std::string folder_;     ///< target's folder with a closing slash; empty: the current one
  std::string name_;       ///< target's name in its folder
  std::string temporary_;  ///< empty: no temporary file
  int mode_ = -1;          ///< permissions of the target, or -1 if it does not exist
  std::uint64_t written_ = 0;
  std::uint64_t handed_over_ = 0;  ///< number of these bytes whose flush has begun
  int fd_ = -1;
};

}  // namespace firn::io
