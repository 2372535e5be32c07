// What describe(Device) says of a CUDA device.
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "firn/error.h"
#include "firn/stream.h"
#include "kernels/cuda/device/host.h"
#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/gemm/refusals.h"

namespace firn::kernels::cuda {
namespace {

struct Refusals {
  std::mutex mutex;
  std::map<std::tuple<int, Epilogue, DType, cublasStatus_t>, int> counts;

  static Refusals& all() {
    static auto* const refusals = new Refusals;
    return *refusals;
  }
};

const char* name_of(Epilogue e) {
  static constexpr std::array<const char*, 6> kNames = {
      "no epilogue", "a bias", "gelu", "relu's gradient", "gelu's gradient", "a bias gradient"};
  return kNames.at(static_cast<std::size_t>(e));
}

int attribute(cudaDeviceAttr which, Device device) {
  int value = 0;
  gpu::check_cuda(cudaDeviceGetAttribute(&value, which, int{device.index}), "describe",
                  "cudaDeviceGetAttribute");
  return value;
}

std::string library() {
  try {
    const gpu::CublasLt& lt = gpu::cublaslt();
    return "cuBLASLt " + std::to_string(lt.cublasLtGetVersion()) + " (" + lt.path + ")";
  } catch (const Error&) {
    return "no library: cuBLASLt was not found";
  }
}

}  // namespace

void note_refusal(Device device, Epilogue epilogue, DType in, cublasStatus_t status) {
  Refusals& refusals = Refusals::all();
  const std::lock_guard lock(refusals.mutex);
  ++refusals.counts[{device.index, epilogue, in, status}];
}

std::string describe_device(Device device) {
  cudaDeviceProp properties{};
  gpu::check_cuda(cudaGetDeviceProperties(&properties, int{device.index}), "describe",
                  "cudaGetDeviceProperties");
  std::string out = properties.name;
  out += ", sm_" + std::to_string(attribute(cudaDevAttrComputeCapabilityMajor, device)) +
         std::to_string(attribute(cudaDevAttrComputeCapabilityMinor, device)) + ", " +
         std::to_string(attribute(cudaDevAttrMultiProcessorCount, device)) +
         " multiprocessors, products by " + library();
  Refusals& refusals = Refusals::all();
  const std::lock_guard lock(refusals.mutex);
  for (const auto& [what, count] : refusals.counts) {
    const auto& [index, epilogue, in, status] = what;
    if (index != device.index) continue;
    out += "\ncuBLASLt refused " + std::to_string(count) +
           " of the algorithms that it had chosen for " + std::string(to_string(in)) +
           " products with " + name_of(epilogue) + " (" + gpu::status_name(status) +
           "): others run, or separate kernels";
  }
  return out;
}

}  // namespace firn::kernels::cuda
