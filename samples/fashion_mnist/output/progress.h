// Progress of an epoch on stderr: a bar on a terminal, else a line every ten seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace sample {

/// "epoch 1/5  45%  51200 samples/s  ETA 0:03": a line without control bytes.
std::string progress_line(const std::string& label, std::int64_t done, std::int64_t total,
                          double seconds);

/// The same with a bar, at most `columns` characters. What does not fit is left out: first the bar
/// is shortened, then dropped, then rate and time, then the label.
std::string progress_bar(const std::string& label, std::int64_t done, std::int64_t total,
                         double seconds, int columns);

class Progress {
 public:
  /// `total` samples will be done.
  Progress(std::string label, std::int64_t total);
  /// Ends the line of a bar that an exception or interrupt stopped half-way.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Redraws at most ten times a second; elsewhere prints a line every ten seconds.
  void update(std::int64_t done);
  /// Removes the bar; the caller reports the result.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(std::int64_t done, Clock::time_point now);

  std::string label_;
  std::int64_t total_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_;
};

}  // namespace sample
