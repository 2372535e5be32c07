// What every op of a thread reads before it runs, in one place: one thread-local load where nothing
// is asked for. The state belongs to the forward pass: firn::backward() puts autocast and listeners
// away while it runs (OpMode::Plain), so that what a backward function or a hook computes keeps the
// dtypes that the forward pass has chosen.
//
// Folder law: floor 3. Includes floors 0 to 2 and kernel contracts.
#pragma once

#include <span>

#include "firn/tensor.h"

namespace firn::autograd {

/// Is told of every op of this thread while it is installed. They nest; each is told.
class OpListener {
 public:
  OpListener() noexcept;
  virtual ~OpListener();
  OpListener(const OpListener&) = delete;
  OpListener& operator=(const OpListener&) = delete;
  /// `operands`: those that can take a gradient; some may be undefined.
  virtual void ran(const char* op, std::span<const Tensor* const> operands,
                   const Tensor& output) = 0;
  OpListener* outer() const noexcept { return outer_; }

 private:
  OpListener* outer_;
};

struct OpMode {
  bool autocast = false;
  DType autocast_dtype = f32;  ///< where autocast is on: f16, bf16 or f32
  bool anomaly = false;
  OpListener* listener = nullptr;

  /// Whether an op's result is to be looked at.
  bool watched() const noexcept { return anomaly || listener != nullptr; }

  class Plain;
};

inline thread_local constinit OpMode op_mode;

/// While alive, ops run in the dtypes that come, and no listener is told of them.
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

}  // namespace firn::autograd
