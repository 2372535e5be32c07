// The memory of an optimizer's step as a parameter of kernels, and the beginning of a micro-step by
// whichever kernel comes first in it.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/block.cuh"
#include "kernels/plan/step_memory.h"

namespace firn::kernels::cuda {

/// StepMemory as a kernel's parameter.
struct StepPointers {
  math::StepState* state;
  const std::uint8_t* touched;
  std::int64_t* counts;
  const math::ScheduleTable* schedule;
  math::ScalerState* scaler;
  unsigned* ticket;
  math::StepOutcome* watch;
  std::int64_t parameters;
};

inline StepPointers pointers_of(const StepMemory& m) {
  return {m.state.as<math::StepState>(),
          m.touched.as<std::uint8_t>(),
          m.counts.as<std::int64_t>(),
          m.schedule.as<math::ScheduleTable>(),
          m.scaler.as<math::ScalerState>(),
          m.ticket.as<unsigned>(),
          m.watch,
          m.counts.numel()};
}

/// A scalar in f32 or f64.
struct Scalar {
  const void* data;  ///< nullptr: it is `value`
  bool wide;
  double value;

  explicit Scalar(const ConstView& v = {}, double otherwise = 0)
      : data(v.data), wide(v.dtype == DType::f64), value(otherwise) {}

  __device__ double read() const {
    if (!data) return value;
    return wide ? *static_cast<const double*>(data)
                : static_cast<double>(*static_cast<const float*>(data));
  }
};

/// A MicroStep as a kernel's parameter. Every block works out the new state for itself: unit(). The
/// last one to finish writes it, when nobody reads the old one any more: commit().
struct BeginningStep {
  StepPointers m;
  math::StepPolicy policy;
  Scalar loss, weight;
  void* seed = nullptr;  ///< nullptr: no micro-step begins
  bool wide_seed = false;

  explicit BeginningStep(const MicroStep* begins = nullptr) : m() {
    if (!begins) return;
    m = pointers_of(begins->memory);
    policy = begins->policy;
    loss = Scalar(begins->loss);
    weight = Scalar(begins->weight, begins->host_weight);
    seed = begins->seed.data;
    wide_seed = begins->seed.dtype == DType::f64;
  }

  /// The seed of the backward pass; `s` is the state as it will be. For one thread.
  __device__ double unit(math::StepState& s) const {
    s = *m.state;
    return math::begin_micro_step(s, *m.scaler, policy, loss.read(), weight.read());
  }
  /// To be called by all threads of all blocks, after their last look at the state.
  __device__ void commit() const {
    if (!is_last_block(m.ticket) || threadIdx.x != 0) return;
    math::StepState s;
    const double value = unit(s);
    *m.state = s;
    if (wide_seed) {
      *static_cast<double*>(seed) = value;
    } else {
      *static_cast<float*>(seed) = static_cast<float>(value);
    }
  }
};

}  // namespace firn::kernels::cuda
