// A function that can stop at any point, and continue later.
#pragma once

#include <functional>
#include <memory>

namespace firn {

/// The function has a thread's stack of its own, so user functions, exceptions and sanitizers see
/// no difference. It never runs at the same time as its caller. It has the modes and scopes that
/// the caller's thread had at the first resume() (base/thread/inherited.h).
class Coroutine {
 public:
  explicit Coroutine(std::function<void()> function);
  /// Unwinds the function if it has stopped in its middle.
  ~Coroutine();
  Coroutine(const Coroutine&) = delete;
  Coroutine& operator=(const Coroutine&) = delete;

  /// Runs the function until it stops (true) or ends (false). Throws what it throws, which ends it.
  /// Throws Error, naming `op`, if the system has no thread for it.
  bool resume(const char* op);
  /// Stops the function that calls it. Does not return if the coroutine is destroyed.
  static void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace firn
