// Optimizer kernels on the CPU: flat loops that vectorise, over chunks of equal size. Moving 10
// million AdamW parameters is bound by memory: 32 bytes each, plus 4 for the norm.
#include "kernels/optim.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/sum_of_squares.h"

namespace firn::kernels::cpu {
namespace {

math::StepState& state_of(const StepMemory& memory) { return *memory.state.as<math::StepState>(); }
math::ScheduleTable& schedule_of(const StepMemory& memory) {
  return *memory.schedule.as<math::ScheduleTable>();
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

template <class T>
NormPartial norm_of_chunk(const OptimizerArena& a, std::int64_t chunk, const std::uint8_t* touched,
                          double factor) {
  NormPartial out{0, -1};
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
  }
  return out;
}

// One piece. kStates is a constant, so the loop has one shape per rule, and vectorises.
template <class T, class Rule>
void update_piece(const typename Rule::template Coefficients<T>& k, std::int64_t n, T* __restrict w,
                  T* __restrict g, T* __restrict s0, T* __restrict s1, T* __restrict s2) {
  const T factor = k.gradient_factor;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    T weight = w[i];
    T states[kMaxOptimizerStates];
    if constexpr (Rule::kStates > 0) states[0] = s0[i];
    if constexpr (Rule::kStates > 1) states[1] = s1[i];
    if constexpr (Rule::kStates > 2) states[2] = s2[i];
    Rule::template apply<T>(k, weight, g[i] * factor, states);
    w[i] = weight;
    g[i] = 0;
    if constexpr (Rule::kStates > 0) s0[i] = states[0];
    if constexpr (Rule::kStates > 1) s1[i] = states[1];
    if constexpr (Rule::kStates > 2) s2[i] = states[2];
  }
}

template <class T, class Rule>
void update_chunk(const StepMemory& memory, const OptimizerArena& a, const Rule& rule,
                  std::int64_t chunk) {
  const math::StepState& s = state_of(memory);
  const auto* touched = memory.touched.as<std::uint8_t>();
  const auto* counts = memory.counts.as<std::int64_t>();
  T* values = a.master.data ? a.master.as<T>() : a.weight.as<T>();
  T* grad = a.grad.as<T>();
  for (std::int64_t i = a.chunk_pieces[chunk]; i < a.chunk_pieces[chunk + 1]; ++i) {
    const Piece& p = a.pieces[i];
    if (!touched[p.parameter]) continue;
    if (s.decision != math::StepStatus::applied) {
      std::fill_n(grad + p.begin, p.count, T(0));
      continue;
    }
    const auto k = rule.template prepare<T>(
        {s.learning_rate * a.lr_scale, s.gradient_factor, counts[p.parameter] + 1,
         a.trust_ratios ? a.trust_ratios[p.parameter] : 1.0});
    const auto at = [&](const View& v) { return v.data ? v.as<T>() + p.begin : nullptr; };
    update_piece<T, Rule>(k, p.count, values + p.begin, grad + p.begin, at(a.states[0]),
                          at(a.states[1]), at(a.states[2]));
    if (a.master.data)
      store_row(values + p.begin, advance(a.weight.data, a.weight.dtype, p.begin), a.weight.dtype,
                1, p.count);
  }
}

}  // namespace

void optim_begin(const StepMemory& memory, const View& seed, const ConstView& weight,
                 double host_weight, Stream) {
  const double scale =
      math::begin_micro_step(state_of(memory), weight.data ? read_scalar(weight) : host_weight);
  if (seed.dtype == DType::f64) {
    *seed.as<double>() = scale;
  } else {
    *seed.as<float>() = static_cast<float>(scale);
  }
}

void optim_norm(const StepMemory& memory, std::span<const OptimizerArena> arenas, double clip_norm,
                Stream) {
  math::StepState& s = state_of(memory);
  const auto* touched = memory.touched.as<std::uint8_t>();
  double sum_of_squares = 0;
  std::int64_t culprit = -1;
  if (math::has_gradient(s)) {
    const double factor = math::averaging_factor(s);
    for (const OptimizerArena& a : arenas) {
      parallel_for(a.chunks, a.grad.numel(), [&](std::int64_t c) {
        a.partials[c] = a.grad.dtype == DType::f64 ? norm_of_chunk<double>(a, c, touched, factor)
                                                   : norm_of_chunk<float>(a, c, touched, factor);
      });
      for (std::int64_t c = 0; c < a.chunks; ++c) {
        const NormPartial& p = a.partials[c];
        sum_of_squares += p.sum_of_squares;
        if (p.culprit >= 0 && (culprit < 0 || p.culprit < culprit)) culprit = p.culprit;
      }
    }
  }
  math::decide(s, sum_of_squares, culprit, clip_norm);
}

void optim_update(const StepMemory& memory, std::span<const OptimizerArena> arenas, Stream) {
  for (const OptimizerArena& a : arenas) {
    std::visit(
        [&](const auto& rule) {
          parallel_for(a.chunks, 4 * a.grad.numel(), [&](std::int64_t c) {
            if (a.grad.dtype == DType::f64) {
              update_chunk<double>(memory, a, rule, c);
            } else {
              update_chunk<float>(memory, a, rule, c);
            }
          });
        },
        a.rule);
  }
}

void optim_finish(const StepMemory& memory, Stream) {
  math::StepState& s = state_of(memory);
  if (s.decision == math::StepStatus::applied) {
    const auto* touched = memory.touched.as<std::uint8_t>();
    auto* counts = memory.counts.as<std::int64_t>();
    for (std::int64_t p = 0; p < memory.counts.numel(); ++p) counts[p] += touched[p];
  }
  math::finish_cycle(s, schedule_of(memory));
}

void optim_reset(const StepMemory& memory, Stream) { math::reset_cycle(state_of(memory)); }

void optim_set_schedule(const StepMemory& memory, const math::ScheduleTable& schedule, Stream) {
  schedule_of(memory) = schedule;
  math::set_schedule(state_of(memory), schedule);
}

}  // namespace firn::kernels::cpu
