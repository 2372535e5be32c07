// How a kernel contract finds its backend. A contract header declares each kernel once, in
// namespace cpu, and names it in one of the two macros below; the macro declares the CUDA twin with
// the same signature and the function of the same name, in namespace kernels, that picks one by the
// device of the first view among its arguments.
//
// Folder law: kernels/ sees floors 0 and 1 and view.h, never Tensor, autograd, nn or optim. A
// kernel takes views, scalars and a stream, checks nothing (ops have), and allocates only
// workspace.
#pragma once

#include <utility>

#include "base/build.h"
#include "firn/error.h"
#include "firn/stream.h"
#include "firn/view.h"

namespace firn::kernels {

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
[[noreturn]] inline void no_kernel(const char* name, Device device) {
  throw DeviceError(name, "has no kernel for " + to_string(device),
                    kHasCuda ? "move the operands to the CPU" : "build with -DFIRN_CUDA=ON");
}
}  // namespace detail

/// Both backends have the kernel.
#define FIRN_KERNEL(name)                                               \
  namespace cuda {                                                      \
  decltype(cpu::name) name;                                             \
  }                                                                     \
  template <class... Args>                                              \
  void name(Args&&... args) {                                           \
    const Device device = detail::first_device(args...);                \
    if (device.is_cpu()) return cpu::name(std::forward<Args>(args)...); \
    if constexpr (kHasCuda) {                                           \
      cuda::name(std::forward<Args>(args)...);                          \
    } else {                                                            \
      detail::no_kernel(#name, device);                                 \
    }                                                                   \
  }

/// Only the CPU has it so far; the name on another device throws DeviceError.
#define FIRN_KERNEL_CPU(name)                               \
  template <class... Args>                                  \
  void name(Args&&... args) {                               \
    const Device device = detail::first_device(args...);    \
    if (!device.is_cpu()) detail::no_kernel(#name, device); \
    cpu::name(std::forward<Args>(args)...);                 \
  }

}  // namespace firn::kernels
