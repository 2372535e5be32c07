// Trust ratios on CUDA devices: |w| / |u| of each parameter, where u is the coming update. In one
// launch over all arenas, blocks sum piece by piece. The last one adds up every parameter's pieces.
#include "kernels/cuda/optim/arena.cuh"

namespace firn::kernels::cuda {
namespace {

template <class T, class Rule>
__device__ TrustPartial measure_piece(const UpdateArena<Rule>& a, const Piece& piece,
                                      const StepPointers& m) {
  static_assert(Rule::kStates == 2);
  // The previous piece's coefficients are not in use any more: its sums were folded over the block.
  __shared__ typename Rule::template Coefficients<T> k;
  if (threadIdx.x == 0) k = prepare<T>(a, m, piece.parameter, 1.0);
  __syncthreads();
  const T limit = static_cast<T>(m.state->value_limit);
  TrustPartial out{0, 0};
  each_quad(piece, [&](std::int64_t quad) {
    const Quad<T> w = load_weights<T>(a, quad), g = quad_at<T>(a.grad, quad);
    const Quad<T> s0 = quad_at<T>(a.states[0], quad), s1 = quad_at<T>(a.states[1], quad);
    for (int i = 0; i < 4; ++i) {
      T states[2] = {s0.lane[i], s1.lane[i]};
      const T u = Rule::template direction<T>(
          k, w.lane[i], math::clip_to(g.lane[i] * k.gradient_factor, limit), states);
      const double weight = static_cast<double>(w.lane[i]), update = static_cast<double>(u);
      out.weight += weight * weight;
      out.update += update * update;
    }
  });
  return out;
}

/// Computes the ratios of an arena's parameters, whose pieces follow one another, with a warp for
/// each.
template <class Rule>
__device__ void add_up(const UpdateArena<Rule>& a, std::int64_t pieces, const StepPointers& m) {
  const Piece* const p = a.chunks.pieces;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t base = threadIdx.x / kWarp * kWarp; base < pieces; base += blockDim.x) {
    const std::int64_t at = base + lane;
    const bool begins = at < pieces && (at == 0 || p[at - 1].parameter != p[at].parameter);
    for (unsigned left = __ballot_sync(kAllLanes, begins); left != 0; left &= left - 1) {
      const std::int64_t first = base + __ffs(static_cast<int>(left)) - 1;
      const std::int32_t parameter = p[first].parameter;
      TrustPartial sum{0, 0};
      if (m.touched[parameter])
        for (std::int64_t i = first + lane; i < pieces && p[i].parameter == parameter; i += kWarp) {
          sum.weight += a.trust_partials[i].weight;
          sum.update += a.trust_partials[i].update;
        }
      const double weight = warp_fold(sum.weight, Add()), update = warp_fold(sum.update, Add());
      if (lane == 0) a.trust_ratios[parameter] = Rule::trust_ratio(weight, update);
    }
  }
}

/// Each chunk has a block.
template <class Rule>
static __global__ void trust_kernel(const __grid_constant__ UpdateList<Rule> list, StepPointers m) {
  __shared__ double numbers[kWarp];
  if (m.state->decision != math::StepStatus::applied) return;
  const UpdateArena<Rule>& a = list.with_chunk(blockIdx.x);
  const std::int64_t* pieces_of = a.chunks.pieces_of + (blockIdx.x - a.chunks.first);
  for (std::int64_t i = pieces_of[0]; i < pieces_of[1]; ++i) {
    const Piece piece = a.chunks.pieces[i];
    if (!m.touched[piece.parameter]) continue;
    const TrustPartial mine = a.dtype == DType::f64 ? measure_piece<double>(a, piece, m)
                                                    : measure_piece<float>(a, piece, m);
    const double weight = block_fold(mine.weight, 0.0, numbers, Add());
    const double update = block_fold(mine.update, 0.0, numbers, Add());
    if (threadIdx.x == 0) a.trust_partials[i] = {weight, update};
  }
  if (!is_last_block(m.ticket)) return;
  for (int k = 0; k < list.count; ++k) {
    const UpdateArena<Rule>& arena = list.arenas[k];
    const std::int64_t end = k + 1 < list.count ? list.arenas[k + 1].chunks.first : list.chunks;
    add_up(arena, arena.chunks.pieces_of[end - arena.chunks.first], m);
  }
}

}  // namespace

void optim_trust_ratios(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                        Stream stream) {
  while (!arenas.empty()) {
    std::size_t n = 1;
    while (n < arenas.size() && arenas[n].rule.index() == arenas[0].rule.index()) ++n;
    auto these = arenas.first(n);
    arenas = arenas.subspan(n);
    std::visit(
        [&]<class Rule>(const Rule&) {
          if constexpr (math::has_trust_ratio(Rule{})) {
            while (!these.empty()) {
              const auto list = list_of<UpdateList<Rule>>(these, update_arena<Rule>);
              these = these.subspan(static_cast<std::size_t>(list.count));
              if (list.chunks == 0) continue;
              gpu::launch("optim_trust_ratios", trust_kernel<Rule>,
                          dim3(static_cast<unsigned>(list.chunks)), dim3(kBlock), 0, stream, list,
                          pointers_of(memory));
            }
          }
        },
        these.front().rule);
  }
}

}  // namespace firn::kernels::cuda
