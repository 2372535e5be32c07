// Finds the CUDA devices, or the reason why there are none.
#include "runtime/cuda/api.h"
#include "runtime/cuda/cuda.h"

namespace firn::memory::cuda {
namespace {

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

Availability find_devices() {
  Availability a;
  const cudaError_t status = cudaGetDeviceCount(&a.devices);
  if (status == cudaSuccess && a.devices > 0) return a;
  cudaGetLastError();
  a.devices = 0;
  const std::string answer = fmt::format(" (cudaGetDeviceCount answered {}, {})",
                                         static_cast<int>(status), cudaGetErrorString(status));
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
      a.why = "no NVIDIA driver was found" + answer;
      a.hint = "install NVIDIA's driver, or use the CPU";
    } else {
      a.why = fmt::format("the NVIDIA driver is too old: it knows CUDA up to {}, this is CUDA {}{}",
                          version(driver), version(runtime), answer);
      a.hint = "update NVIDIA's driver, or build firn with an older CUDA Toolkit";
    }
  } else if (status == cudaErrorNoDevice || status == cudaSuccess) {
    a.why = "the NVIDIA driver finds no device" + answer;
    a.hint = "look at nvidia-smi and the variable CUDA_VISIBLE_DEVICES, or use the CPU";
  } else {
    a.why = "CUDA does not start" + answer;
    a.hint = "look at nvidia-smi, or use the CPU";
  }
  return a;
}

}  // namespace

const Availability& availability() noexcept {
  static const Availability& found = *new Availability(find_devices());  // once, by one thread
  return found;
}

std::string describe_error(int status) {
  cudaGetLastError();
  const auto error = static_cast<cudaError_t>(status);
  return fmt::format("{}, {} ({})", cudaGetErrorName(error), cudaGetErrorString(error), status);
}

}  // namespace firn::memory::cuda
