// What a kernel's source sees of CUDA C++ under a host compiler: the keywords, the built-in
// variables and the device functions. The real CUDA headers supply types and the 16-bit arithmetic.
#pragma once

#ifdef __CUDACC__
#error "the simulator is for host compilers; nvcc needs no stand-ins"
#endif

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

// ---- Keywords ----

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
// Blocks run one after the other, so one copy serves them all. The section lets the engine fill it
// with NaN before each block; GCC puts statics of templates and inline functions elsewhere.
#define __shared__ static __attribute__((section("cusim_shared")))
#define __constant__ __attribute__((section("cusim_const")))

// ---- Built-in variables: set whenever another thread gets to run ----

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace cusim {

/// Where a collective was called. (std::source_location, which clang 14 lacks.)
struct Location {
  const char* file = "";
  unsigned line = 0;
  static constexpr Location here(const char* file = __builtin_FILE(),
                                 unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

enum class WarpOp : std::uint8_t {
  shuffle,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  ballot,
  any,
  all,
  sync,
  match_any
};
enum class BarrierOp : std::uint8_t { sync, count, all, any };

/// The calling lane's part in a collective of the lanes in `mask`; its result once all are there.
std::uint64_t warp_op(WarpOp op, unsigned mask, std::uint64_t bits, int argument, int width,
                      const Location& where);
/// Waits for all threads of the block; the number of, or whether all or any, predicates are true.
int barrier(BarrierOp op, int predicate, const Location& where);
/// A memory fence of the device.
void fence();
/// After an atomic operation at `address`: for the check of races between blocks.
void after_atomic(const void* address);
/// The block's dynamic shared memory.
void* dynamic_shared();
template <class T>
T* dyn_smem() {
  return static_cast<T*>(dynamic_shared());
}

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
  return value;
}

/// *p = update(*p) at once; what was there.
template <class T, class Update>
T atomic_update(T* p, Update update) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
  static_assert(sizeof(T) == sizeof(Bits));
  Bits* bits = reinterpret_cast<Bits*>(p);
  Bits old = __atomic_load_n(bits, __ATOMIC_ACQUIRE);
  while (!__atomic_compare_exchange_n(bits, &old, Bits(to_bits(update(from_bits<T>(old)))), false,
                                      __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
  }
  after_atomic(p);
  return from_bits<T>(old);
}

}  // namespace cusim

// ---- Barriers and warp collectives ----

inline void __syncthreads(cusim::Location where = cusim::Location::here()) {
  cusim::barrier(cusim::BarrierOp::sync, 0, where);
}
inline int __syncthreads_count(int predicate, cusim::Location where = cusim::Location::here()) {
  return cusim::barrier(cusim::BarrierOp::count, predicate, where);
}
inline int __syncthreads_and(int predicate, cusim::Location where = cusim::Location::here()) {
  return cusim::barrier(cusim::BarrierOp::all, predicate, where);
}
inline int __syncthreads_or(int predicate, cusim::Location where = cusim::Location::here()) {
  return cusim::barrier(cusim::BarrierOp::any, predicate, where);
}
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       cusim::Location where = cusim::Location::here()) {
  cusim::warp_op(cusim::WarpOp::sync, mask, 0, 0, 32, where);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
              cusim::Location where = cusim::Location::here()) {
  return cusim::from_bits<T>(
      cusim::warp_op(cusim::WarpOp::shuffle, mask, cusim::to_bits(value), lane, width, where));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 cusim::Location where = cusim::Location::here()) {
  return cusim::from_bits<T>(cusim::warp_op(cusim::WarpOp::shuffle_up, mask, cusim::to_bits(value),
                                            int(delta), width, where));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   cusim::Location where = cusim::Location::here()) {
  return cusim::from_bits<T>(cusim::warp_op(cusim::WarpOp::shuffle_down, mask,
                                            cusim::to_bits(value), int(delta), width, where));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                  cusim::Location where = cusim::Location::here()) {
  return cusim::from_bits<T>(
      cusim::warp_op(cusim::WarpOp::shuffle_xor, mask, cusim::to_bits(value), lanes, width, where));
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              cusim::Location where = cusim::Location::here()) {
  return unsigned(cusim::warp_op(cusim::WarpOp::ballot, mask, predicate != 0, 0, 32, where));
}
inline int __any_sync(unsigned mask, int predicate,
                      cusim::Location where = cusim::Location::here()) {
  return int(cusim::warp_op(cusim::WarpOp::any, mask, predicate != 0, 0, 32, where));
}
inline int __all_sync(unsigned mask, int predicate,
                      cusim::Location where = cusim::Location::here()) {
  return int(cusim::warp_op(cusim::WarpOp::all, mask, predicate != 0, 0, 32, where));
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, cusim::Location where = cusim::Location::here()) {
  return unsigned(
      cusim::warp_op(cusim::WarpOp::match_any, mask, cusim::to_bits(value), 0, 32, where));
}

// ---- Memory ----

inline void __threadfence() { cusim::fence(); }
inline void __threadfence_system() { cusim::fence(); }
inline void __threadfence_block() {}  // the block's own order is what barriers say

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
  return cusim::atomic_update(p, [value](T old) { return T(old + value); });
}
template <class T>
T atomicSub(T* p, std::type_identity_t<T> value) {
  return cusim::atomic_update(p, [value](T old) { return T(old - value); });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> value) {
  return cusim::atomic_update(p, [value](T old) { return old > value ? old : value; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> value) {
  return cusim::atomic_update(p, [value](T old) { return old < value ? old : value; });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> value) {
  return cusim::atomic_update(p, [value](T) { return value; });
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return cusim::atomic_update(p, [=](T old) { return old == expected ? value : old; });
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> value) {
  return cusim::atomic_update(p, [value](T old) { return T(old | value); });
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> value) {
  return cusim::atomic_update(p, [value](T old) { return T(old & value); });
}
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  return cusim::atomic_update(p, [limit](unsigned old) { return old >= limit ? 0u : old + 1u; });
}

// ---- Arithmetic that the CUDA headers give to nvcc only ----

inline float __int_as_float(int v) { return std::bit_cast<float>(v); }
inline int __float_as_int(float v) { return std::bit_cast<int>(v); }
inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline double __longlong_as_double(long long v) { return std::bit_cast<double>(v); }
inline long long __double_as_longlong(double v) { return std::bit_cast<long long>(v); }
inline int __popc(unsigned v) { return std::popcount(v); }
inline int __popcll(unsigned long long v) { return std::popcount(v); }
inline int __clz(int v) { return std::countl_zero(unsigned(v)); }
inline int __clzll(long long v) { return std::countl_zero(static_cast<unsigned long long>(v)); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline unsigned __brev(unsigned v) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= ((v >> i) & 1u) << (31 - i);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((std::uint64_t(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(a) * b) >> 64);
}
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.f / x; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __saturatef(float x) { return x < 0.f ? 0.f : x > 1.f ? 1.f : x; }
inline float rsqrtf(float x) { return 1.f / std::sqrt(x); }
inline double rsqrt(double x) { return 1. / std::sqrt(x); }
