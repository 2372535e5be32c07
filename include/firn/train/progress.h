// Progress of an epoch on stderr: a bar on a terminal, else a line every ten seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace firn::train {

/// Returns true if control bytes may be sent to a file descriptor. It must be a terminal, not a
/// dumb one, and the user must not have turned colours off (no-color.org).
bool may_draw(int file_descriptor) noexcept;

/// Returns 60000 as "60,000".
std::string grouped(std::int64_t n);

/// Returns "epoch 1/5  45%  51200 samples/s  ETA 0:03", a line without control bytes. The share is
/// 0 to 100 %, even if `done` is more than `total`.
std::string progress_line(const std::string& label, std::int64_t done, std::int64_t total,
                          double seconds);

/// Returns progress_line() with a bar, in at most `columns` characters. If it does not fit, the bar
/// is first shortened, then dropped, then rate and time, then the label.
std::string progress_bar(const std::string& label, std::int64_t done, std::int64_t total,
                         double seconds, int columns);

/// Shows the progress of a pass over some samples on stderr: a bar on a terminal, else lines.
class Progress {
 public:
  /// `done` of the `total` samples were processed earlier, and do not count for the rate.
  Progress(std::string label, std::int64_t total, std::int64_t done = 0);
  /// Ends the line of a bar that an exception or interrupt stopped half-way.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Redraws a bar at most ten times a second; without a terminal, prints a line every ten seconds.
  void update(std::int64_t done);
  /// Removes the bar; the caller reports the result.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace firn::train
