// The update on CUDA devices: one pass over weights, masters, gradients, states and averages, in
// one launch over all arenas, whose last block ends the cycle. Whether there is an update at all is
// read from StepState.
#include "kernels/cuda/optim/arena.cuh"
#include "kernels/math/philox.h"
#include "kernels/math/rounding.h"

namespace firn::kernels::cuda {
namespace {

/// Number of pieces whose coefficients are computed at a time, by a thread each.
constexpr int kBatch = 32;

/// Values that all elements of a step share.
struct Step {
  double limit;    ///< limit of the averaged gradient's elements
  double average;  ///< intake of the moving average
  std::uint64_t applied;
};

/// Stores the 16-bit copy of masters, rounded to nearest.
template <class H>
__device__ void store_rounded(const Quad<float>& w, void* weights, std::int64_t quad) {
  Quad<H> out;
  for (int i = 0; i < 4; ++i) narrow(w.lane[i], out.lane[i]);
  quad_at<H>(weights, quad) = out;
}

/// Stores 16-bit weights without masters, rounded stochastically. One Philox block serves a quad. w
/// becomes the stored values.
template <class H>
__device__ void store_stochastic(Quad<float>& w, void* weights, std::int64_t quad,
                                 std::int64_t arena, std::uint64_t applied) {
  const math::PhiloxBlock words =
      math::philox(static_cast<std::uint64_t>(quad), applied, static_cast<std::uint64_t>(arena));
  Quad<std::uint16_t> out;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t bits = __float_as_uint(w.lane[i]);
    out.lane[i] = std::is_same_v<H, __half> ? math::round_stochastic_f16(bits, words.word[i])
                                            : math::round_stochastic_bf16(bits, words.word[i]);
  }
  quad_at<std::uint16_t>(weights, quad) = out;
  const Quad<H> stored = quad_at<H>(weights, quad);
  for (int i = 0; i < 4; ++i) w.lane[i] = widen(stored.lane[i]);
}

/// Stores the new weights; w becomes the start of the next step.
template <class T, class Rule>
__device__ void store_weights(const UpdateArena<Rule>& a, std::int64_t quad, Quad<T>& w,
                              std::uint64_t applied) {
  if constexpr (sizeof(T) == 4) {
    if (a.master) {
      quad_at<T>(a.master, quad) = w;
      return a.dtype == DType::f16 ? store_rounded<__half>(w, a.weight, quad)
                                   : store_rounded<__nv_bfloat16>(w, a.weight, quad);
    }
    if (a.dtype == DType::f16) return store_stochastic<__half>(w, a.weight, quad, a.index, applied);
    if (a.dtype == DType::bf16)
      return store_stochastic<__nv_bfloat16>(w, a.weight, quad, a.index, applied);
  }
  quad_at<T>(a.weight, quad) = w;
}

/// Updates four elements: weights, states and the copy for the model.
template <class T, class Rule>
__device__ void update_quad(const UpdateArena<Rule>& a,
                            const typename Rule::template Coefficients<T>& k, const Step& step,
                            std::int64_t quad, Quad<T>& w) {
  const Quad<T> g = quad_at<T>(a.grad, quad);
  Quad<T> states[kMaxOptimizerStates];
  for (int s = 0; s < Rule::kStates; ++s) states[s] = quad_at<T>(a.states[s], quad);
  for (int i = 0; i < 4; ++i) {
    T state[kMaxOptimizerStates];
    for (int s = 0; s < Rule::kStates; ++s) state[s] = states[s].lane[i];
    Rule::template apply<T>(
        k, w.lane[i], math::clip_to(g.lane[i] * k.gradient_factor, static_cast<T>(step.limit)),
        state);
    for (int s = 0; s < Rule::kStates; ++s) states[s].lane[i] = state[s];
  }
  for (int s = 0; s < Rule::kStates; ++s) quad_at<T>(a.states[s], quad) = states[s];
  store_weights(a, quad, w, step.applied);
}

template <class T>
__device__ void average_quad(void* averages, T intake, std::int64_t quad, const Quad<T>& w) {
  Quad<T> e = quad_at<T>(averages, quad);
  for (int i = 0; i < 4; ++i) e.lane[i] = math::moving_average(e.lane[i], w.lane[i], intake);
  quad_at<T>(averages, quad) = e;
}

// ---- States in 8 bits ----

/// The values of both codes' bytes.
struct CodeValues {
  float of_signed[256], of_unsigned[256];

  __device__ void fill() {
    for (int byte = static_cast<int>(threadIdx.x); byte < 256;
         byte += static_cast<int>(blockDim.x)) {
      of_signed[byte] =
          math::DynamicCode<true>::decode(static_cast<float>(static_cast<std::int8_t>(byte)));
      of_unsigned[byte] = math::DynamicCode<false>::decode(static_cast<float>(byte));
    }
    __syncthreads();
  }
};

struct Larger {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

/// A warp updates one block of states; the quads up to `end` are the piece's. Each lane has two
/// quads, whose new states wait in registers for the block's scale.
template <class Rule>
__device__ void update_block(const UpdateArena<Rule>& a,
                             const typename Rule::template Coefficients<float>& k,
                             const CodeValues& values, const Step& step, std::int64_t block,
                             std::int64_t end) {
  constexpr int kQuads = math::kStateBlock / 4 / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t first = block * (math::kStateBlock / 4) + lane;
  Quad<float> states[Rule::kStates][kQuads];
  float scales[Rule::kStates], largest[Rule::kStates];
  for (int s = 0; s < Rule::kStates; ++s) {
    scales[s] = a.scales[s][block];
    largest[s] = 0;
  }
#pragma unroll
  for (int h = 0; h < kQuads; ++h) {
    const std::int64_t quad = first + h * kWarp;
    if (quad >= end) continue;
    Quad<float> w = load_weights<float>(a, quad);
    const Quad<float> g = quad_at<float>(a.grad, quad);
    for (int s = 0; s < Rule::kStates; ++s) {
      const Quad<std::uint8_t> codes = quad_at<std::uint8_t>(a.states[s], quad);
      const float* const value = Rule::state_is_signed(s) ? values.of_signed : values.of_unsigned;
      for (int i = 0; i < 4; ++i) states[s][h].lane[i] = value[codes.lane[i]] * scales[s];
    }
    for (int i = 0; i < 4; ++i) {
      float state[Rule::kStates];
      for (int s = 0; s < Rule::kStates; ++s) state[s] = states[s][h].lane[i];
      Rule::template apply<float>(
          k, w.lane[i],
          math::clip_to(g.lane[i] * k.gradient_factor, static_cast<float>(step.limit)), state);
      for (int s = 0; s < Rule::kStates; ++s) {
        states[s][h].lane[i] = state[s];
        largest[s] = Larger()(math::abs(state[s]), largest[s]);
      }
    }
    store_weights(a, quad, w, step.applied);
    if (a.ema) average_quad<float>(a.ema, static_cast<float>(step.average), quad, w);
  }
#pragma unroll
  for (int s = 0; s < Rule::kStates; ++s) {
    const math::BlockScale scale = math::block_scale(warp_fold(largest[s], Larger()));
    __syncwarp();  // every lane has read the old scale
    if (lane == 0) a.scales[s][block] = scale.scale;
#pragma unroll
    for (int h = 0; h < kQuads; ++h) {
      const std::int64_t quad = first + h * kWarp;
      if (quad >= end) continue;
      Quad<std::uint8_t> codes;
      for (int i = 0; i < 4; ++i) {
        const float x = states[s][h].lane[i] * scale.inverse;
        const float code = Rule::state_is_signed(s) ? math::DynamicCode<true>::encode(x)
                                                    : math::DynamicCode<false>::encode(x);
        codes.lane[i] = static_cast<std::uint8_t>(static_cast<int>(code));
      }
      quad_at<std::uint8_t>(a.states[s], quad) = codes;
    }
  }
}

/// Updates a piece that has received a gradient. A block's place in the arena decides its warp.
template <class Rule>
__device__ void update_blocks(const UpdateArena<Rule>& a,
                              const typename Rule::template Coefficients<float>& k,
                              const CodeValues& values, const Step& step, const Piece& piece) {
  const std::int64_t begin = piece.begin / math::kStateBlock;
  const std::int64_t end = math::ceil_div(piece.begin + piece.count, math::kStateBlock);
  const std::int64_t warps = blockDim.x / kWarp;
  std::int64_t block = begin / warps * warps + threadIdx.x / kWarp;
  if (block < begin) block += warps;
  for (; block < end; block += warps)
    update_block(a, k, values, step, block, (piece.begin + piece.count + 3) / 4);
}

/// Updates a piece that has received a gradient, or moves its average alone.
template <class T, class Rule>
__device__ void update_piece(const UpdateArena<Rule>& a,
                             const typename Rule::template Coefficients<T>& k, const Step& step,
                             const Piece& piece, bool touched, const CodeValues* values) {
  if constexpr (math::kIsEightBit<Rule>)
    if (touched) return update_blocks(a, k, *values, step, piece);
  each_quad(piece, [&](std::int64_t quad) {
    Quad<T> w = load_weights<T>(a, quad);
    if constexpr (!math::kIsEightBit<Rule>)
      if (touched) update_quad<T>(a, k, step, quad, w);
    if (a.ema) average_quad<T>(a.ema, static_cast<T>(step.average), quad, w);
  });
}

template <class T, class Rule>
__device__ void update_chunk(const UpdateArena<Rule>& a, std::int64_t chunk, const StepPointers& m,
                             const Step& step, const CodeValues* values) {
  __shared__ typename Rule::template Coefficients<T> coefficients[kBatch];
  const std::int64_t first = a.chunks.pieces_of[chunk], last = a.chunks.pieces_of[chunk + 1];
  for (std::int64_t base = first; base < last; base += kBatch) {
    const int n = static_cast<int>(math::min(last - base, static_cast<std::int64_t>(kBatch)));
    const int mine = static_cast<int>(threadIdx.x);
    __syncthreads();  // the previous coefficients may be in use
    if (mine < n) {
      const std::int32_t p = a.chunks.pieces[base + mine].parameter;
      coefficients[mine] = prepare<T>(a, m, p, a.trust_ratios ? a.trust_ratios[p] : 1.0);
    }
    __syncthreads();
    for (int i = 0; i < n; ++i) {
      const Piece piece = a.chunks.pieces[base + i];
      const bool touched = m.touched[piece.parameter];
      if (!touched && !a.ema) continue;
      update_piece<T>(a, coefficients[i], step, piece, touched, values);
    }
  }
}

// ---- The end of the cycle ----

enum class Ending : int { none, cycle, cycle_and_scale };

__device__ inline void finish(const StepPointers& m, const math::StepPolicy& policy,
                              Ending ending) {
  if (m.state->decision == math::StepStatus::applied)
    for (std::int64_t p = threadIdx.x; p < m.parameters; p += blockDim.x)
      m.counts[p] += m.touched[p];
  __syncthreads();  // the decision is forgotten next
  if (threadIdx.x != 0) return;
  math::finish_cycle(*m.state, *m.schedule);
  if (ending == Ending::cycle_and_scale) {
    math::ScaleVotes votes;
    math::vote(votes, *m.state);
    math::settle_scale(*m.scaler, policy.scale, votes);
  }
  if (m.watch) {
    *m.watch = m.state->last;
    __threadfence_system();
  }
}

/// Each chunk has a block. If the state is sharded over ranks, this one may have none of it: then
/// one block ends the cycle. kAny is true if there may be f64 arenas.
template <class Rule, bool kAny>
static __global__ void update_kernel(const __grid_constant__ UpdateList<Rule> list, StepPointers m,
                                     math::StepPolicy policy, Ending ending) {
  const math::StepState& s = *m.state;
  if (s.decision == math::StepStatus::applied && list.chunks > 0) {
    const Step step{math::value_limit(Rule{}, s.value_limit), 1 - policy.ema,
                    static_cast<std::uint64_t>(s.applied)};
    const UpdateArena<Rule>& a = list.with_chunk(blockIdx.x);
    const std::int64_t chunk = blockIdx.x - a.chunks.first;
    if constexpr (math::kIsEightBit<Rule>) {
      __shared__ CodeValues values;
      values.fill();
      update_chunk<float>(a, chunk, m, step, &values);
    } else if (kAny && a.dtype == DType::f64) {
      if constexpr (kAny) update_chunk<double>(a, chunk, m, step, nullptr);
    } else {
      update_chunk<float>(a, chunk, m, step, nullptr);
    }
  }
  if (ending == Ending::none) return;
  if (!is_last_block(m.ticket)) return;
  finish(m, policy, ending);
}

template <class Rule>
void update_arenas(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                   const math::StepPolicy& policy, Ending ending, Stream stream) {
  [[maybe_unused]] const auto is_wide = [](const OptimizerArena& a) {
    return a.weight.dtype == DType::f64;
  };
  while (!arenas.empty()) {
    const auto list = list_of<UpdateList<Rule>>(arenas, update_arena<Rule>);
    const auto these = arenas.first(static_cast<std::size_t>(list.count));
    arenas = arenas.subspan(these.size());
    auto kernel = update_kernel<Rule, false>;
    if constexpr (!math::kIsEightBit<Rule>)
      if (std::any_of(these.begin(), these.end(), is_wide)) kernel = update_kernel<Rule, true>;
    const Ending here = arenas.empty() ? ending : Ending::none;
    if (list.chunks == 0 && here == Ending::none) continue;
    const auto blocks = static_cast<unsigned>(std::max<std::int64_t>(list.chunks, 1));
    gpu::launch("optim_update", kernel, dim3(blocks), dim3(kBlock), 0, stream, list,
                pointers_of(memory), policy, here);
  }
}

}  // namespace

void optim_update(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                  const math::StepPolicy& policy, bool moves_scale, Stream stream) {
  // Arenas of one rule share a launch. Usually all arenas of an optimizer have one rule.
  while (!arenas.empty()) {
    std::size_t n = 1;
    while (n < arenas.size() && arenas[n].rule.index() == arenas[0].rule.index()) ++n;
    const auto these = arenas.first(n);
    arenas = arenas.subspan(n);
    const Ending ending = !arenas.empty() ? Ending::none
                          : moves_scale   ? Ending::cycle_and_scale
                                          : Ending::cycle;
    std::visit([&]<class Rule>(
                   const Rule&) { update_arenas<Rule>(memory, these, policy, ending, stream); },
               these.front().rule);
  }
}

}  // namespace firn::kernels::cuda
