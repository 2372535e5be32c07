// The backward pass of normalisation by channel on CUDA devices.
#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/channel_norm/driver.cuh"
#include "kernels/cuda/device/tickets.cuh"
#include "kernels/cuda/rows/driver.cuh"
#include "kernels/math/macros.h"

namespace firn::kernels::cuda {
namespace {

/// The moments of x's cells.
template <class C>
struct CellMoments {
  const C *mean, *var;
  double eps;

  __device__ C rstd(std::int64_t cell) const {
    return math::rsqrt(var[cell] + static_cast<C>(eps));
  }
};

template <class C>
__device__ void store_sums(C* sums, std::int64_t at, math::SumPair<double> s, C rstd) {
  sums[at * 2] = static_cast<C>(s.first);
  sums[at * 2 + 1] = static_cast<C>(s.second * static_cast<double>(rstd));
}

template <class T, bool kAcross, int kVec>
static __global__ void __launch_bounds__(kBlock)
    gradient_sums_kernel(ChannelPlane<const T> dy, ChannelPlane<const T> x, ChannelCut cut,
                         CellMoments<ComputeOf<T>> moments, math::SumPair<ComputeOf<T>>* partial,
                         ComputeOf<T>* sums, unsigned ticket) {
  using C = ComputeOf<T>;
  using Pair = math::SumPair<C>;
  using Wide = math::SumPair<double>;
  using Place = ChannelPlace<kAcross, kVec>;
  constexpr int kChannels = Place::kChannels;
  const Place place(cut);
  math::ChannelGradPass<C> pass[kChannels];
  for (int k = 0; k < kChannels; ++k)
    pass[k].mean = place.active ? moments.mean[cut.cell(place.section, place.channel + k)] : C(0);
  const T *const dy_base = place.base(dy), *const x_base = place.base(x);
  Pair mine[kChannels];
#pragma unroll 4
  for (std::int64_t q = place.begin + place.member; q < place.end; q += place.members) {
    const ChannelStep step(cut, q);
    const auto d = load_lanes<T, kVec>(dy_base + step.in(dy));
    const auto v = load_lanes<T, kVec>(x_base + step.in(x));
    for (int k = 0; k < kVec; ++k) {
      const int to = kAcross ? k : 0;
      mine[to] = mine[to] + pass[to](widen(d.lane[k]), widen(v.lane[k]));
    }
  }
  Pair* const shared = gpu::dynamic_shared<Pair>();
  fold_members(place, mine, shared);
  const bool whole = cut.chunks == 1;
  if (place.member == 0 && place.active) {
    for (int k = 0; k < kChannels; ++k) {
      const Pair s = shared[place.slot + k];
      const std::int64_t channel = place.channel + k;
      if (whole) {
        store_sums(sums, place.section * cut.c + channel,
                   Wide{static_cast<double>(s.first), static_cast<double>(s.second)},
                   moments.rstd(cut.cell(place.section, channel)));
      } else {
        partial[place.unit * cut.c + channel] = s;
      }
    }
  }
  if (whole || !is_last_block(&tickets[ticket])) return;

  Wide* const joined = gpu::dynamic_shared<Wide>();
  const CellLines lines(cut.chunks);
  const std::int64_t all = cut.sections * cut.c;
  for (std::int64_t first = 0; first < all; first += lines.lanes) {
    const std::int64_t i = first + lines.lane();
    const std::int64_t section = i / cut.c, channel = i % cut.c;
    Wide sum;
    if (i < all) {
#pragma unroll 4
      for (std::int64_t p = lines.line(); p < cut.chunks; p += lines.lines) {
        const Pair s = partial[(section * cut.chunks + p) * cut.c + channel];
        sum = sum + Wide{static_cast<double>(s.first), static_cast<double>(s.second)};
      }
    }
    __syncthreads();  // `joined` may still be read
    joined[threadIdx.x] = sum;
    fold_lines(joined, lines.lanes, lines.lines);
    if (i < all && lines.line() == 0)
      store_sums(sums, i, joined[lines.lane()], moments.rstd(cut.cell(section, channel)));
  }
}

/// Returns a cell's sums of w dy and of w dy xhat, from the sums of its channels, which begin at
/// channel `first`. It adds every `lanes`-th channel from the `lane`-th on.
template <class C>
__device__ math::SumPair<double> cell_sums(const ChannelCut& cut, const C* sums,
                                           const RowVector& weight, std::int64_t section,
                                           std::int64_t first, int lane, int lanes) {
  math::SumPair<double> all;
#pragma unroll 2
  for (std::int64_t j = first + lane; j < first + cut.width; j += lanes) {
    const C* const pair = sums + (section * cut.c + j) * 2;
    const double w = static_cast<double>(weight.at<C>(j));
    all = all +
          math::SumPair<double>{w * static_cast<double>(pair[0]), w * static_cast<double>(pair[1])};
  }
  return all;
}

/// Computes dx of type O. If sums is null, the moments are constants, and x is not read.
template <class T, class O, bool kAcross, int kVec>
static __global__ void __launch_bounds__(kBlock, kAcross ? 3 : 4)
    data_gradient_kernel(ChannelPlane<const T> dy, ChannelPlane<const T> x, ChannelPlane<O> dx,
                         ChannelCut cut, CellMoments<ComputeOf<T>> moments, RowVector weight,
                         const ComputeOf<T>* sums, double count, float beta) {
  using C = ComputeOf<T>;
  using Place = ChannelPlace<kAcross, kVec>;
  constexpr int kChannels = Place::kChannels;
  const Place place(cut);
  // If cells have several channels, a warp sums up each cell once for the block.
  auto* const cells = gpu::dynamic_shared<math::SumPair<double>>();
  const std::int64_t tile = blockIdx.x % cut.tiles * place.slots;
  const std::int64_t first_cell = tile / cut.width;
  const bool shared = sums && cut.width > 1;
  if (shared) {
    const std::int64_t end = tile + place.slots < cut.c ? tile + place.slots : cut.c;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (std::int64_t i = first_cell + threadIdx.x / kWarp; i * cut.width < end;
         i += kBlock / kWarp) {
      const auto mine = cell_sums(cut, sums, weight, place.section, i * cut.width, lane, kWarp);
      const auto all = warp_fold(mine, Add());
      if (lane == 0) cells[i - first_cell] = all;
    }
    __syncthreads();
  }
  auto* const grads = reinterpret_cast<math::ChannelGrad<C>*>(cells + (shared ? kBlock : 0));
  store_of_channels(place, cut, grads, [&](std::int64_t channel) {
    const std::int64_t cell = cut.cell(place.section, channel);
    math::SumPair<double> of_cell;
    if (shared) {
      of_cell = cells[channel / cut.width - first_cell];
    } else if (sums) {
      of_cell = cell_sums(cut, sums, weight, place.section, channel, 0, 1);
    }
    return math::ChannelGrad<C>::make(moments.mean[cell], moments.rstd(cell), weight.at<C>(channel),
                                      static_cast<C>(of_cell.first / count),
                                      static_cast<C>(of_cell.second / count));
  });
  if (!place.active) return;
  math::ChannelGrad<C> grad[kChannels];
  for (int k = 0; k < kChannels; ++k) grad[k] = grads[place.slot + k];
  const T *const dy_base = place.base(dy), *const x_base = place.base(x);
  O* const to = place.base(dx);
#pragma unroll 4
  for (std::int64_t q = place.begin + place.member; q < place.end; q += place.members) {
    const ChannelStep step(cut, q);
    const auto d = load_lanes<T, kVec>(dy_base + step.in(dy));
    C out[kVec];
    if (sums) {
      const auto v = load_lanes<T, kVec>(x_base + step.in(x));
      for (int k = 0; k < kVec; ++k)
        out[k] = grad[kAcross ? k : 0](widen(d.lane[k]), widen(v.lane[k]));
    } else {
      for (int k = 0; k < kVec; ++k)
        out[k] = math::ChannelScale<C>{grad[kAcross ? k : 0].scale}(widen(d.lane[k]));
    }
    store_lanes<kVec>(to + step.in(dx), out, beta);
  }
}

/// A parameter's gradient: grad = beta*grad + sum; unused if data is null.
struct ParameterGrad {
  void* data;
  DType dtype;
  std::int64_t stride;
  float beta;

  ParameterGrad(const View& v, float old)
      : data(v.data), dtype(v.dtype), stride(v.data ? v.strides[0] : 0), beta(old) {}
  template <class C>
  __device__ void store(std::int64_t i, double sum) const {
    if (!data) return;
    C value = static_cast<C>(sum);
    if (beta != 0) value += load_element<C>(data, dtype, i * stride);
    store_element(value, data, dtype, i * stride);
  }
};

/// A thread takes one of 32 channels and every eighth sample. One thread stores both gradients of a
/// channel, because weight and bias may be one tensor.
template <class C>
static __global__ void __launch_bounds__(kBlock)
    parameter_gradients_kernel(const C* sums, std::int64_t samples, std::int64_t c,
                               ParameterGrad dweight, ParameterGrad dbias) {
  constexpr int kLines = kBlock / kWarp;
  using Wide = math::SumPair<double>;
  Wide* const shared = gpu::dynamic_shared<Wide>();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int line = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t i = std::int64_t{blockIdx.x} * kWarp + lane;
  Wide sum;
  for (std::int64_t s = line; s < samples && i < c; s += kLines) {
    const C* const pair = sums + (s * c + i) * 2;
    sum = sum + Wide{static_cast<double>(pair[0]), static_cast<double>(pair[1])};
  }
  shared[threadIdx.x] = sum;
  fold_lines(shared, kWarp, kLines);
  if (line > 0 || i >= c) return;
  dweight.store<C>(i, shared[lane].second);
  dbias.store<C>(i, shared[lane].first);
}

}  // namespace

void channel_gradient_sums(const ConstView& dy, const ConstView& x, NormCells cells,
                           const ConstView& mean, const ConstView& var, double eps,
                           const View& sums, Stream stream) {
  if (sums.numel() == 0) return;
  with_floating(x.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    with_channel_cut<T>(
        x, cells, {&dy}, kSumSize, [&]<class A, class V>(A, V, const ChannelCut& cut) {
          using Pair = math::SumPair<C>;
          const bool whole = cut.chunks == 1;
          const runtime::Workspace partial(
              whole ? 0 : static_cast<std::size_t>(cut.units() * cut.c) * sizeof(Pair), stream);
          const std::size_t shared = kBlock * std::max(sizeof(Pair) * (A::value ? V::value : 1),
                                                       sizeof(math::SumPair<double>));
          gpu::launch("channel_gradient_sums", gradient_sums_kernel<T, A::value, V::value>,
                      dim3(static_cast<unsigned>(cut.blocks())), dim3(kBlock), shared, stream,
                      plane_of<const T>(dy, cut), plane_of<const T>(x, cut), cut,
                      CellMoments<C>{mean.as<C>(), var.as<C>(), eps}, partial.template as<Pair>(),
                      sums.as<C>(), whole ? 0u : ticket_slot(stream));
        });
  });
}

void channel_parameter_gradients(const ConstView& sums, const View& dweight, float dweight_beta,
                                 const View& dbias, float dbias_beta, Stream stream) {
  const std::int64_t samples = sums.shape[0], c = sums.shape[1];
  if (c == 0) return;
  const auto go = [&]<class C>(C) {
    gpu::launch("channel_parameter_gradients", parameter_gradients_kernel<C>,
                dim3(static_cast<unsigned>(math::ceil_div(c, kWarp))), dim3(kBlock),
                kBlock * sizeof(math::SumPair<double>), stream, sums.as<C>(), samples, c,
                ParameterGrad(dweight, dweight_beta), ParameterGrad(dbias, dbias_beta));
  };
  sums.dtype == DType::f64 ? go(double()) : go(float());
}

void channel_data_gradient(const ConstView& dy, const ConstView& x, NormCells cells,
                           const ConstView& mean, const ConstView& var, const ConstView& weight,
                           double eps, const ConstView& sums, double count, const View& dx,
                           float beta, Stream stream) {
  if (x.numel() == 0) return;
  const ConstView written = dx;
  with_floating(x.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    with_sink<T>(dx.dtype, [&]<class O>(O) {
      with_channel_cut<T>(
          x, cells, {&dy, &written}, kMapSize, [&]<class A, class V>(A, V, const ChannelCut& cut) {
            gpu::launch("channel_data_gradient", data_gradient_kernel<T, O, A::value, V::value>,
                        dim3(static_cast<unsigned>(cut.blocks())), dim3(kBlock),
                        (sums.data && cut.width > 1 ? kBlock * sizeof(math::SumPair<double>) : 0) +
                            kBlock * sizeof(math::ChannelGrad<C>),
                        stream, plane_of<const T>(dy, cut), plane_of<const T>(x, cut),
                        plane_of<O>(dx, cut), cut, CellMoments<C>{mean.as<C>(), var.as<C>(), eps},
                        RowVector(weight, 1), sums.as<C>(), count, beta);
          });
    });
  });
}

}  // namespace firn::kernels::cuda
