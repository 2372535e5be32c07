// Dispatch of a kernel contract to its backend. A contract header declares each kernel once, in
// namespace cpu, and passes its name to one of the macros below. That declaration is the signature;
// nothing defines the function. The macro declares the variants for the CPU (isa.h) and the CUDA
// twin with the same signature. It also defines the function of that name in namespace kernels,
// which picks the backend by the device of the first view among its arguments. A CPU kernel calls
// the others of its own variant: FIRN_ISA::copy(...).
//
// Kernels include the public headers of base and runtime (include/firn) and nothing of src/. A
// kernel takes views, scalars and a stream. Operations have checked its arguments; it allocates
// workspace only. It throws OutOfMemory if memory runs out, and DeviceError on a device without the
// kernel.
//
// In a dry run (firn/runtime/kernel_support.h) a kernel allocates and releases what it would
// otherwise, and does nothing else. FIRN_KERNEL is for kernels that allocate nothing on either
// backend: a dry run does not call them. The others are declared by FIRN_KERNEL_WITH_WORKSPACE.
// Their host code runs, but
//   - parallel_for() (CPU) runs no chunk, and gpu::launch() (CUDA) launches nothing;
//   - calls of libraries and of CUDA that compute, copy or clear are left out, though plans are
//     made and their workspace is allocated;
//   - the host reads and writes no element. So allocations must follow from shapes, strides,
//     dtypes, the alignment of addresses, settings and the number of threads.
#pragma once

#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "firn/error.h"
#include "firn/memory/labels.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/spans.h"
#include "firn/runtime/stream.h"
#include "firn/view.h"
#include "kernels/settings/isa.h"

namespace firn::kernels {

/// True if this build has the kernels of kernels/cuda.
#ifdef FIRN_HAS_CUDA
inline constexpr bool kHasCudaKernels = true;
#else
inline constexpr bool kHasCudaKernels = false;
#endif

namespace detail {
inline Device device_of(const ConstView& v) { return v.device; }
inline Device device_of(const View& v) { return v.device; }
template <class First, class... Rest>
Device first_device(const First& first, const Rest&... rest) {
  if constexpr (requires { device_of(first); }) {
    return device_of(first);
  } else {
    return first_device(rest...);
  }
}

/// Bytes that a kernel reads or writes of an operand: each element of memory once. A contract with
/// operands in a struct has an overload of its own, declared with the struct.
inline double bytes_of(const ConstView& v) noexcept {
  if (!v.data) return 0;
  double elements = 1;
  for (int i = 0; i < v.rank(); ++i)
    if (v.strides[i] != 0 || v.shape[i] == 0) elements *= static_cast<double>(v.shape[i]);
  return elements * static_cast<double>(size_of(v.dtype));
}
inline double bytes_of(const View& v) noexcept { return bytes_of(ConstView(v)); }
template <class T>
double operand_bytes(const T& operand) noexcept {
  if constexpr (requires { bytes_of(operand); }) {
    return bytes_of(operand);
  } else {
    return 0;
  }
}
template <class First, class... Rest>
DType first_dtype(const First& first, const Rest&... rest) noexcept {
  if constexpr (std::is_convertible_v<First, ConstView>) {
    return ConstView(first).dtype;
  } else if constexpr (sizeof...(rest) > 0) {
    return first_dtype(rest...);
  } else {
    return f32;
  }
}
template <class First, class... Rest>
Stream stream_among(Device device, const First& first, const Rest&... rest) {
  if constexpr (std::is_same_v<First, Stream>) {
    return first;
  } else if constexpr (sizeof...(rest) > 0) {
    return stream_among(device, rest...);
  } else {
    return {device, nullptr};
  }
}
/// Bytes that a kernel moves: those of its operands.
template <class... Args>
double moved_bytes(const Args&... args) noexcept {
  return (operand_bytes(args) + ... + 0.0);
}
template <class... Args>
void note_work(runtime::Span& span, Device device, runtime::Work work,
               const Args&... args) noexcept {
  span.runs(stream_among(device, args...), first_dtype(args...), work);
}

/// Throws for an operand with a dtype that firn stores without computing with it. Operations have
/// checked the dtypes of views in a struct.
[[noreturn]] inline void stored_only(const char* name, const ConstView& v) {
  throw Error(name, "does not compute with " + to_string(v.shape) + " " + to_string(v.dtype),
              is_float8(v.dtype) ? "cast it: x.to(firn::f32)" : "cast it: x.to(firn::i64)");
}
template <class T>
void require_computed(const char* name, const T& operand) {
  if constexpr (std::is_convertible_v<T, ConstView>) {
    if (is_stored_only(ConstView(operand).dtype)) [[unlikely]]
      stored_only(name, operand);
  }
}

[[noreturn]] inline void no_kernel(const char* name, Device device) {
  throw DeviceError(name, "has no kernel for " + to_string(device),
                    kHasCudaKernels ? "move the operands to the CPU" : "build with -DFIRN_CUDA=ON");
}
}  // namespace detail

/// The CPU's kernel in use, among its variants (isa.h), which have one signature.
#ifdef FIRN_CPU_VARIANTS
#define FIRN_CPU_VARIANTS_OF(name) \
  namespace cpu::v2 {              \
  decltype(cpu::name) name;        \
  }                                \
  namespace cpu::v3 {              \
  decltype(cpu::name) name;        \
  }                                \
  namespace cpu::v4 {              \
  decltype(cpu::name) name;        \
  }
#define FIRN_ON_CPU(name) cpu::variant(cpu::v2::name, cpu::v3::name, cpu::v4::name)
#else
#define FIRN_CPU_VARIANTS_OF(name) \
  namespace cpu::native {          \
  decltype(cpu::name) name;        \
  }
#define FIRN_ON_CPU(name) cpu::variant(cpu::native::name)
#endif

/// Both backends have the kernel, and neither allocates workspace in it.
#define FIRN_KERNEL(name) FIRN_KERNEL_THAT_MOVES(name, detail::moved_bytes)
/// FIRN_KERNEL for a kernel that does not move each operand once. `bytes` is a function of the
/// kernel's arguments, for profiles.
#define FIRN_KERNEL_THAT_MOVES(name, bytes)                               \
  FIRN_KERNEL_OF_BOTH(name, (detail::require_computed(#name, args), ...); \
                      if (runtime::dry_run()) [[unlikely]] return,        \
                      (runtime::Work{0, bytes(args...)}))
/// FIRN_KERNEL_THAT_MOVES for a kernel that also takes the dtypes without arithmetic.
#define FIRN_KERNEL_OF_ANY_DTYPE(name, bytes)                            \
  FIRN_KERNEL_OF_BOTH(name, if (runtime::dry_run()) [[unlikely]] return, \
                      (runtime::Work{0, bytes(args...)}))
/// Both backends have the kernel, and at least one allocates workspace in it or calls a kernel that
/// does.
#define FIRN_KERNEL_WITH_WORKSPACE(name)                                  \
  FIRN_KERNEL_OF_BOTH(name, (detail::require_computed(#name, args), ...); \
                      const runtime::KernelScope scope(#name),            \
                      (runtime::Work{0, detail::moved_bytes(args...)}))
/// Both backends have the kernel, which multiplies matrices. `flops` is a function of its
/// arguments: the floating-point operations of its products, 2 for each multiply-add, for profiles.
#define FIRN_KERNEL_OF_PRODUCTS(name, flops)                         \
  FIRN_KERNEL_OF_BOTH(name, const runtime::KernelScope scope(#name), \
                      (runtime::Work{flops(args...), detail::moved_bytes(args...)}))
#define FIRN_KERNEL_OF_BOTH(name, beginning, work)                              \
  FIRN_CPU_VARIANTS_OF(name)                                                    \
  namespace cuda {                                                              \
  decltype(cpu::name) name;                                                     \
  }                                                                             \
  template <class... Args>                                                      \
  void name(Args&&... args) try {                                               \
    beginning;                                                                  \
    const Device device = detail::first_device(args...);                        \
    runtime::Span span(runtime::SpanKind::kernel, #name);                       \
    if (span.on()) [[unlikely]]                                                 \
      detail::note_work(span, device, work, args...);                           \
    if (device.is_cpu()) return FIRN_ON_CPU(name)(std::forward<Args>(args)...); \
    if constexpr (kHasCudaKernels) {                                            \
      cuda::name(std::forward<Args>(args)...);                                  \
    } else {                                                                    \
      detail::no_kernel(#name, device);                                         \
    }                                                                           \
  } catch (const std::bad_alloc&) {                                             \
    firn::detail::out_of_memory(#name);                                         \
  }

/// Only the CPU has the kernel; a call for another device throws DeviceError.
#define FIRN_KERNEL_CPU(name)                                                      \
  FIRN_CPU_VARIANTS_OF(name)                                                       \
  template <class... Args>                                                         \
  void name(Args&&... args) try {                                                  \
    (detail::require_computed(#name, args), ...);                                  \
    const Device device = detail::first_device(args...);                           \
    if (!device.is_cpu()) detail::no_kernel(#name, device);                        \
    runtime::Span span(runtime::SpanKind::kernel, #name);                          \
    if (span.on()) [[unlikely]]                                                    \
      detail::note_work(span, device, {0, detail::moved_bytes(args...)}, args...); \
    FIRN_ON_CPU(name)(std::forward<Args>(args)...);                                \
  } catch (const std::bad_alloc&) {                                                \
    firn::detail::out_of_memory(#name);                                            \
  }

}  // namespace firn::kernels
