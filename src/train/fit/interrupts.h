// SIGINT and SIGTERM while a training runs.
#pragma once

namespace firn::train {

/// While one lives, in any thread, the first signal is noted, and a second one acts as it would
/// have without. The last one to go puts the handlers back.
class Interrupts {
 public:
  explicit Interrupts(bool handle);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Whether a signal has come since the first of them was made.
  bool came() const noexcept;

 private:
  bool handle_;
};

}  // namespace firn::train
