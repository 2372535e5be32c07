// describe(Device), which joins the backends' descriptions.
#include "kernels/settings/describe.h"

#include "firn/cpu.h"
#include "firn/runtime/stream.h"

namespace firn {

std::string describe(Device device) {
  if (device.is_cpu()) return describe_cpu();
  require_device("describe", device);
#ifdef FIRN_HAS_CUDA
  return kernels::cuda::describe_device(device);
#else
  return "";  // require_device() has thrown
#endif
}

}  // namespace firn
