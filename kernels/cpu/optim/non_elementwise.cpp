// The beginning and the end of non-elementwise rules, on the CPU: their inputs, and their new
// states.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/optim/arena.h"
#include "kernels/optim.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kChunk = 8192;  // elements

template <class T>
void inputs(const StepMemory& memory, const OptimizerArena& a, const ParameterRange& range,
            const View& gradient, const View& weight, const View& scalars) {
  const math::StepState& s = state_of(memory);
  const bool applies = s.decision == math::StepStatus::applied &&
                       memory.touched.as<std::uint8_t>()[range.parameter] != 0;
  scalars.as<T>()[0] = static_cast<T>(s.learning_rate * a.lr_scale);
  scalars.as<T>()[1] = static_cast<T>(memory.counts.as<std::int64_t>()[range.parameter] + 1);
  const T factor = static_cast<T>(s.gradient_factor), limit = static_cast<T>(s.value_limit);
  const View& from = a.master.data ? a.master : a.weight;
  parallel_for((range.count + kChunk - 1) / kChunk, 2 * range.count, [&](std::int64_t c) {
    const std::int64_t first = c * kChunk, last = std::min(first + kChunk, range.count);
    const T* g = a.grad.as<T>() + range.begin;
    T* out = gradient.as<T>();
    if (applies) {
      for (std::int64_t i = first; i < last; ++i) out[i] = math::clip_to(g[i] * factor, limit);
    } else {
      std::fill(out + first, out + last, T(0));
    }
    for (std::int64_t done = first; done < last; done += kRow) {
      const std::int64_t n = std::min<std::int64_t>(kRow, last - done);
      T buffer[kRow];
      const T* w =
          load_row(advance(static_cast<const void*>(from.data), from.dtype, range.begin + done),
                   from.dtype, 1, n, buffer);
      std::copy(w, w + n, weight.as<T>() + done);
    }
  });
}

}  // namespace

void optim_inputs(const StepMemory& memory, const OptimizerArena& arena,
                  const ParameterRange& range, const View& gradient, const View& weight,
                  const View& scalars, Stream) {
  if (arena.grad.dtype == DType::f64) {
    inputs<double>(memory, arena, range, gradient, weight, scalars);
  } else {
    inputs<float>(memory, arena, range, gradient, weight, scalars);
  }
}

void optim_commit(const StepMemory& memory, std::span<const StateCommit> states, Stream) {
  if (state_of(memory).decision != math::StepStatus::applied) return;
  const auto* touched = memory.touched.as<std::uint8_t>();
  for (const StateCommit& s : states) {
    if (!touched[s.parameter]) continue;
    const std::int64_t n = s.state.numel();
    const std::size_t size = size_of(s.state.dtype);
    parallel_for((n + kChunk - 1) / kChunk, n, [&](std::int64_t c) {
      const std::int64_t first = c * kChunk, count = std::min(kChunk, n - first);
      std::memcpy(advance(s.state.data, s.state.dtype, first),
                  advance(s.next.data, s.next.dtype, first),
                  static_cast<std::size_t>(count) * size);
    });
  }
}

}  // namespace firn::kernels::cpu::FIRN_ISA
