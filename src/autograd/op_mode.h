// The modes that every op of a thread reads before it runs, which cost one thread-local load if
// none is on. They apply to the forward pass. firn::backward() switches autocast and listeners off
// (OpMode::Plain), so that backward functions and hooks keep the dtypes of the forward pass. The
// backward function of custom() runs under the autocast mode of its forward pass (AutocastScope).
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "firn/tensor.h"
#include "firn/thread_context.h"

namespace firn::autograd {

/// While alive, receives every op of the thread that made it, as do the thread's other listeners.
/// Listeners may end in any order and in any thread.
class OpListener {
 public:
  OpListener();
  virtual ~OpListener();
  OpListener(const OpListener&) = delete;
  OpListener& operator=(const OpListener&) = delete;
  /// Called after an op has run. `operands` are those that can take a gradient; some may be
  /// undefined.
  virtual void ran(const char* op, std::span<const Tensor* const> operands,
                   const Tensor& output) = 0;

  struct Place;

 protected:
  /// Stops listening. The destructor of a derived class must call it first, so that no other thread
  /// is inside ran() while members are destroyed.
  void stop() noexcept;

 private:
  std::shared_ptr<Place> place_;
};

/// While alive, ops run in the dtypes of their operands, and no listener is notified.
class OpMode::Plain {
 public:
  Plain() noexcept
      : autocast_(thread_context.op_mode.autocast),
        dtype_(thread_context.op_mode.autocast_dtype),
        first_(thread_context.op_mode.first) {
    thread_context.op_mode.autocast = false;
    thread_context.op_mode.first = thread_context.op_mode.listeners;
  }
  ~Plain() {
    thread_context.op_mode.autocast = autocast_;
    thread_context.op_mode.autocast_dtype = dtype_;
    thread_context.op_mode.first = first_;
  }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;

 private:
  bool autocast_;
  DType dtype_;
  int first_;
};

/// The dtype of autocast; nullopt if it is off.
inline std::optional<DType> autocast_mode() noexcept {
  return thread_context.op_mode.autocast ? std::optional(thread_context.op_mode.autocast_dtype)
                                         : std::nullopt;
}
/// Sets the autocast mode, and returns the previous one.
inline std::optional<DType> exchange_autocast(std::optional<DType> mode) noexcept {
  const std::optional<DType> before = autocast_mode();
  thread_context.op_mode.autocast = mode.has_value();
  thread_context.op_mode.autocast_dtype = mode.value_or(f32);
  return before;
}

/// While alive, the autocast mode is `mode`.
class AutocastScope {
 public:
  explicit AutocastScope(std::optional<DType> mode) noexcept : before_(exchange_autocast(mode)) {}
  ~AutocastScope() { exchange_autocast(before_); }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  std::optional<DType> before_;
};

/// Notifies the listeners of this thread of an op.
void notify_listeners(const char* op, std::span<const Tensor* const> operands,
                      const Tensor& output);

}  // namespace firn::autograd
