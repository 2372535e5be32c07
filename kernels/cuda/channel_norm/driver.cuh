// Cuts a tensor [n, c, l] for normalisation by channel in CUDA kernels. A block has a tile of
// channels and a chunk of steps. Every thread keeps its channels, so that their numbers stay in
// registers. If channels are adjacent in memory ("across"), adjacent threads have adjacent
// channels, one pack each, and a step is a position. Else they have adjacent positions, and a step
// is a pack of those. The cut depends on shape and strides alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernels/channel_norm.h"
#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/strides.cuh"
#include "kernels/math/channel_norm.h"

namespace firn::kernels::cuda {

/// Least number of blocks on a multiprocessor, for kernels that would otherwise spill: without it,
/// ptxas spills to save registers, although there are enough.
inline constexpr int kMinBlocks = 2;

struct ChannelCut {
  std::int64_t c, groups, width;  ///< width: channels of a cell
  std::int64_t sections;          ///< samples that stay separate: n or 1
  std::int64_t steps;             ///< steps of a section
  std::int64_t inner;             ///< steps of a sample, if a section has several; else 0
  std::int64_t chunk, chunks;     ///< steps of a block, blocks of a section and tile
  std::int64_t tiles;
  int side;           ///< across: threads along the channels; else channels of a block
  int step_elements;  ///< elements of a step in one channel
  Divisor by_inner;
  bool small;  ///< true if step numbers fit by_inner

  __host__ __device__ int members() const { return kBlock / side; }  ///< threads of a channel
  std::int64_t blocks() const { return sections * chunks * tiles; }
  std::int64_t units() const { return sections * chunks; }
  __device__ std::int64_t cell(std::int64_t section, std::int64_t channel) const {
    return section * groups + (width == 1 ? channel : channel / width);
  }
  /// Number of elements of a channel in chunk `i`.
  __device__ std::int64_t count(std::int64_t i) const {
    const std::int64_t left = steps - i * chunk;
    return (left < chunk ? left : chunk) * step_elements;
  }
};

/// A view as kernels walk it.
template <class T>
struct ChannelPlane {
  T* data;
  std::int64_t sample, channel, step;  ///< strides
};

/// A thread's share: channels [channel, channel + kChannels) and steps begin + member, begin +
/// member + members, ... below end.
template <bool kAcross, int kVec>
struct ChannelPlace {
  static constexpr int kChannels = kAcross ? kVec : 1;

  std::int64_t section, chunk, unit, channel, begin, end;
  int slot, slots;  ///< slot of its first channel in the block
  int member, members;
  bool active;  ///< true if it has any channels

  __device__ explicit ChannelPlace(const ChannelCut& cut) {
    const int thread = static_cast<int>(threadIdx.x);
    const std::int64_t tile = blockIdx.x % cut.tiles;
    unit = blockIdx.x / cut.tiles;
    section = unit / cut.chunks;
    chunk = unit % cut.chunks;
    members = cut.members();
    slots = cut.side * kChannels;
    slot = kAcross ? thread % cut.side * kChannels : thread / members;
    member = kAcross ? thread / cut.side : thread % members;
    channel = tile * slots + slot;
    active = channel < cut.c;
    begin = chunk * cut.chunk;
    end = begin + cut.chunk < cut.steps ? begin + cut.chunk : cut.steps;
    if (!active) end = begin;
  }
  /// Returns the start of the thread's part of a plane.
  template <class T>
  __device__ T* base(const ChannelPlane<T>& plane) const {
    return plane.data + section * plane.sample + channel * plane.channel;
  }
};

/// The place of a step: sample * strides.sample + rest * strides.step from the base.
struct ChannelStep {
  std::int64_t sample, rest;

  __device__ ChannelStep(const ChannelCut& cut, std::int64_t q) : sample(0), rest(q) {
    if (cut.inner == 0) return;
    sample = cut.small ? cut.by_inner.divide(static_cast<std::uint32_t>(q)) : q / cut.inner;
    rest = q - sample * cut.inner;
  }
  template <class T>
  __device__ std::int64_t in(const ChannelPlane<T>& plane) const {
    return sample * plane.sample + rest * plane.step;
  }
};

// ---- Elements of a step ----

template <class T, int kVec>
__device__ Lanes<T, kVec> load_lanes(const T* p) {
  return lanes_at<Lanes<T, kVec>>(p);
}

/// out = beta*out + y, in pieces of at most 16 bytes.
template <int kVec, class O, class C>
__device__ void store_lanes(O* p, const C (&y)[kVec], float beta) {
  constexpr int kMost = 16 / static_cast<int>(sizeof(O));
  constexpr int kPiece = kVec < kMost ? kVec : kMost;
  for (int i = 0; i < kVec; i += kPiece) {
    auto& to = lanes_at<Lanes<O, kPiece>>(p + i);
    Lanes<O, kPiece> out{};
    if (beta != 0) out = to;
    for (int k = 0; k < kPiece; ++k) {
      const C old = beta != 0 ? static_cast<C>(widen(out.lane[k])) : C(0);
      narrow(beta != 0 ? old + y[i + k] : y[i + k], out.lane[k]);
    }
    to = out;
  }
}

// ---- Numbers that are computed once per channel ----

/// Stores make(channel) in shared[slot] for each channel of the block. All threads may read it
/// then; every thread must call it.
template <class Place, class V, class Make>
__device__ void store_of_channels(const Place& place, const ChannelCut& cut, V* shared, Make make) {
  const std::int64_t first = place.channel - place.slot;
  for (int i = static_cast<int>(threadIdx.x); i < place.slots && first + i < cut.c; i += kBlock)
    shared[i] = make(first + i);
  __syncthreads();
}

// ---- Sums over a block ----

/// Adds up the lines of shared values [lines][slots]; lines is a power of two. The sums are then in
/// line 0, and all threads may read them. Every thread must call it; no barrier is needed before.
template <class V>
__device__ void fold_lines(V* values, int slots, int lines) {
  for (int half = lines / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < half * slots; i += kBlock)
      values[i] = values[i] + values[i + half * slots];
  }
  __syncthreads();
}

/// Adds up the members' sums of each channel at shared[slot]; all threads may read them.
template <class Place, class V>
__device__ void fold_members(const Place& place, const V (&mine)[Place::kChannels], V* shared) {
  __syncthreads();  // earlier sums may still be read
  for (int k = 0; k < Place::kChannels; ++k)
    shared[place.member * place.slots + place.slot + k] = mine[k];
  fold_lines(shared, place.slots, place.members);
}

/// The shares of one block's threads in the sums of cells, of `parts` terms each.
struct CellLines {
  int lines, lanes;
  __device__ explicit CellLines(std::int64_t parts)
      : lines(parts >= 64 ? 8 : 1), lanes(kBlock / lines) {}
  __device__ int lane() const { return static_cast<int>(threadIdx.x) % lanes; }
  __device__ int line() const { return static_cast<int>(threadIdx.x) / lanes; }
};

// ---- Host ----

/// Aims for the size of blocks.
struct BlockSize {
  std::int64_t blocks;   ///< number of blocks
  std::int64_t least;    ///< fewest steps of a thread, if the work allows
  std::int64_t longest;  ///< most steps of a thread, for any number of blocks
};
/// Size for sums, so that the f32 sum of a thread stays short.
inline constexpr BlockSize kSumSize{256, 4, 128};
inline constexpr BlockSize kMapSize{2048, 4, std::int64_t{1} << 40};

/// Calls fn(integral_constant across, integral_constant of elements loaded at once, cut) for x of
/// type T. `others` are views of x's shape that are read or written along with it.
template <class T, class Fn>
void with_channel_cut(const ConstView& x, NormCells cells,
                      std::initializer_list<const ConstView*> others, BlockSize size, Fn&& fn) {
  constexpr int kWidth = Pack<T>::kWidth;
  const std::int64_t n = x.shape[0], c = x.shape[1], l = x.shape[2];
  const bool across = c > 1 && (l == 1 || x.strides[1] < x.strides[2]);
  bool joined = n == 1 || l == 1, wide = true;
  if (across && !joined) joined = true;
  const auto check = [&](const ConstView& v) {
    const auto fits = [&](int axis) { return v.shape[axis] <= 1 || v.strides[axis] % kWidth == 0; };
    const int along = across ? 1 : 2;
    wide = wide && is_aligned(v.data) && v.strides[along] == 1 && v.shape[along] % kWidth == 0;
    for (int axis = 0; axis < 3; ++axis) wide = wide && (axis == along || fits(axis));
    if (n > 1 && l > 1) joined = joined && across && v.strides[0] == l * v.strides[2];
  };
  check(x);
  for (const ConstView* v : others)
    if (v->data) check(*v);

  const int vec = wide ? kWidth : 1;
  const int channels = across ? vec : 1;  // channels of a thread
  ChannelCut cut{};
  cut.c = c;
  cut.groups = cells.groups;
  cut.width = c / std::max<std::int64_t>(cells.groups, 1);
  cut.sections = cells.per_sample ? n : 1;
  cut.step_elements = across ? 1 : vec;
  const std::int64_t of_sample = l / cut.step_elements;
  cut.steps = cells.per_sample ? of_sample : n * of_sample;
  cut.inner = cells.per_sample || joined ? 0 : of_sample;
  cut.small = cut.steps < (std::int64_t{1} << 31);
  if (cut.small && cut.inner > 0) cut.by_inner = Divisor(static_cast<std::uint32_t>(cut.inner));
  cut.side = 1;
  while (cut.side < (across ? kWarp : 8) && cut.side * channels < c) cut.side *= 2;
  cut.tiles = math::ceil_div(c, std::int64_t{cut.side} * channels);
  const std::int64_t tasks = std::max<std::int64_t>(cut.tiles * cut.sections, 1);
  const std::int64_t most = std::max<std::int64_t>(cut.steps / (cut.members() * size.least), 1);
  const std::int64_t chunks = std::clamp<std::int64_t>(size.blocks / tasks, 1, most);
  cut.chunk =
      std::clamp<std::int64_t>(math::ceil_div(cut.steps, chunks), 1, cut.members() * size.longest);
  cut.chunks = std::max<std::int64_t>(math::ceil_div(cut.steps, cut.chunk), 1);

  const auto go = [&](auto is_across) {
    if (wide) {
      fn(is_across, std::integral_constant<int, kWidth>(), cut);
    } else {
      fn(is_across, std::integral_constant<int, 1>(), cut);
    }
  };
  across ? go(std::true_type()) : go(std::false_type());
}

/// Returns a view for a cut with positions, or packs of them, as steps. If a position is a sample
/// (l is 1) and samples are joined, a step is a sample.
template <class T, class V>
ChannelPlane<T> plane_of(const V& v, const ChannelCut& cut) {
  const bool samples = v.shape[2] == 1 && cut.inner == 0 && cut.sections == 1;
  return {static_cast<T*>(v.data), v.strides[0], v.strides[1],
          (samples ? v.strides[0] : v.strides[2]) * cut.step_elements};
}

}  // namespace firn::kernels::cuda
