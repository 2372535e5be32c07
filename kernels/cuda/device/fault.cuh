// Reports of kernels about values that only the device sees (firn/runtime/kernel_support.h). The
// host makes a FaultSite and passes it to the kernel. raise_fault records the first bad value, and
// the kernel continues.
//
//   const FaultSite site = fault_site(op, "index", stream.device);   // on the host
//   if (value < 0 || value >= bound) raise_fault(site, position, value, bound);   // in a kernel
#pragma once

#include <cstdint>

#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/device/gpu.h"

namespace firn::kernels::cuda {

/// The record of a fault, and the names for its message. It is trivially copyable, since kernels
/// take it as a parameter.
struct FaultSite {
  runtime::Fault* record;
  const char* op;    ///< never read on the device
  const char* what;  ///< never read on the device either
};

/// `op` and `what` must outlive the work: they are string literals.
inline FaultSite fault_site(const char* op, const char* what, Device device) {
  return {runtime::fault_record(device), op, what};
}

/// Records that `value`, at `position` (row-major) of its tensor, is outside [0, bound), unless a
/// fault is recorded already. If several threads raise one, it is undefined which is kept.
__device__ inline void raise_fault(const FaultSite& site, std::int64_t position, std::int64_t value,
                                   std::int64_t bound) {
  runtime::Fault* const record = site.record;
  if (atomicCAS(&record->raised, runtime::Fault::kNone, runtime::Fault::kClaimed) !=
      runtime::Fault::kNone) {
    return;
  }
  record->op = site.op;
  record->what = site.what;
  record->position = position;
  record->value = value;
  record->bound = bound;
  __threadfence_system();  // the host must see the fields before `raised`
  atomicExch(&record->raised, runtime::Fault::kComplete);
}

}  // namespace firn::kernels::cuda
