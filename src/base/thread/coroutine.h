// A function that can stop in its middle, wherever that is, and go on later.
#pragma once

#include <functional>
#include <memory>

namespace firn {

/// It has a stack of its own, which is that of a thread: user functions, exceptions and sanitizers
/// know no difference. It never runs at the same time as who resumes it. It has the modes and
/// scopes that thread had at the first resume() (base/inherited.h).
class Coroutine {
 public:
  explicit Coroutine(std::function<void()> function);
  /// If the function has stopped in its middle, it is unwound.
  ~Coroutine();
  Coroutine(const Coroutine&) = delete;
  Coroutine& operator=(const Coroutine&) = delete;

  /// Runs the function until it stops (true) or ends (false). Throws what it throws, which ends it.
  /// Throws Error, naming `op`, if the system has no thread for it.
  bool resume(const char* op);
  /// Called by the function: it stops. Does not return if the coroutine is destroyed.
  static void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace firn
