// The modes that every op of a thread reads before it runs: one thread-local load if none is on.
// They belong to the forward pass. firn::backward() switches autocast and listeners off while it
// runs (OpMode::Plain), so that backward functions and hooks keep the dtypes of the forward pass.
// The backward function of custom() runs under the autocast of its forward pass (AutocastScope).
//
// Folder law: floor 3. Includes floors 0 to 2 and kernel contracts.
#pragma once

#include <optional>
#include <span>

#include "firn/tensor.h"

namespace firn::autograd {

/// While alive, is told of every op of this thread. Listeners nest; each of them is told.
class OpListener {
 public:
  OpListener() noexcept;
  virtual ~OpListener();
  OpListener(const OpListener&) = delete;
  OpListener& operator=(const OpListener&) = delete;
  /// `operands` are those that can take a gradient; some may be undefined.
  virtual void ran(const char* op, std::span<const Tensor* const> operands,
                   const Tensor& output) = 0;
  OpListener* outer() const noexcept { return outer_; }

 private:
  OpListener* outer_;
};

struct OpMode {
  bool autocast = false;
  DType autocast_dtype = f32;  ///< if autocast is on: f16, bf16 or f32
  bool anomaly = false;
  OpListener* listener = nullptr;

  /// Whether somebody looks at the results of ops.
  bool watched() const noexcept { return anomaly || listener != nullptr; }

  class Plain;
};

inline thread_local constinit OpMode op_mode;

/// While alive, ops run in the dtypes of their operands, and no listener is told of them.
class OpMode::Plain {
 public:
  Plain() noexcept : saved_(op_mode) {
    op_mode.autocast = false;
    op_mode.listener = nullptr;
  }
  ~Plain() { op_mode = saved_; }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;

 private:
  OpMode saved_;
};

/// The dtype of autocast; nullopt if it is off.
inline std::optional<DType> autocast_mode() noexcept {
  return op_mode.autocast ? std::optional(op_mode.autocast_dtype) : std::nullopt;
}
/// Sets it, and returns what it was.
inline std::optional<DType> exchange_autocast(std::optional<DType> mode) noexcept {
  const std::optional<DType> before = autocast_mode();
  op_mode.autocast = mode.has_value();
  op_mode.autocast_dtype = mode.value_or(f32);
  return before;
}

/// While alive, autocast is as `mode` says.
class AutocastScope {
 public:
  explicit AutocastScope(std::optional<DType> mode) noexcept : before_(exchange_autocast(mode)) {}
  ~AutocastScope() { exchange_autocast(before_); }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  std::optional<DType> before_;
};

}  // namespace firn::autograd
