// describe(Device), which joins what the backends say.
#include <string>

#include "firn/cpu.h"
#include "firn/stream.h"

namespace firn {
#ifdef FIRN_HAS_CUDA
namespace kernels::cuda {
std::string describe_device(Device device);
}  // namespace kernels::cuda
#endif

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
