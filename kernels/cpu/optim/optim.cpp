// Optimizer kernels on the CPU: flat loops that vectorise, over chunks of equal size. Moving 10
// million AdamW parameters is bound by memory: 28 bytes each, plus 4 for the norm.
#include "kernels/optim.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/optim/sum_of_squares.h"
#include "kernels/math/philox.h"
#include "kernels/math/rounding.h"

namespace firn::kernels::cpu {
namespace {

math::StepState& state_of(const StepMemory& memory) { return *memory.state.as<math::StepState>(); }
math::ScheduleTable& schedule_of(const StepMemory& memory) {
  return *memory.schedule.as<math::ScheduleTable>();
}

math::ScalerState& scaler_of(const StepMemory& memory) {
  return *memory.scaler.as<math::ScalerState>();
}

double read_scalar(const ConstView& v) {
  return v.dtype == DType::f64 ? *v.as<double>() : static_cast<double>(*v.as<float>());
}

// The largest magnitude, NaN aside.
template <class T>
double largest_magnitude(const T* g, std::int64_t n) {
  T largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(g[i]));
  return static_cast<double>(largest);
}

// Sum of squares of the averaged gradient, each element limited.
template <class T>
double clipped_sum_of_squares(const T* g, std::int64_t n, double factor, double limit) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = math::clip_to(static_cast<double>(g[i]) * factor, limit);
    sum += v * v;
  }
  return sum;
}

struct NormRequest {
  double factor;      // averages
  double clip_value;  // 0: none
  bool largest;
};

template <class T>
NormPartial norm_of_chunk(const OptimizerArena& a, std::int64_t chunk, const std::uint8_t* touched,
                          const NormRequest& request) {
  NormPartial out{0, 0, 0, -1};
  const double factor = request.factor;
  const double limit = max_of(a.grad.dtype);
  for (std::int64_t i = a.chunk_pieces[chunk]; i < a.chunk_pieces[chunk + 1]; ++i) {
    const Piece& piece = a.pieces[i];
    if (!touched[piece.parameter]) continue;
    const T* g = a.grad.as<T>() + piece.begin;
    const double squares = sum_of_squares(g, piece.count);
    out.sum_of_squares += squares;
    // No value is larger than the root of the sum: as a rule that settles it without a second look.
    if (out.culprit < 0 && !math::stays_finite(squares, std::sqrt(squares), factor, limit) &&
        !math::stays_finite(squares, largest_magnitude(g, piece.count), factor, limit))
      out.culprit = piece.parameter;
    if (request.clip_value > 0)
      out.clipped_squares += clipped_sum_of_squares(g, piece.count, factor, request.clip_value);
    if (request.largest) out.largest = std::max(out.largest, largest_magnitude(g, piece.count));
  }
  return out;
}

// One piece. kStates is a constant, so the loop has one shape per rule, and vectorises.
template <class T, class Rule>
void update_piece(const typename Rule::template Coefficients<T>& k, std::int64_t n, T* __restrict w,
                  const T* __restrict g, T* __restrict s0, T* __restrict s1, T* __restrict s2,
                  T limit) {
  const T factor = k.gradient_factor;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    T weight = w[i];
    T states[kMaxOptimizerStates];
    if constexpr (Rule::kStates > 0) states[0] = s0[i];
    if constexpr (Rule::kStates > 1) states[1] = s1[i];
    if constexpr (Rule::kStates > 2) states[2] = s2[i];
    Rule::template apply<T>(k, weight, math::clip_to(g[i] * factor, limit), states);
    w[i] = weight;
    if constexpr (Rule::kStates > 0) s0[i] = states[0];
    if constexpr (Rule::kStates > 1) s1[i] = states[1];
    if constexpr (Rule::kStates > 2) s2[i] = states[2];
  }
}

// 16-bit weights that are their own masters: the update of rows in f32, rounded stochastically.
template <class Rule>
void update_rounded(const typename Rule::template Coefficients<float>& k, const OptimizerArena& a,
                    const Piece& p, std::uint64_t step, float limit) {
  for (std::int64_t done = 0; done < p.count; done += kRow) {
    const std::int64_t begin = p.begin + done, n = std::min<std::int64_t>(kRow, p.count - done);
    void* stored = advance(a.weight.data, a.weight.dtype, begin);
    float w[kRow];
    load_row(stored, a.weight.dtype, 1, n, w);
    const auto at = [&](const View& v) { return v.data ? v.as<float>() + begin : nullptr; };
    update_piece<float, Rule>(k, n, w, a.grad.as<float>() + begin, at(a.states[0]), at(a.states[1]),
                              at(a.states[2]), limit);
    auto* out = static_cast<std::uint16_t*>(stored);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto element = static_cast<std::uint64_t>(begin + i);
      const std::uint32_t word =
          math::philox(element / 4, step, static_cast<std::uint64_t>(a.index)).word[element % 4];
      const auto bits = std::bit_cast<std::uint32_t>(w[i]);
      out[i] = a.weight.dtype == DType::bf16 ? math::round_stochastic_bf16(bits, word)
                                             : math::round_stochastic_f16(bits, word);
    }
  }
}

template <class T>
void update_average(const OptimizerArena& a, const Piece& p, double decay) {
  const View& weight = a.master.data ? a.master : a.weight;
  const T intake = static_cast<T>(1 - decay);
  for (std::int64_t done = 0; done < p.count; done += kRow) {
    const std::int64_t begin = p.begin + done, n = std::min<std::int64_t>(kRow, p.count - done);
    T buffer[kRow];
    const T* w = load_row(advance(static_cast<const void*>(weight.data), weight.dtype, begin),
                          weight.dtype, 1, n, buffer);
    T* average = a.ema.as<T>() + begin;
    for (std::int64_t i = 0; i < n; ++i)
      average[i] = math::moving_average(average[i], w[i], intake);
  }
}

template <class T, class Rule>
void update_parameter(const StepMemory& memory, const OptimizerArena& a, const Rule& rule,
                      const Piece& p) {
  const math::StepState& s = state_of(memory);
  const auto k = rule.template prepare<T>({s.learning_rate * a.lr_scale, s.gradient_factor,
                                           memory.counts.as<std::int64_t>()[p.parameter] + 1,
                                           a.trust_ratios ? a.trust_ratios[p.parameter] : 1.0});
  const T limit = static_cast<T>(s.value_limit);
  const auto at = [&](const View& v) { return v.data ? v.as<T>() + p.begin : nullptr; };
  if constexpr (std::is_same_v<T, float>) {
    if (!a.master.data && a.weight.dtype != DType::f32)
      return update_rounded<Rule>(k, a, p, static_cast<std::uint64_t>(s.applied), limit);
  }
  T* values = a.master.data ? at(a.master) : at(a.weight);
  update_piece<T, Rule>(k, p.count, values, at(a.grad), at(a.states[0]), at(a.states[1]),
                        at(a.states[2]), limit);
  if (a.master.data)
    store_row(values, advance(a.weight.data, a.weight.dtype, p.begin), a.weight.dtype, 1, p.count);
}

template <class T, class Rule>
void update_chunk(const StepMemory& memory, const OptimizerArena& a, const Rule& rule,
                  const math::StepPolicy& policy, std::int64_t chunk) {
  const auto* touched = memory.touched.as<std::uint8_t>();
  for (std::int64_t i = a.chunk_pieces[chunk]; i < a.chunk_pieces[chunk + 1]; ++i) {
    const Piece& p = a.pieces[i];
    if (touched[p.parameter]) update_parameter<T>(memory, a, rule, p);
    if (a.ema.data) update_average<T>(a, p, policy.ema);
  }
}

template <class T>
void multiply(T* values, std::int64_t n, double factor, std::int64_t chunks) {
  const std::int64_t size = chunks > 0 ? (n + chunks - 1) / chunks : 0;
  parallel_for(chunks, n, [&](std::int64_t c) {
    const std::int64_t end = std::min(n, (c + 1) * size);
    for (std::int64_t i = c * size; i < end; ++i)
      values[i] = static_cast<T>(static_cast<double>(values[i]) * factor);
  });
}

void finish(const StepMemory& memory) {
  math::StepState& s = state_of(memory);
  if (s.decision == math::StepStatus::applied) {
    const auto* touched = memory.touched.as<std::uint8_t>();
    auto* counts = memory.counts.as<std::int64_t>();
    for (std::int64_t p = 0; p < memory.counts.numel(); ++p) counts[p] += touched[p];
  }
  math::finish_cycle(s, schedule_of(memory));
  if (memory.watch) *memory.watch = s.last;
}

void move_scale(std::span<const StepMemory> memories, const math::ScalePolicy& policy) {
  math::ScaleVotes votes;
  for (const StepMemory& m : memories) math::vote(votes, state_of(m));
  math::settle_scale(scaler_of(memories.front()), policy, votes);
}

}  // namespace

void optim_begin(const MicroStep& m, std::span<const OptimizerArena> arenas, Stream) {
  math::StepState& s = state_of(m.memory);
  const double unit = math::begin_micro_step(s, scaler_of(m.memory), m.policy, read_scalar(m.loss),
                                             m.weight.data ? read_scalar(m.weight) : m.host_weight);
  if (s.reexpress != 1)
    for (const OptimizerArena& a : arenas) {
      if (a.grad.dtype == DType::f64) {
        multiply(a.grad.as<double>(), a.grad.numel(), s.reexpress, a.chunks);
      } else {
        multiply(a.grad.as<float>(), a.grad.numel(), s.reexpress, a.chunks);
      }
    }
  if (m.seed.dtype == DType::f64) {
    *m.seed.as<double>() = unit;
  } else {
    *m.seed.as<float>() = static_cast<float>(unit);
  }
}

void optim_norm(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                const math::StepPolicy& policy, Stream) {
  math::StepState& s = state_of(memory);
  const auto* touched = memory.touched.as<std::uint8_t>();
  math::GradientSummary sum;
  sum.any = std::any_of(touched, touched + memory.counts.numel(),
                        [](std::uint8_t received) { return received != 0; });
  if (math::has_gradient(s)) {
    const NormRequest request{math::averaging_factor(s), policy.clip_value,
                              scaler_of(memory).calibrating != 0};
    for (const OptimizerArena& a : arenas) {
      parallel_for(a.chunks, a.grad.numel(), [&](std::int64_t c) {
        a.partials[c] = a.grad.dtype == DType::f64 ? norm_of_chunk<double>(a, c, touched, request)
                                                   : norm_of_chunk<float>(a, c, touched, request);
      });
      for (std::int64_t c = 0; c < a.chunks; ++c) {
        const NormPartial& p = a.partials[c];
        sum.sum_of_squares += p.sum_of_squares;
        sum.clipped_squares += p.clipped_squares;
        sum.largest = std::max(sum.largest, p.largest);
        if (p.culprit >= 0 && (sum.culprit < 0 || p.culprit < sum.culprit)) sum.culprit = p.culprit;
      }
    }
  }
  math::decide(s, policy, sum);
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

void optim_update(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                  const math::StepPolicy& policy, bool moves_scale, Stream) {
  if (state_of(memory).decision != math::StepStatus::applied) arenas = {};
  for (const OptimizerArena& a : arenas) {
    std::visit(
        [&](const auto& rule) {
          const auto update = [&](std::int64_t c) {
            if (a.grad.dtype == DType::f64) {
              update_chunk<double>(memory, a, rule, policy, c);
            } else {
              update_chunk<float>(memory, a, rule, policy, c);
            }
          };
          // The norm's last chunks are still in cache; the first ones are what forward reads next.
          parallel_for(a.chunks, 4 * a.grad.numel(), update, Order::backward);
        },
        a.rule);
  }
  finish(memory);
  if (moves_scale) move_scale(std::span(&memory, 1), policy.scale);
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

void optim_reset(const StepMemory& memory, Stream) { math::reset_cycle(state_of(memory)); }

void optim_set_schedule(const StepMemory& memory, const math::ScheduleTable& schedule, Stream) {
  schedule_of(memory) = schedule;
  math::set_schedule(state_of(memory), schedule);
}

}  // namespace firn::kernels::cpu
