// The norm of all gradients and the search for values that are not finite, on CUDA devices, in one
// launch over all arenas. Every block sums a run of chunks. The last one to finish adds up the
// blocks' results, and decides the step or reports to the host.
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/stream.h"
#include "kernels/cuda/optim/arena.cuh"
#include "kernels/math/macros.h"

namespace firn::kernels::cuda {
namespace {

/// Largest number of blocks, and so of partial sums for the last block to add up.
constexpr std::int64_t kMaxNormBlocks = 2048;
constexpr std::int64_t kNoCulprit = INT64_MAX;

struct NormArena {
  ArenaChunks chunks;
  const void* grad;
  bool wide;  ///< true for f64
};
using NormList = ArenaList<NormArena, 64>;

struct NormBlocks {
  std::int64_t blocks, chunks_each;
};
NormBlocks blocks_for(std::int64_t chunks, bool by_chunk) {
  const std::int64_t each =
      by_chunk ? 1 : std::max<std::int64_t>(math::ceil_div(chunks, kMaxNormBlocks), 1);
  return {std::max<std::int64_t>(math::ceil_div(chunks, each), 1), each};
}

struct NormRequest {
  double factor;      ///< factor that averages gradients
  double clip_value;  ///< 0 for no limit
};

/// The results of a thread so far.
struct Found {
  double squares = 0, clipped = 0, largest = 0;
  std::int64_t culprit = kNoCulprit;

  __device__ void add(const NormPartial& p) {
    squares += p.sum_of_squares;
    clipped += p.clipped_squares;
    largest = p.largest > largest ? p.largest : largest;
    if (p.culprit >= 0 && p.culprit < culprit) culprit = p.culprit;
  }
};

template <class T>
__device__ void look(const void* gradients, const Piece& piece, const NormRequest& request,
                     Found& found) {
  const double limit = sizeof(T) == 8 ? 1.7976931348623157e308 : 3.4028234663852886e38;
  double squares = 0;
  T largest = 0;  // largest one, NaN aside: a NaN shows in the sum
  each_quad(piece, [&](std::int64_t quad) {
    const Quad<T> g = quad_at<T>(gradients, quad);
    for (int i = 0; i < 4; ++i) {
      const double v = static_cast<double>(g.lane[i]);
      const T magnitude = math::abs(g.lane[i]);
      squares += v * v;
      largest = magnitude > largest ? magnitude : largest;
      if (request.clip_value > 0) {
        const double c = math::clip_to(v * request.factor, request.clip_value);
        found.clipped += c * c;
      }
    }
  });
  const double top = static_cast<double>(largest);
  found.squares += squares;
  found.largest = top > found.largest ? top : found.largest;
  if (!math::stays_finite(squares, top, request.factor, limit) && piece.parameter < found.culprit)
    found.culprit = piece.parameter;
}

struct Larger {
  __device__ double operator()(double a, double b) const { return a > b ? a : b; }
};
struct Smaller {
  __device__ long long operator()(long long a, long long b) const { return a < b ? a : b; }
};

/// Joins the results of the block's threads; every thread gets them.
__device__ NormPartial together(const Found& found) {
  __shared__ double numbers[kWarp];
  __shared__ long long parameters[kWarp];
  NormPartial out;
  out.sum_of_squares = block_fold(found.squares, 0.0, numbers, Add());
  out.clipped_squares = block_fold(found.clipped, 0.0, numbers, Add());
  out.largest = block_fold(found.largest, 0.0, numbers, Larger());
  const long long culprit = block_fold(static_cast<long long>(found.culprit),
                                       static_cast<long long>(kNoCulprit), parameters, Smaller());
  out.culprit = culprit == kNoCulprit ? -1 : culprit;
  return out;
}

/// Adds the results of a chunk to those of a block's threads, for the parameters that count.
template <class Counts>
__device__ void look_at_chunk(const NormArena& a, std::int64_t chunk, const NormRequest& request,
                              const Counts& counts, Found& found) {
  const std::int64_t* pieces_of = a.chunks.pieces_of + (chunk - a.chunks.first);
  for (std::int64_t i = pieces_of[0]; i < pieces_of[1]; ++i) {
    const Piece piece = a.chunks.pieces[i];
    if (!counts(piece.parameter)) continue;
    if (a.wide) {
      look<double>(a.grad, piece, request, found);
    } else {
      look<float>(a.grad, piece, request, found);
    }
  }
}

/// Returns the summary of `count` partials, in thread 0 of a block.
template <class Counts>
__device__ math::GradientSummary sum_of_partials(const NormPartial* partials, std::int64_t count,
                                                 std::int64_t parameters, const Counts& counts) {
  Found all;
  for (std::int64_t b = threadIdx.x; b < count; b += blockDim.x) all.add(partials[b]);
  const NormPartial sum = together(all);
  double received = 0;
  for (std::int64_t p = threadIdx.x; p < parameters; p += blockDim.x)
    received = counts(p) ? 1 : received;
  __shared__ double numbers[kWarp];
  const bool any = block_fold(received, 0.0, numbers, Larger()) > 0;
  return {sum.sum_of_squares, sum.clipped_squares, sum.largest, sum.culprit, any};
}

/// Optional result instead of a decision: a summary, in device memory, of the parameters that are
/// `counted`, [parameters].
struct Summary {
  const std::uint8_t* counted;
  math::GradientSummary* found;
};

/// `partials` holds those of `before` blocks of earlier launches; this launch's follow. With `ends`
/// the launch is the optimizer's last.
template <bool kSummary>
__global__ void norm_kernel(const __grid_constant__ NormList list, StepPointers m,
                            math::StepPolicy policy, Summary summary, NormPartial* partials,
                            std::int64_t before, std::int64_t chunks_per_block, bool ends) {
  const auto counts = [&](std::int64_t p) {
    if constexpr (kSummary) return m.touched[p] && summary.counted[p];
    return m.touched[p] != 0;
  };
  const math::StepState& s = *m.state;
  Found found;
  if (math::has_gradient(s)) {
    const NormRequest request{math::averaging_factor(s), policy.clip_value};
    const std::int64_t first = blockIdx.x * chunks_per_block;
    const std::int64_t last = math::min(first + chunks_per_block, list.chunks);
    for (std::int64_t chunk = first; chunk < last; ++chunk)
      look_at_chunk(list.with_chunk(chunk), chunk, request, counts, found);
  }
  const NormPartial mine = together(found);
  if (threadIdx.x == 0) partials[before + blockIdx.x] = mine;
  if (!ends) return;
  if (!is_last_block(m.ticket)) return;

  const math::GradientSummary all_found =
      sum_of_partials(partials, before + gridDim.x, m.parameters, counts);
  if (threadIdx.x != 0) return;
  if constexpr (kSummary)
    *summary.found = all_found;
  else
    math::decide(*m.state, policy, all_found);
}

/// Each chunk from `first` on has a block.
__global__ void partials_kernel(NormArena a, StepPointers m, double clip_value,
                                NormPartial* partials, std::int64_t first) {
  const std::int64_t chunk = first + blockIdx.x;
  Found found;
  if (math::has_gradient(*m.state))
    look_at_chunk(
        a, chunk, {math::averaging_factor(*m.state), clip_value},
        [&](std::int64_t p) { return m.touched[p] != 0; }, found);
  const NormPartial mine = together(found);
  if (threadIdx.x == 0) partials[chunk] = mine;
}

__global__ void add_partials_kernel(StepPointers m, const NormPartial* partials, std::int64_t count,
                                    math::GradientSummary* found) {
  const math::GradientSummary all = sum_of_partials(
      partials, count, m.parameters, [&](std::int64_t p) { return m.touched[p] != 0; });
  if (threadIdx.x == 0) *found = all;
}

__global__ void decide_kernel(StepPointers m, math::StepPolicy policy,
                              math::GradientSummary summary) {
  math::decide(*m.state, policy, summary);
}

NormArena norm_arena(const OptimizerArena& a) {
  return {{a.chunk_pieces, a.pieces, 0}, a.grad.data, a.grad.dtype == DType::f64};
}

void look_at(const StepMemory& memory, std::span<const OptimizerArena> arenas,
             const math::StepPolicy& policy, const Summary& summary, NormPartial* partials,
             Stream stream) {
  const auto kernel = summary.found ? norm_kernel<true> : norm_kernel<false>;
  std::int64_t before = 0;
  while (!arenas.empty()) {
    const auto list = list_of<NormList>(arenas, norm_arena);
    arenas = arenas.subspan(static_cast<std::size_t>(list.count));
    const auto [blocks, per_block] = blocks_for(list.chunks, policy.norm_by_chunk);
    gpu::launch("optim_norm", kernel, dim3(static_cast<unsigned>(blocks)), dim3(kBlock), 0, stream,
                list, pointers_of(memory), policy, summary, partials, before, per_block,
                arenas.empty());
    before += blocks;
  }
}

}  // namespace

void optim_norm(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                const math::StepPolicy& policy, Stream stream) {
  look_at(memory, arenas, policy, {}, arenas.front().partials, stream);
}

void optim_summarize(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                     const math::StepPolicy& policy, const ConstView& counted,
                     math::GradientSummary& summary, Stream stream) {
  // A launch has at least one block, and this rank may have no chunk of an arena.
  std::int64_t most = 0;
  for (const OptimizerArena& a : arenas) most += blocks_for(a.chunks, policy.norm_by_chunk).blocks;
  constexpr std::size_t kAhead = 64;  // the summary, and the aligned partials after it
  static_assert(sizeof(math::GradientSummary) <= kAhead);
  const runtime::Workspace found(kAhead + static_cast<std::size_t>(most) * sizeof(NormPartial),
                                 stream);
  auto* const partials = reinterpret_cast<NormPartial*>(found.as<std::byte>() + kAhead);
  look_at(memory, arenas, policy, {counted.as<std::uint8_t>(), found.as<math::GradientSummary>()},
          partials, stream);
  copy_bytes(&summary, Device::cpu(), found.data(), memory.state.device, sizeof(summary));
}

void optim_partials(const StepMemory& memory, const OptimizerArena& arena, std::int64_t first,
                    std::int64_t last, const math::StepPolicy& policy, Stream stream) {
  if (first == last) return;
  gpu::launch("optim_partials", partials_kernel, dim3(static_cast<unsigned>(last - first)),
              dim3(kBlock), 0, stream, norm_arena(arena), pointers_of(memory), policy.clip_value,
              arena.partials, first);
}

void optim_add_partials(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                        math::GradientSummary& summary, Stream stream) {
  std::int64_t chunks = 0;
  for (const OptimizerArena& a : arenas) chunks += a.chunks;
  const runtime::Workspace found(sizeof(math::GradientSummary), stream);
  gpu::launch("optim_add_partials", add_partials_kernel, dim3(1), dim3(kBlock), 0, stream,
              pointers_of(memory), arenas.front().partials, chunks,
              found.as<math::GradientSummary>());
  copy_bytes(&summary, Device::cpu(), found.data(), memory.state.device, sizeof(summary));
}

void optim_decide(const StepMemory& memory, const math::StepPolicy& policy,
                  const math::GradientSummary& summary, Stream stream) {
  gpu::launch("optim_decide", decide_kernel, dim3(1), dim3(1), 0, stream, pointers_of(memory),
              policy, summary);
}

}  // namespace firn::kernels::cuda
