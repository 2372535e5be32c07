// Progress of an epoch on stderr: a bar on a terminal, else a line every ten seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace firn::train {

/// Whether control bytes may be sent to a file descriptor: it is a terminal, not a dumb one, and
/// the user has not turned colours off (no-color.org).
bool may_draw(int file_descriptor) noexcept;

/// 60000 as "60,000".
std::string grouped(std::int64_t n);

/// "epoch 1/5  45%  51200 samples/s  ETA 0:03": a line without control bytes. The share is 0 to
/// 100 %, also of more than `total`.
std::string progress_line(const std::string& label, std::int64_t done, std::int64_t total,
                          double seconds);

/// The same with a bar, at most `columns` characters. What does not fit is left out: first the bar
/// is shortened, then dropped, then rate and time, then the label.
std::string progress_bar(const std::string& label, std::int64_t done, std::int64_t total,
                         double seconds, int columns);

/// The progress of a pass over some samples, on stderr: a bar on a terminal, else lines.
class Progress {
 public:
  /// `done` of the `total` samples were done before, and do not count for the rate.
  Progress(std::string label, std::int64_t total, std::int64_t done = 0);
  /// Ends the line of a bar that an exception or interrupt stopped half-way.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Redraws at most ten times a second; elsewhere prints a line every ten seconds.
  void update(std::int64_t done);
  /// Removes the bar; the caller reports the result.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace firn::train
