// The update on the CPU: flat loops that vectorise, over chunks of equal size. Moving 10 million
// AdamW parameters is bound by memory: 28 bytes each, plus 4 for the norm.
#include <algorithm>
#include <bit>
#include <type_traits>
#include <variant>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/optim/arena.h"
#include "kernels/cpu/optim/state_block.h"
#include "kernels/math/philox.h"
#include "kernels/math/rounding.h"
#include "kernels/optim.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

// Updates one piece. kStates is a constant, so the loop has one shape per rule, and vectorises.
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

// Stores weights [begin, begin + n) of a 16-bit arena without masters, rounded stochastically.
void store_stochastic(const OptimizerArena& a, std::int64_t begin, std::int64_t n, const float* w,
                      std::uint64_t step) {
  auto* out = static_cast<std::uint16_t*>(advance(a.weight.data, a.weight.dtype, begin));
  for (std::int64_t i = 0; i < n; ++i) {
    const auto element = static_cast<std::uint64_t>(begin + i);
    const std::uint32_t word =
        math::philox(element / 4, step, static_cast<std::uint64_t>(a.index)).word[element % 4];
    const auto bits = std::bit_cast<std::uint32_t>(w[i]);
    out[i] = a.weight.dtype == DType::bf16 ? math::round_stochastic_bf16(bits, word)
                                           : math::round_stochastic_f16(bits, word);
  }
}

// Updates 16-bit weights without masters: rows are updated in f32 and rounded stochastically.
template <class Rule>
void update_rounded(const typename Rule::template Coefficients<float>& k, const OptimizerArena& a,
                    const Piece& p, std::uint64_t step, float limit) {
  for (std::int64_t done = 0; done < p.count; done += kRow) {
    const std::int64_t begin = p.begin + done, n = std::min<std::int64_t>(kRow, p.count - done);
    float w[kRow];
    load_row(advance(static_cast<const void*>(a.weight.data), a.weight.dtype, begin),
             a.weight.dtype, 1, n, w);
    const auto at = [&](const View& v) { return v.data ? v.as<float>() + begin : nullptr; };
    update_piece<float, Rule>(k, n, w, a.grad.as<float>() + begin, at(a.states[0]), at(a.states[1]),
                              at(a.states[2]), limit);
    store_stochastic(a, begin, n, w, step);
  }
}

// Updates one piece whose states are in 8 bits, block by block. A parameter's last block is
// completed with zeros, which stay zeros. A block is encoded after the update of the next one, so
// that nothing waits for its scale.
template <class Rule>
void update_blocks(const typename Rule::template Coefficients<TileF>& k, const OptimizerArena& a,
                   const Piece& p, std::uint64_t step, float limit) {
  const bool rounds = !a.master.data && a.weight.dtype != DType::f32;
  StateBlock<Rule> blocks[2];
  for (std::int64_t done = 0; done < p.count; done += math::kStateBlock) {
    const std::int64_t begin = p.begin + done;
    const std::int64_t n = std::min<std::int64_t>(math::kStateBlock, p.count - done);
    StateBlock<Rule>& block = blocks[done / math::kStateBlock % 2];
    for (int s = 0; s < Rule::kStates; ++s) {
      block.codes[s] = a.states[s].template as<std::uint8_t>() + begin;
      block.scales[s] = a.scales[s].template as<float>() + begin / math::kStateBlock;
    }
    alignas(64) float weights[math::kStateBlock], gradients[math::kStateBlock];
    float* const master =
        rounds ? nullptr : (a.master.data ? a.master : a.weight).as<float>() + begin;
    const float* g = a.grad.as<float>() + begin;
    float* w = master;
    if (rounds) {
      load_row(advance(static_cast<const void*>(a.weight.data), a.weight.dtype, begin),
               a.weight.dtype, 1, n, weights);
      w = weights;
    }
    if (n < math::kStateBlock) {
      if (!rounds) w = std::copy_n(master, n, weights) - n;
      g = std::copy_n(g, n, gradients) - n;
      std::fill(weights + n, std::end(weights), 0.f);
      std::fill(gradients + n, std::end(gradients), 0.f);
    }
    update_block(k, TileF(limit), w, g, block);
    if (done > 0) blocks[(done / math::kStateBlock - 1) % 2].encode();
    if (done + n == p.count) block.encode();
    if (rounds) {
      store_stochastic(a, begin, n, w, step);
      continue;
    }
    if (w != master) std::copy_n(w, n, master);
    if (a.master.data)
      store_row(w, advance(a.weight.data, a.weight.dtype, begin), a.weight.dtype, 1, n);
  }
}

// Updates one piece whose states are in f32 or f64.
template <class T, class Rule>
void update_elements(const typename Rule::template Coefficients<T>& k, const OptimizerArena& a,
                     const Piece& p, std::uint64_t step, T limit) {
  const auto at = [&](const View& v) { return v.data ? v.as<T>() + p.begin : nullptr; };
  if constexpr (std::is_same_v<T, float>) {
    if (!a.master.data && a.weight.dtype != DType::f32)
      return update_rounded<Rule>(k, a, p, step, limit);
  }
  T* values = a.master.data ? at(a.master) : at(a.weight);
  update_piece<T, Rule>(k, p.count, values, at(a.grad), at(a.states[0]), at(a.states[1]),
                        at(a.states[2]), limit);
  if (a.master.data)
    store_row(values, advance(a.weight.data, a.weight.dtype, p.begin), a.weight.dtype, 1, p.count);
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
  const math::StepInput in{s.learning_rate * a.lr_scale, s.gradient_factor,
                           memory.counts.as<std::int64_t>()[p.parameter] + 1,
                           a.trust_ratios ? a.trust_ratios[p.parameter] : 1.0, s.share};
  const auto step = static_cast<std::uint64_t>(s.applied);
  const T limit = static_cast<T>(math::value_limit(rule, s.value_limit));
  if constexpr (math::kIsEightBit<Rule>) {
    static_assert(std::is_same_v<T, float>);
    update_blocks<Rule>(rule.template prepare<TileF>(in), a, p, step, limit);
  } else {
    update_elements<T, Rule>(rule.template prepare<T>(in), a, p, step, limit);
  }
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

}  // namespace

void optim_update(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                  const math::StepPolicy& policy, bool moves_scale, Stream) {
  if (state_of(memory).decision != math::StepStatus::applied) arenas = {};
  for (const OptimizerArena& a : arenas) {
    std::visit(
        [&](const auto& rule) {
          const auto update = [&](std::int64_t c) {
            if constexpr (!math::kIsEightBit<std::decay_t<decltype(rule)>>)
              if (a.grad.dtype == DType::f64)
                return update_chunk<double>(memory, a, rule, policy, c);
            update_chunk<float>(memory, a, rule, policy, c);
          };
          // The norm's last chunks are still in cache; the forward pass reads the first ones.
          parallel_for(a.chunks, 4 * a.grad.numel(), update, Order::backward);
        },
        a.rule);
  }
  finish(memory);
  if (moves_scale) move_scale(std::span(&memory, 1), policy.scale);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
