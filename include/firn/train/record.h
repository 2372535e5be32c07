// The log of a run: one JSON object a line (docs/records.md has the schema). Every program that
// shows a run reads it.
//
//   train::RunLog log("run.jsonl");
//   log.write(train::Record("note").add("lr", 1e-3).add("model", "mlp"));
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "firn/io/record.h"

namespace firn::train {

using io::Record;

/// A file of records. Each line is passed to the system at once, so other programs can follow the
/// file, and a killed program loses no line. One object at a time writes to a file.
class RunLog {
 public:
  /// Makes an object without a file; write() then does nothing.
  RunLog();
  /// Begins the file anew and empties an existing one. With `keep`, its first `keep` bytes stay,
  /// and the rest is cut off: a resumed run cuts the log back to its checkpoint. Throws IoError if
  /// the file cannot be opened, is a pipe without a reader, has fewer bytes than `keep`, or belongs
  /// to another RunLog.
  explicit RunLog(const std::string& path, std::int64_t keep = 0);
  ~RunLog();
  RunLog(RunLog&&) noexcept;
  RunLog& operator=(RunLog&&) noexcept;

  /// True if there is a file.
  bool is_open() const noexcept { return file_ != nullptr; }
  /// Returns the size of the file so far in bytes, with the kept ones; 0 without a log.
  std::int64_t bytes() const noexcept;
  /// Appends a line. Throws IoError if the disk has no room; the file is then as before.
  void write(const Record& record);

 private:
  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace firn::train
