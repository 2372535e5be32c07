// Code that the optimizer's CPU kernels share: the memory of a step by type, and sums of squares.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/optim.h"

namespace firn::kernels::cpu::FIRN_ISA {

inline math::StepState& state_of(const StepMemory& memory) {
  return *memory.state.as<math::StepState>();
}
inline math::ScheduleTable& schedule_of(const StepMemory& memory) {
  return *memory.schedule.as<math::ScheduleTable>();
}

inline math::ScalerState& scaler_of(const StepMemory& memory) {
  return *memory.scaler.as<math::ScalerState>();
}

/// Moves the loss scale that these optimizers share, once.
void move_scale(std::span<const StepMemory> memories, const math::ScalePolicy& policy);

/// Returns the sum of squares, in f64 so that finite f32 values cannot overflow it. It adds lane by
/// lane, in an order that depends on n alone.
template <class T>
double sum_of_squares(const T* g, std::int64_t n) {
  constexpr int kLanes = 8, kRows = 4;
  typedef T Narrow __attribute__((vector_size(kLanes * sizeof(T))));
  typedef double Wide __attribute__((vector_size(kLanes * sizeof(double))));
  Wide sums[kRows] = {};
  std::int64_t i = 0;
  for (; i + kLanes * kRows <= n; i += kLanes * kRows) {
    for (int r = 0; r < kRows; ++r) {
      Narrow x;
      std::memcpy(&x, g + i + r * kLanes, sizeof(x));
      const Wide v = __builtin_convertvector(x, Wide);
      sums[r] += v * v;
    }
  }
  double total = 0;
  for (int r = 0; r < kRows; ++r)
    for (int l = 0; l < kLanes; ++l) total += sums[r][l];
  for (; i < n; ++i) total += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  return total;
}

}  // namespace firn::kernels::cpu::FIRN_ISA
