// Kernels on the optimizer's state, on the CPU: the initial gradient of a micro-step, joint steps,
// the loss scale and the schedule.
#include <algorithm>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/pending_gradient.h"
#include "kernels/cpu/optim/arena.h"
#include "kernels/math/macros.h"
#include "kernels/optim.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

template <class T>
void multiply(T* values, std::int64_t n, double factor, std::int64_t chunks) {
  const std::int64_t size = chunks > 0 ? math::ceil_div(n, chunks) : 0;
  parallel_for(chunks, n, [&](std::int64_t c) {
    const std::int64_t end = std::min(n, (c + 1) * size);
    for (std::int64_t i = c * size; i < end; ++i)
      values[i] = static_cast<T>(static_cast<double>(values[i]) * factor);
  });
}

}  // namespace

void move_scale(std::span<const StepMemory> memories, const math::ScalePolicy& policy) {
  math::ScaleVotes votes;
  for (const StepMemory& m : memories) math::vote(votes, state_of(m));
  math::settle_scale(scaler_of(memories.front()), policy, votes);
}

void optim_begin(const PendingGradient& pending, std::span<const OptimizerArena> arenas, Stream) {
  const double factor = compute_initial_gradient(pending).reexpress;
  if (factor == 1) return;
  for (const OptimizerArena& a : arenas) {
    if (a.grad.dtype == DType::f64) {
      multiply(a.grad.as<double>(), a.grad.numel(), factor, a.chunks);
    } else {
      multiply(a.grad.as<float>(), a.grad.numel(), factor, a.chunks);
    }
  }
}

void optim_join(std::span<const StepMemory> memories, Stream) {
  bool found = false;
  for (const StepMemory& m : memories)
    found = found || state_of(m).decision == math::StepStatus::skipped_non_finite;
  if (!found) return;
  for (const StepMemory& m : memories)
    if (math::StepState& s = state_of(m); s.decision == math::StepStatus::applied)
      s.decision = math::StepStatus::skipped_partner;
}

void optim_move_scale(std::span<const StepMemory> memories, const math::ScalePolicy& policy,
                      Stream) {
  move_scale(memories, policy);
}

void optim_set_scale(const StepMemory& memory, double scale, const math::ScalePolicy& policy,
                     Stream) {
  math::set_scale(scaler_of(memory), policy, scale);
}

void optim_set_touched(const StepMemory& memory, std::span<const std::uint8_t> touched, Stream) {
  std::copy(touched.begin(), touched.end(), memory.touched.as<std::uint8_t>());
}

void optim_adopt_weights(const ConstView& weight, const View& master, Stream) {
  const std::int64_t n = weight.numel(), chunks = math::ceil_div(n, kRow);
  parallel_for(chunks, n, [&](std::int64_t c) {
    const std::int64_t begin = c * kRow, count = std::min<std::int64_t>(kRow, n - begin);
    float* m = master.as<float>() + begin;
    alignas(64) std::uint16_t rounded[kRow];
    alignas(64) float written[kRow], expected[kRow];
    store_row(m, rounded, weight.dtype, 1, count);
    const float* from_master =
        load_row(static_cast<const void*>(rounded), weight.dtype, 1, count, expected);
    const float* w =
        load_row(advance(weight.data, weight.dtype, begin), weight.dtype, 1, count, written);
    for (std::int64_t i = 0; i < count; ++i)
      if (w[i] != from_master[i]) m[i] = w[i];
  });
}

void optim_reset(const StepMemory& memory, Stream) { math::reset_cycle(state_of(memory)); }

void optim_set_schedule(const StepMemory& memory, const math::ScheduleTable& schedule, Stream) {
  schedule_of(memory) = schedule;
  math::set_schedule(state_of(memory), schedule);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
