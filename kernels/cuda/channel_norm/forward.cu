// Normalisation by channel on CUDA devices: moments and the forward pass. A block first computes a
// centre for each channel from a few of its values, then sums up distances from it, which avoids
// cancellation. Blocks write their moments, and the last block merges them in f64 and in order.
#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/channel_norm/driver.cuh"
#include "kernels/cuda/device/tickets.cuh"
#include "kernels/cuda/rows/driver.cuh"

namespace firn::kernels::cuda {
namespace {

constexpr int kSample = 4;  // steps of a thread from which the centre is computed

using Part = math::Moments<double>;

/// Merges moments about a centre that is near all of them.
struct Joining {
  double centre = 0;
  math::SumPair<double> sums;

  __device__ void add(const Part& part, double n) {
    const double d = part.mean - centre;
    sums = sums + math::SumPair<double>{n * d, part.squares + n * d * d};
  }
};

template <class C>
struct MomentsOut {
  C *mean, *var;

  __device__ void store(std::int64_t cell, const Joining& all, double n) const {
    const Part m = math::moments_of(all.centre, all.sums, 1 / n);
    mean[cell] = static_cast<C>(m.mean);
    var[cell] = static_cast<C>(m.squares / n);
  }
};

/// Computes every cell's moments from partial[unit][c]. One block does it; `shared` holds one pair
/// per thread.
template <class C>
__device__ void join_parts(const ChannelCut& cut, const Part* partial, MomentsOut<C> out,
                           math::SumPair<double>* shared) {
  const std::int64_t cells = cut.sections * cut.groups, parts = cut.chunks * cut.width;
  const double n = static_cast<double>(cut.steps * cut.step_elements * cut.width);
  const CellLines lines(parts);
  for (std::int64_t base = 0; base < cells; base += lines.lanes) {
    const std::int64_t cell = base + lines.lane();
    Joining all;
    if (cell < cells) {
      const std::int64_t section = cell / cut.groups, first = cell % cut.groups * cut.width;
      const Part* const from = partial + section * cut.chunks * cut.c + first;
      all.centre = from[0].mean;
#pragma unroll 4
      for (std::int64_t p = lines.line(); p < parts; p += lines.lines) {
        const std::int64_t i = cut.width == 1 ? p : p / cut.width;
        all.add(from[i * cut.c + (p - i * cut.width)], static_cast<double>(cut.count(i)));
      }
    }
    __syncthreads();  // `shared` may still be read
    shared[threadIdx.x] = all.sums;
    fold_lines(shared, lines.lanes, lines.lines);
    all.sums = shared[lines.lane()];
    if (cell < cells && lines.line() == 0) out.store(cell, all, n);
  }
}

/// With `whole`, a block has all elements of its cells, and no merge follows.
template <class T, bool kAcross, int kVec>
static __global__ void __launch_bounds__(kBlock, kMinBlocks)
    moments_kernel(ChannelPlane<const T> x, ChannelCut cut, bool whole, Part* partial,
                   MomentsOut<ComputeOf<T>> out, unsigned ticket) {
  using C = ComputeOf<T>;
  using Place = ChannelPlace<kAcross, kVec>;
  constexpr int kChannels = Place::kChannels;
  const Place place(cut);
  auto* const sums = gpu::dynamic_shared<math::SumPair<C>>();
  const T* const base = place.base(x);
  const std::int64_t first = place.begin + place.member;

  Lanes<T, kVec> held[kSample];
  C sum[kChannels] = {};
#pragma unroll
  for (int r = 0; r < kSample; ++r) {
    const std::int64_t q = first + r * place.members;
    if (q >= place.end) continue;
    held[r] = load_lanes<T, kVec>(base + ChannelStep(cut, q).in(x));
    for (int k = 0; k < kVec; ++k) sum[kAcross ? k : 0] += widen(held[r].lane[k]);
  }
  fold_members(place, sum, reinterpret_cast<C*>(sums));
  const std::int64_t taken = place.end - place.begin < kSample * place.members
                                 ? place.end - place.begin
                                 : kSample * place.members;
  math::Distances<C> from[kChannels];
  for (int k = 0; k < kChannels; ++k)
    from[k].centre = reinterpret_cast<const C*>(sums)[place.slot + k] /
                     static_cast<C>(taken * cut.step_elements);

  math::SumPair<C> distances[kChannels];
  const auto add = [&](const Lanes<T, kVec>& lanes) {
    for (int k = 0; k < kVec; ++k) {
      const int to = kAcross ? k : 0;
      distances[to] = distances[to] + from[to](widen(lanes.lane[k]));
    }
  };
#pragma unroll
  for (int r = 0; r < kSample; ++r)
    if (first + r * place.members < place.end) add(held[r]);
#pragma unroll 4
  for (std::int64_t q = first + kSample * place.members; q < place.end; q += place.members)
    add(load_lanes<T, kVec>(base + ChannelStep(cut, q).in(x)));
  fold_members(place, distances, sums);

  // The threads of the first member compute the moments of their channels.
  Part mine[kChannels];
  const double inverse = 1.0 / static_cast<double>(cut.count(place.chunk));
  for (int k = 0; k < kChannels; ++k) {
    const math::SumPair<C> s = sums[place.slot + k];
    mine[k] = math::moments_of(
        static_cast<double>(from[k].centre),
        math::SumPair<double>{static_cast<double>(s.first), static_cast<double>(s.second)},
        inverse);
  }
  if (whole) {
    __syncthreads();  // `sums` become moments
    auto* const parts = gpu::dynamic_shared<Part>();
    for (int k = 0; k < kChannels; ++k)
      if (place.member == 0 && place.active) parts[place.slot + k] = mine[k];
    __syncthreads();
    const std::int64_t begin = blockIdx.x % cut.tiles * place.slots;
    const std::int64_t here = cut.c - begin < place.slots ? cut.c - begin : place.slots;
    const double n = static_cast<double>(cut.count(place.chunk));
    const int width = static_cast<int>(cut.width);
    for (std::int64_t i = threadIdx.x; i * width < here; i += kBlock) {
      Joining all;
      all.centre = parts[i * width].mean;
      for (int k = 0; k < width; ++k) all.add(parts[i * width + k], n);
      out.store(cut.cell(place.section, begin + i * width), all, n * width);
    }
    return;
  }
  for (int k = 0; k < kChannels; ++k)
    if (place.member == 0 && place.active)
      partial[place.unit * cut.c + place.channel + k] = mine[k];
  if (!is_last_block(&tickets[ticket])) return;
  join_parts(cut, partial, out, gpu::dynamic_shared<math::SumPair<double>>());
}

template <class T, bool kAcross, int kVec>
static __global__ void __launch_bounds__(kBlock, kMinBlocks)
    normalize_kernel(ChannelPlane<const T> x, ChannelPlane<T> y, ChannelCut cut,
                     const ComputeOf<T>* mean, const ComputeOf<T>* var, RowVector weight,
                     RowVector bias, double eps) {
  using C = ComputeOf<T>;
  using Place = ChannelPlace<kAcross, kVec>;
  const Place place(cut);
  auto* const norms = gpu::dynamic_shared<math::ChannelNorm<C>>();
  store_of_channels(place, cut, norms, [&](std::int64_t channel) {
    const std::int64_t cell = cut.cell(place.section, channel);
    const C rstd = math::rsqrt(var[cell] + static_cast<C>(eps));
    return math::ChannelNorm<C>{mean[cell], rstd * weight.at<C>(channel), bias.at<C>(channel)};
  });
  if (!place.active) return;
  math::ChannelNorm<C> norm[Place::kChannels];
  for (int k = 0; k < Place::kChannels; ++k) norm[k] = norms[place.slot + k];
  const T* const from = place.base(x);
  T* const to = place.base(y);
#pragma unroll 4
  for (std::int64_t q = place.begin + place.member; q < place.end; q += place.members) {
    const ChannelStep step(cut, q);
    const auto in = load_lanes<T, kVec>(from + step.in(x));
    C out[kVec];
    for (int k = 0; k < kVec; ++k) out[k] = norm[kAcross ? k : 0](widen(in.lane[k]));
    store_lanes<kVec>(to + step.in(y), out, 0);
  }
}

/// Merges each group of a row-major sample into one longer channel, so that a cell is one channel.
void merge_groups(ConstView& x, NormCells cells) {
  const std::int64_t c = x.shape[1], l = x.shape[2];
  if (!cells.per_sample || cells.groups == c || l <= 1) return;
  if (x.strides[2] >= x.strides[1] || x.strides[1] != l * x.strides[2]) return;
  const std::int64_t width = c / cells.groups;
  x.shape = {x.shape[0], cells.groups, width * l};
  x.strides = {x.strides[0], width * x.strides[1], x.strides[2]};
}

}  // namespace

void channel_moments(const ConstView& given, NormCells cells, const View& mean, const View& var,
                     Stream stream) {
  ConstView x = given;
  if (x.numel() == 0) return;
  merge_groups(x, cells);
  with_floating(x.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    with_channel_cut<T>(x, cells, {}, kSumSize, [&]<class A, class V>(A, V, const ChannelCut& cut) {
      const std::int64_t channels = std::int64_t{cut.side} * (A::value ? V::value : 1);
      const bool whole = cut.chunks == 1 && (cut.tiles == 1 || channels % cut.width == 0);
      const runtime::Workspace partial(
          whole ? 0 : static_cast<std::size_t>(cut.units() * cut.c) * sizeof(Part), stream);
      // This is enough for the block's sums, for one pair of f64 per thread, or for the moments of
      // the tile's channels.
      const std::size_t shared =
          kBlock * std::max(sizeof(math::SumPair<C>) * (A::value ? V::value : 1),
                            sizeof(math::SumPair<double>));
      gpu::launch("channel_moments", moments_kernel<T, A::value, V::value>,
                  dim3(static_cast<unsigned>(cut.blocks())), dim3(kBlock), shared, stream,
                  plane_of<const T>(x, cut), cut, whole, partial.template as<Part>(),
                  MomentsOut<C>{mean.as<C>(), var.as<C>()}, whole ? 0u : ticket_slot(stream));
    });
  });
}

void channel_normalize(const ConstView& x, NormCells cells, const ConstView& mean,
                       const ConstView& var, const ConstView& weight, const ConstView& bias,
                       double eps, const View& y, Stream stream) {
  if (x.numel() == 0) return;
  const ConstView written = y;
  with_floating(x.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    with_channel_cut<T>(
        x, cells, {&written}, kMapSize, [&]<class A, class V>(A, V, const ChannelCut& cut) {
          gpu::launch("channel_normalize", normalize_kernel<T, A::value, V::value>,
                      dim3(static_cast<unsigned>(cut.blocks())), dim3(kBlock),
                      kBlock * sizeof(math::ChannelNorm<C>), stream, plane_of<const T>(x, cut),
                      plane_of<T>(y, cut), cut, mean.as<C>(), var.as<C>(), RowVector(weight, 1),
                      RowVector(bias, 0), eps);
        });
  });
}

}  // namespace firn::kernels::cuda
