// Handles SIGINT and SIGTERM while a training runs.
#pragma once

namespace firn::train {

/// While one of these objects exists, in any thread, the first signal is noted. A second one acts
/// as it would have without the object. The destructor of the last object restores the handlers.
class Interrupts {
 public:
  explicit Interrupts(bool handle);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Returns true if a signal has come since the first object was made.
  bool came() const noexcept;

 private:
  bool handle_;
};

}  // namespace firn::train
