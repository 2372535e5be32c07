// The norm of all gradients and the search for values that are not finite, on the CPU.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/optim/arena.h"
#include "kernels/optim.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

// Returns the largest magnitude, NaN aside.
template <class T>
double largest_magnitude(const T* g, std::int64_t n) {
  T largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(g[i]));
  return static_cast<double>(largest);
}

// Returns the sum of squares of the averaged gradient, each element limited.
template <class T>
double clipped_sum_of_squares(const T* g, std::int64_t n, double factor, double limit) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = math::clip_to(static_cast<double>(g[i]) * factor, limit);
    sum += v * v;
  }
  return sum;
}

/// The parameters that count: those with a gradient, and with a flag of `among` if that is given.
struct Counted {
  const std::uint8_t* touched;
  const std::uint8_t* among = nullptr;
  bool operator[](std::int64_t i) const noexcept { return touched[i] && (!among || among[i]); }
};

struct NormRequest {
  double factor;      // factor that averages gradients
  double clip_value;  // 0 for no limit
  bool largest;
};

template <class T>
NormPartial norm_of_chunk(const OptimizerArena& a, std::int64_t chunk, const Counted& counted,
                          const NormRequest& request) {
  NormPartial out{0, 0, 0, -1};
  const double factor = request.factor;
  const double limit = max_of(a.grad.dtype);
  for (std::int64_t i = a.chunk_pieces[chunk]; i < a.chunk_pieces[chunk + 1]; ++i) {
    const Piece& piece = a.pieces[i];
    if (!counted[piece.parameter]) continue;
    const T* g = a.grad.as<T>() + piece.begin;
    const double squares = sum_of_squares(g, piece.count);
    out.sum_of_squares += squares;
    // No value exceeds the root of the sum, which as a rule settles the question without a second
    // pass.
    if (out.culprit < 0 && !math::stays_finite(squares, std::sqrt(squares), factor, limit) &&
        !math::stays_finite(squares, largest_magnitude(g, piece.count), factor, limit))
      out.culprit = piece.parameter;
    if (request.clip_value > 0)
      out.clipped_squares += clipped_sum_of_squares(g, piece.count, factor, request.clip_value);
    if (request.largest) out.largest = std::max(out.largest, largest_magnitude(g, piece.count));
  }
  return out;
}

NormRequest request_of(const StepMemory& memory, const math::StepPolicy& policy) {
  return {math::averaging_factor(state_of(memory)), policy.clip_value,
          scaler_of(memory).calibrating != 0};
}

void fill_partial(const OptimizerArena& a, std::int64_t chunk, const Counted& counted,
                  const NormRequest& request) {
  a.partials[chunk] = a.grad.dtype == DType::f64 ? norm_of_chunk<double>(a, chunk, counted, request)
                                                 : norm_of_chunk<float>(a, chunk, counted, request);
}

/// Returns a summary that only says whether a parameter counts.
math::GradientSummary empty_summary(const StepMemory& memory, const Counted& counted) {
  math::GradientSummary sum;
  sum.any = false;
  for (std::int64_t i = 0; i < memory.counts.numel(); ++i) sum.any = sum.any || counted[i];
  return sum;
}

void add_partials(std::span<const OptimizerArena> arenas, math::GradientSummary& sum) {
  for (const OptimizerArena& a : arenas)
    for (std::int64_t c = 0; c < a.chunks; ++c) {
      const NormPartial& p = a.partials[c];
      sum.sum_of_squares += p.sum_of_squares;
      sum.clipped_squares += p.clipped_squares;
      sum.largest = std::max(sum.largest, p.largest);
      if (p.culprit >= 0 && (sum.culprit < 0 || p.culprit < sum.culprit)) sum.culprit = p.culprit;
    }
}

/// Summarizes the parameters that count.
math::GradientSummary summary_of(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                                 const math::StepPolicy& policy, const Counted& counted) {
  math::GradientSummary sum = empty_summary(memory, counted);
  if (!math::has_gradient(state_of(memory))) return sum;
  const NormRequest request = request_of(memory, policy);
  for (const OptimizerArena& a : arenas)
    parallel_for(a.chunks, a.grad.numel(),
                 [&](std::int64_t c) { fill_partial(a, c, counted, request); });
  add_partials(arenas, sum);
  return sum;
}

}  // namespace

void optim_norm(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                const math::StepPolicy& policy, Stream) {
  math::decide(state_of(memory), policy,
               summary_of(memory, arenas, policy, {memory.touched.as<std::uint8_t>()}));
}

void optim_summarize(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                     const math::StepPolicy& policy, const ConstView& counted,
                     math::GradientSummary& summary, Stream) {
  summary = summary_of(memory, arenas, policy,
                       {memory.touched.as<std::uint8_t>(), counted.as<std::uint8_t>()});
}

void optim_partials(const StepMemory& memory, const OptimizerArena& arena, std::int64_t first,
                    std::int64_t last, const math::StepPolicy& policy, Stream) {
  const NormRequest request = request_of(memory, policy);
  const Counted counted{memory.touched.as<std::uint8_t>()};
  parallel_for(last - first, arena.grad.numel(), [&](std::int64_t i) {
    const std::int64_t c = arena.chunk_order ? arena.chunk_order[first + i] : first + i;
    fill_partial(arena, c, counted, request);
  });
}

void optim_add_partials(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                        math::GradientSummary& summary, Stream) {
  summary = empty_summary(memory, {memory.touched.as<std::uint8_t>()});
  if (math::has_gradient(state_of(memory))) add_partials(arenas, summary);
}

void optim_decide(const StepMemory& memory, const math::StepPolicy& policy,
                  const math::GradientSummary& summary, Stream) {
  math::decide(state_of(memory), policy, summary);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
