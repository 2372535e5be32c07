// The log of a run: one JSON object a line (docs/records.md has the schema). Everything that shows
// a run reads it.
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

/// A file of records. Each line is handed to the system at once, so the file can be followed, and a
/// program that is killed loses no line. One object at a time writes to a file.
class RunLog {
 public:
  /// No log: write() does nothing.
  RunLog();
  /// Begins the file anew; a file of that name is emptied. With `keep`, its first bytes stay, and
  /// what follows them is cut off: a run that goes on cuts the log back to its checkpoint. Throws
  /// IoError if the file cannot be opened, is a pipe that nobody reads, has fewer bytes than
  /// `keep`, or is another RunLog's.
  explicit RunLog(const std::string& path, std::int64_t keep = 0);
  ~RunLog();
  RunLog(RunLog&&) noexcept;
  RunLog& operator=(RunLog&&) noexcept;

  /// Whether there is a file.
  bool is_open() const noexcept { return file_ != nullptr; }
  /// Bytes of the file so far, with those kept; 0 without a log.
  std::int64_t bytes() const noexcept;
  /// Appends a line. Throws IoError, as if nothing had been written, if the disk has no room.
  void write(const Record& record);

 private:
  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace firn::train
