// Trust ratios on the CPU: |w| / |u| of each parameter, where u is the coming update. A pass over
// the arena reads weights, gradients and states once. Sums are made piece by piece, and added up in
// order.
#include <algorithm>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/optim/arena.h"
#include "kernels/optim.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

// Measures one piece, a row at a time: the directions vectorise, and are summed while in the L1
// cache.
template <class T, class Rule>
TrustPartial measure_piece(const OptimizerArena& a, const Piece& p,
                           const typename Rule::template Coefficients<T>& k, T limit) {
  static_assert(Rule::kStates == 2);
  TrustPartial out{0, 0};
  const View& weight = a.master.data ? a.master : a.weight;
  for (std::int64_t done = 0; done < p.count; done += kRow) {
    const std::int64_t at = p.begin + done, n = std::min<std::int64_t>(kRow, p.count - done);
    T buffer[kRow], update[kRow];
    const T* w = load_row(advance(static_cast<const void*>(weight.data), weight.dtype, at),
                          weight.dtype, 1, n, buffer);
    const T* g = a.grad.as<T>() + at;
    const T* s0 = a.states[0].as<T>() + at;
    const T* s1 = a.states[1].as<T>() + at;
    const T factor = k.gradient_factor;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      T states[2] = {s0[i], s1[i]};
      update[i] = Rule::template direction<T>(k, w[i], math::clip_to(g[i] * factor, limit), states);
    }
    out.weight += sum_of_squares(w, n);
    out.update += sum_of_squares(update, n);
  }
  return out;
}

template <class T, class Rule>
void measure_arena(const StepMemory& memory, const OptimizerArena& a, const Rule& rule) {
  const auto& s = *memory.state.as<math::StepState>();
  const auto* touched = memory.touched.as<std::uint8_t>();
  const auto* counts = memory.counts.as<std::int64_t>();
  parallel_for(a.chunks, 4 * a.grad.numel(), [&](std::int64_t c) {
    for (std::int64_t i = a.chunk_pieces[c]; i < a.chunk_pieces[c + 1]; ++i) {
      const Piece& p = a.pieces[i];
      if (!touched[p.parameter]) continue;
      a.trust_partials[i] = measure_piece<T, Rule>(
          a, p,
          rule.template prepare<T>(
              {s.learning_rate * a.lr_scale, s.gradient_factor, counts[p.parameter] + 1, 1.0}),
          static_cast<T>(s.value_limit));
    }
  });
  const std::int64_t pieces = a.chunk_pieces[a.chunks];
  for (std::int64_t i = 0; i < pieces;) {
    const std::int32_t parameter = a.pieces[i].parameter;
    TrustPartial sum{0, 0};
    for (; i < pieces && a.pieces[i].parameter == parameter; ++i) {
      if (!touched[parameter]) continue;
      sum.weight += a.trust_partials[i].weight;
      sum.update += a.trust_partials[i].update;
    }
    a.trust_ratios[parameter] = Rule::trust_ratio(sum.weight, sum.update);
  }
}

}  // namespace

void optim_trust_ratios(const StepMemory& memory, std::span<const OptimizerArena> arenas, Stream) {
  if (memory.state.as<math::StepState>()->decision != math::StepStatus::applied) return;
  for (const OptimizerArena& a : arenas) {
    std::visit(
        [&](const auto& rule) {
          using Rule = std::decay_t<decltype(rule)>;
          if constexpr (math::has_trust_ratio(Rule{})) {
            if (a.grad.dtype == DType::f64) {
              measure_arena<double>(memory, a, rule);
            } else {
              measure_arena<float>(memory, a, rule);
            }
          }
        },
        a.rule);
  }
}

}  // namespace firn::kernels::cpu::FIRN_ISA
