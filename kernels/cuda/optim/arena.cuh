// Code that the optimizer's kernels share on CUDA devices: the memory of a step and the arenas as
// their parameters, and the way in which a block finds its work. One launch covers all
// arenas: blocks have one numbering, and every block finds the arena that its chunk belongs to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <variant>

#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/optim.h"

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

/// The chunks of an arena. One numbering covers all arenas of a launch.
struct ArenaChunks {
  const std::int64_t* pieces_of;  ///< [chunks + 1]
  const Piece* pieces;
  std::int64_t first;  ///< number of its first chunk
};

/// Up to kMax arenas as one parameter of a kernel.
template <class Arena, int kMax>
struct ArenaList {
  static constexpr int kCapacity = kMax;

  std::int64_t chunks;  ///< chunks of all arenas
  int count;
  Arena arenas[kMax];

  /// Returns the arena that chunk `chunk` belongs to. Arena has a member `chunks`, an ArenaChunks.
  __device__ const Arena& with_chunk(std::int64_t chunk) const {
    int i = 0;
    while (i + 1 < count && arenas[i + 1].chunks.first <= chunk) ++i;
    return arenas[i];
  }
};

/// Returns the list of as many of `arenas` as fit into one. make(arena) makes each entry.
template <class List, class Make>
List list_of(std::span<const OptimizerArena> arenas, Make&& make) {
  List out{};
  for (const OptimizerArena& a : arenas.first(
           std::min<std::size_t>(arenas.size(), static_cast<std::size_t>(List::kCapacity)))) {
    auto& entry = out.arenas[out.count++];
    entry = make(a);
    entry.chunks = {a.chunk_pieces, a.pieces, out.chunks};
    out.chunks += a.chunks;
  }
  return out;
}

/// Returns element quad * 4 and the next three. An arena's parameters begin at multiples of 64
/// bytes.
template <class T>
__device__ Quad<T>& quad_at(void* data, std::int64_t quad) {
  return lanes_at<Quad<T>>(data, quad);
}
template <class T>
__device__ const Quad<T>& quad_at(const void* data, std::int64_t quad) {
  return lanes_at<Quad<T>>(data, quad);
}

/// Calls fn(quad) for the quads of a piece. The block's threads share them by their place in the
/// arena, so that the small pieces of a chunk go to different warps.
template <class Fn>
__device__ void each_quad(const Piece& piece, Fn&& fn) {
  const std::int64_t begin = piece.begin / 4, end = (piece.begin + piece.count + 3) / 4;
  const std::int64_t threads = blockDim.x;
  std::int64_t quad = begin / threads * threads + threadIdx.x;
  if (quad < begin) quad += threads;
  for (; quad < end; quad += threads) fn(quad);
}

/// Largest number of a rule's states in 8 bits.
inline constexpr int kMaxScaledStates = 2;

/// An arena as the kernels of the update see it. Rule is one of UpdateRule's.
template <class Rule>
struct UpdateArena {
  ArenaChunks chunks;
  void *weight, *master, *grad, *ema;
  void* states[kMaxOptimizerStates];
  float* scales[kMaxScaledStates];
  double* trust_ratios;
  TrustPartial* trust_partials;
  std::int64_t index;
  double lr_scale;
  Rule rule;
  DType dtype;  ///< dtype of the weight
};

template <class Rule>
UpdateArena<Rule> update_arena(const OptimizerArena& a) {
  UpdateArena<Rule> out{};
  out.weight = a.weight.data;
  out.master = a.master.data;
  out.grad = a.grad.data;
  out.ema = a.ema.data;
  for (int i = 0; i < kMaxOptimizerStates; ++i) out.states[i] = a.states[i].data;
  for (int i = 0; i < kMaxScaledStates; ++i) out.scales[i] = static_cast<float*>(a.scales[i].data);
  out.trust_ratios = a.trust_ratios;
  out.trust_partials = a.trust_partials;
  out.index = a.index;
  out.lr_scale = a.lr_scale;
  out.rule = std::get<Rule>(a.rule);
  out.dtype = a.weight.dtype;
  return out;
}

/// 19 arenas of up to 192 bytes take less than 4 KB with the other parameters of a launch.
template <class Rule>
using UpdateList = ArenaList<UpdateArena<Rule>, 19>;
static_assert(sizeof(UpdateList<math::Adam>) <= 3800);

/// Returns the rule's coefficients for this parameter in this step, rounded once to T.
template <class T, class Rule>
__device__ typename Rule::template Coefficients<T> prepare(const UpdateArena<Rule>& a,
                                                           const StepPointers& m,
                                                           std::int32_t parameter,
                                                           double trust_ratio) {
  const math::StepState& s = *m.state;
  return a.rule.template prepare<T>({s.learning_rate * a.lr_scale, s.gradient_factor,
                                     m.counts[parameter] + 1, trust_ratio, s.share});
}

/// Returns the quad of weights that an update starts from: masters, or without masters, the weights
/// themselves, widened.
template <class T, class Rule>
__device__ Quad<T> load_weights(const UpdateArena<Rule>& a, std::int64_t quad) {
  if (a.master) return quad_at<T>(a.master, quad);
  if constexpr (sizeof(T) == 4) {
    Quad<T> out;
    if (a.dtype == DType::f16) {
      const Quad<__half> w = quad_at<__half>(a.weight, quad);
      for (int i = 0; i < 4; ++i) out.lane[i] = widen(w.lane[i]);
      return out;
    }
    if (a.dtype == DType::bf16) {
      const Quad<__nv_bfloat16> w = quad_at<__nv_bfloat16>(a.weight, quad);
      for (int i = 0; i < 4; ++i) out.lane[i] = widen(w.lane[i]);
      return out;
    }
  }
  return quad_at<T>(a.weight, quad);
}

}  // namespace firn::kernels::cuda
