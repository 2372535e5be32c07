// The CUDA driver of row computations (formulas: kernels/math/rows.h). A team of threads, one warp
// or one block, takes a row of a matrix [rows, n]. Thread t of T has the elements of the packs (16
// bytes) t, t+T, ... If they fit, it keeps them in registers; else it reads them again for every
// pass. That choice and the order of all sums depend on n alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/coarse.cuh"
#include "kernels/cuda/device/element.cuh"

namespace firn::kernels::cuda {

// ---- Teams ----

/// One warp takes a row. A block has kThreads / 32 rows.
struct WarpTeam {
  static constexpr int kThreads = 128;
  static constexpr int kMaxThreads = kThreads;
  static constexpr int kMinBlocks = 4;  ///< fewest on a multiprocessor; without it, ptxas spills

  __device__ static int thread() { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ static int threads() { return kWarp; }
  /// The team's number in the grid, and the number of teams.
  __device__ static std::int64_t number() { return global_thread() / kWarp; }
  __device__ static std::int64_t count() { return grid_threads() / kWarp; }
  /// Returns the sum of a state over the team, in every thread. All threads of a team call it.
  template <class State>
  __device__ static State sum(State s) {
    return warp_fold(s, Add());
  }
};

/// One block takes a row. Its dynamic shared memory is at least kBytes.
struct BlockTeam {
  static constexpr int kMaxThreads = 512;
  static constexpr int kMinBlocks = 1;
  static constexpr std::size_t kBytes = kWarp * 2 * sizeof(double);

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int threads() { return static_cast<int>(blockDim.x); }
  __device__ static std::int64_t number() { return blockIdx.x; }
  __device__ static std::int64_t count() { return gridDim.x; }
  template <class State>
  __device__ static State sum(State s) {
    static_assert(sizeof(State) <= 2 * sizeof(double));
    return block_fold(s, State(), gpu::dynamic_shared<State>(), Add());
  }
};

// ---- Rows in memory ----

/// True if every row is made of whole packs of 16 bytes, at multiples of 16 bytes.
template <class T>
bool has_wide_rows(const ConstView& v) {
  const std::int64_t bytes = v.strides[0] * static_cast<std::int64_t>(sizeof(T));
  return is_aligned(v.data) && (v.shape[0] <= 1 || bytes % 16 == 0) &&
         v.shape[1] % Pack<T>::kWidth == 0;
}

/// The rows of an input [rows, n] of type T.
template <class T>
struct RowsIn {
  const T* data;
  std::int64_t stride;
  bool wide;

  explicit RowsIn(const ConstView& v)
      : data(v.as<T>()), stride(v.strides[0]), wide(has_wide_rows<T>(v)) {}

  __device__ const T* row(std::int64_t i) const { return data + i * stride; }
};

/// A pack as it lies in registers. If lanes are written one by one, the compiler splits a pack as
/// soon as it is loaded. A thread then waits for each pack before it asks for the next.
struct alignas(16) [[gnu::may_alias]] PackWords {
  std::uint32_t word[4];

  /// Loads 16 bytes at p, which is aligned.
  __device__ static PackWords load(const void* p) {
    const PackWords& words = *static_cast<const PackWords*>(p);  // as lanes_at()
    return words;
  }
  /// Loads `count` elements at p, with `pad` after them. It is not inlined, so that the common path
  /// needs few registers.
  template <class T>
  [[gnu::noinline]] __device__ static PackWords load_singly(const T* p, std::int64_t count,
                                                            float pad) {
    Pack<T> pack;
    for (int k = 0; k < Pack<T>::kWidth; ++k) {
      if (k < count) {
        pack.lane[k] = p[k];
      } else {
        narrow(pad, pack.lane[k]);
      }
    }
    return __builtin_bit_cast(PackWords, pack);
  }
  /// Returns element k of type T. bf16 is the upper half of a float: taking it from the word needs
  /// one instruction instead of two.
  template <class T>
  __device__ ComputeOf<T> value(int k) const {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      return __uint_as_float(k % 2 == 0 ? word[k / 2] << 16 : word[k / 2] & 0xffff0000u);
    } else {
      return widen(__builtin_bit_cast(Pack<T>, *this).lane[k]);
    }
  }
};

/// The rows of an output, whose old values may stay as a summand.
template <class O>
struct RowsOut {
  O* data;
  std::int64_t stride;
  bool wide, adds;

  RowsOut(const View& v, float beta)
      : data(v.as<O>()), stride(v.strides[0]), wide(has_wide_rows<O>(v)), adds(beta != 0) {}

  /// Stores the first `count` of kWidth values from column j on, a multiple of kWidth.
  template <class C, int kWidth>
  __device__ void store(std::int64_t row, std::int64_t j, int count, Lanes<C, kWidth> y) const {
    O* const p = data + row * stride + j;
    constexpr int kLanes = kWidth < Pack<O>::kWidth ? kWidth : Pack<O>::kWidth;
    using Word = Lanes<O, kLanes>;
    if (!wide || count < kWidth) return store_singly(p, count, y, adds);
    for (int i = 0; i < kWidth; i += kLanes) {
      if (adds) {
        const Word old = lanes_at<Word>(p + i);
        for (int k = 0; k < kLanes; ++k) y.lane[i + k] += static_cast<C>(widen(old.lane[k]));
      }
      Word word;
      for (int k = 0; k < kLanes; ++k) narrow(y.lane[i + k], word.lane[k]);
      lanes_at<Word>(p + i) = word;
    }
  }

 private:
  template <class C, int kWidth>
  [[gnu::noinline]] __device__ static void store_singly(O* p, int count, Lanes<C, kWidth> y,
                                                        bool adds) {
    for (int k = 0; k < kWidth; ++k)
      if (k < count) narrow(adds ? static_cast<C>(widen(p[k])) + y.lane[k] : y.lane[k], p[k]);
  }
};

/// A parameter [n] of any floating dtype, or one number n times if it has no data.
struct RowVector {
  const void* data;
  DType dtype;
  std::int64_t stride;
  float otherwise;
  bool aligned;  ///< contiguous, from a multiple of 16 bytes on

  RowVector(const ConstView& v, float number)
      : data(v.data),
        dtype(v.dtype),
        stride(v.data ? v.strides[0] : 0),
        otherwise(number),
        aligned(v.data && stride == 1 && is_aligned(v.data)) {}

  template <class C>
  __device__ C at(std::int64_t j) const {
    return data ? load_element<C>(data, dtype, j * stride) : static_cast<C>(otherwise);
  }
  /// Loads the first `count` of kWidth elements from j on, a multiple of kWidth.
  template <class C, int kWidth>
  __device__ Lanes<C, kWidth> load(std::int64_t j, int count) const {
    if (aligned && count >= kWidth) {
      if (dtype == DType::f32) return load_packs<float, C, kWidth>(j);
      if (dtype == DType::f16) return load_packs<__half, C, kWidth>(j);
      if (dtype == DType::bf16) return load_packs<__nv_bfloat16, C, kWidth>(j);
    }
    if (!data) {
      Lanes<C, kWidth> x;
      for (int k = 0; k < kWidth; ++k) x.lane[k] = static_cast<C>(otherwise);
      return x;
    }
    return load_singly<C, kWidth>(*this, j, count);
  }

 private:
  template <class P, class C, int kWidth>
  __device__ Lanes<C, kWidth> load_packs(std::int64_t j) const {
    constexpr int kLanes = Pack<P>::kWidth < kWidth ? Pack<P>::kWidth : kWidth;
    Lanes<C, kWidth> x;
    for (int i = 0; i < kWidth; i += kLanes) {
      const auto pack = lanes_at<Lanes<P, kLanes>>(static_cast<const P*>(data) + j + i);
      for (int k = 0; k < kLanes; ++k) x.lane[i + k] = static_cast<C>(widen(pack.lane[k]));
    }
    return x;
  }
  template <class C, int kWidth>
  [[gnu::noinline]] __device__ static Lanes<C, kWidth> load_singly(RowVector v, std::int64_t j,
                                                                   int count) {
    Lanes<C, kWidth> x;
    for (int k = 0; k < kWidth; ++k) x.lane[k] = k < count ? v.at<C>(j + k) : C(0);
    return x;
  }
};

// ---- A team's row ----

/// Row `row` of kInputs matrices for the threads of a team, with kHeld packs of each in registers,
/// or none (0). If a row ends within a pack, `pad` follows it. So passes for which it is neutral
/// need not check where the row ends.
template <class Team, int kHeld, class T, int kInputs = 1>
class TeamRow {
 public:
  using C = ComputeOf<T>;
  using Column = std::conditional_t<(kHeld > 0), int, std::int64_t>;
  static constexpr int kWidth = Pack<T>::kWidth;

  __device__ TeamRow(const RowsIn<T> (&in)[kInputs], std::int64_t row, std::int64_t n, float pad)
      : in_(in), row_(row), n_(static_cast<Column>(n)), pad_(pad) {
    if constexpr (kHeld > 0) {
      for (int i = 0; i < kInputs; ++i) {
        const T* const from = in[i].row(row);
        if (in[i].wide) {
#pragma unroll
          for (int p = 0; p < kHeld; ++p)
            if (column(p) < n_) held_[p][i] = PackWords::load(from + column(p));
        } else {
#pragma unroll
          for (int p = 0; p < kHeld; ++p)
            if (column(p) < n_)
              held_[p][i] = PackWords::load_singly(from + column(p), n_ - column(p), pad);
        }
      }
    }
  }

  /// Calls fn(p, j, count, x) for each of the thread's packs: its number in the thread, its first
  /// column, its number of elements, and x[input][k], which is the pad beyond those.
  template <class Fn>
  __device__ void packs(Fn fn) const {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int p = 0; p < kHeld; ++p)
        if (column(p) < n_) call(fn, p, column(p), held_[p]);
    } else {
      for (Column j = column(0); j < n_; j += Team::threads() * kWidth) {
        PackWords x[kInputs];
        for (int i = 0; i < kInputs; ++i) {
          const T* const from = in_[i].row(row_) + j;
          x[i] = in_[i].wide ? PackWords::load(from) : PackWords::load_singly(from, n_ - j, pad_);
        }
        call(fn, 0, j, x);
      }
    }
  }
  /// Returns the sum over the row of State fn(j, count, x), in every thread of the team.
  template <class State, class Fn>
  __device__ State sum_packs(Fn fn) const {
    State sum;
    packs([&](int, Column j, int count, const C(&x)[kInputs][kWidth]) {
      sum = sum + fn(j, count, x);
    });
    return Team::sum(sum);
  }
  /// Returns the sum over the row of pass(x...), a state of math/rows.h that is neutral for the
  /// pad.
  template <class Pass>
  __device__ auto sum(Pass pass) const {
    C zeros[kInputs][kWidth];
    using State = decltype(apply(pass, zeros, 0));
    return sum_packs<State>([&](Column, int, const C(&x)[kInputs][kWidth]) {
      State part = apply(pass, x, 0);
      for (int k = 1; k < kWidth; ++k) part = part + apply(pass, x, k);
      return part;
    });
  }
  /// Sets out[j] = value, for row `row` of n elements, which is not read.
  template <class O>
  __device__ static void fill(const RowsOut<O>& out, std::int64_t row, std::int64_t n, C value) {
    Lanes<C, kWidth> y;
    for (int k = 0; k < kWidth; ++k) y.lane[k] = value;
    const std::int64_t step = std::int64_t{Team::threads()} * kWidth;
    for (std::int64_t j = std::int64_t{Team::thread()} * kWidth; j < n; j += step)
      out.store(row, j, n - j < kWidth ? static_cast<int>(n - j) : kWidth, y);
  }
  /// out[j] = fn(x...).
  template <class O, class Fn>
  __device__ void map(const RowsOut<O>& out, Fn fn) const {
    packs([&](int, Column j, int count, const C(&x)[kInputs][kWidth]) {
      Lanes<C, kWidth> y;
      for (int k = 0; k < kWidth; ++k) y.lane[k] = apply(fn, x, k);
      out.store(row_, j, count, y);
    });
  }

 private:
  __device__ Column column(int p) const {
    return (Column{p} * Team::threads() + Team::thread()) * kWidth;
  }
  __device__ int count_at(Column j) const {
    return n_ - j < kWidth ? static_cast<int>(n_ - j) : kWidth;
  }
  template <class Fn>
  __device__ void call(Fn& fn, int p, Column j, const PackWords (&packs)[kInputs]) const {
    C x[kInputs][kWidth];
    for (int i = 0; i < kInputs; ++i)
      for (int k = 0; k < kWidth; ++k) x[i][k] = packs[i].template value<T>(k);
    fn(p, j, count_at(j), x);
  }
  template <class Fn>
  __device__ static auto apply(Fn& fn, const C (&x)[kInputs][kWidth], int k) {
    if constexpr (kInputs == 1) {
      return fn(x[0][k]);
    } else {
      return fn(x[0][k], x[1][k]);
    }
  }

  const RowsIn<T> (&in_)[kInputs];
  std::int64_t row_;
  Column n_;
  float pad_;
  PackWords held_[kHeld > 0 ? kHeld : 1][kInputs];
};

// ---- Launch ----

/// The choice of with_row_teams: types and numbers as an object.
template <class TeamType, int kPacks>
struct TeamChoice {
  using Team = TeamType;
  static constexpr int kHeld = kPacks;
  unsigned threads;    ///< threads of a block
  std::size_t shared;  ///< bytes of dynamic shared memory

  std::int64_t teams_in_block() const {
    return std::is_same_v<Team, WarpTeam> ? threads / kWarp : 1;
  }
  /// Returns a grid of that many teams, or of fewer that stride over the rows.
  dim3 grid(std::int64_t teams) const {
    const std::int64_t blocks = math::ceil_div(teams, teams_in_block());
    return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, max_blocks())));
  }
};

/// Calls fn(TeamChoice) for rows of n elements of type T, of which a thread may hold kPacks packs.
template <class T, int kPacks, class Fn>
void with_row_teams(std::int64_t n, Fn&& fn) {
  const std::int64_t packs = math::ceil_div(n, Pack<T>::kWidth);
  if (packs <= kWarp * kPacks) {
    fn(TeamChoice<WarpTeam, kPacks>{WarpTeam::kThreads, BlockTeam::kBytes});
  } else if (packs <= BlockTeam::kMaxThreads * kPacks) {
    const std::int64_t warps = math::ceil_div(packs, kWarp * kPacks);
    fn(TeamChoice<BlockTeam, kPacks>{static_cast<unsigned>(warps * kWarp), BlockTeam::kBytes});
  } else {
    fn(TeamChoice<BlockTeam, 0>{BlockTeam::kMaxThreads, BlockTeam::kBytes});
  }
}

/// Calls fn(O()) with the type of a gradient sink: T, or the compute type.
template <class T, class Fn>
void with_sink(DType dtype, Fn&& fn) {
  if (size_of(dtype) == sizeof(T)) {
    fn(T());
  } else {
    fn(ComputeOf<T>());
  }
}

}  // namespace firn::kernels::cuda
