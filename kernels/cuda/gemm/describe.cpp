// The text of describe(Device) for a CUDA device, and the facts that environment() takes from CUDA.
#include "kernels/settings/describe.h"

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "firn/error.h"
#include "firn/runtime/stream.h"
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

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  gpu::check_cuda(cudaDeviceGetAttribute(&value, which, index), "describe",
                  "cudaDeviceGetAttribute");
  return value;
}

std::string library() {
  const LibraryFacts facts = cublaslt_facts();
  if (facts.version.empty()) return "no library: cuBLASLt was not found";
  return "cuBLASLt " + facts.version + " (" + facts.path + ")";
}

}  // namespace

void note_refusal(Device device, Epilogue epilogue, DType in, cublasStatus_t status) {
  Refusals& refusals = Refusals::all();
  const std::lock_guard lock(refusals.mutex);
  ++refusals.counts[{device.index, epilogue, in, status}];
}

DeviceFacts device_facts(int index) {
  cudaDeviceProp properties{};
  gpu::check_cuda(cudaGetDeviceProperties(&properties, index), "describe",
                  "cudaGetDeviceProperties");
  return {.name = properties.name,
          .major = attribute(cudaDevAttrComputeCapabilityMajor, index),
          .minor = attribute(cudaDevAttrComputeCapabilityMinor, index),
          .multiprocessors = attribute(cudaDevAttrMultiProcessorCount, index),
          .bytes = properties.totalGlobalMem};
}

std::string version_text(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string runtime_version() {
  int number = 0;
  return cudaRuntimeGetVersion(&number) == cudaSuccess ? version_text(number) : "";
}

std::string driver_version() {
  int number = 0;  // 0 without a driver
  return cudaDriverGetVersion(&number) == cudaSuccess && number > 0 ? version_text(number) : "";
}

LibraryFacts cublaslt_facts() {
  try {
    const gpu::CublasLt& lt = gpu::cublaslt();
    return {.version = std::to_string(lt.cublasLtGetVersion()), .path = lt.path, .tried = ""};
  } catch (const Error& e) {
    const std::string& text = e.message();  // "...; tried:" and a line for each place
    const auto lines = text.find('\n');
    return {
        .version = "", .path = "", .tried = lines == std::string::npos ? text : text.substr(lines)};
  }
}

std::string describe_device(Device device) {
  const DeviceFacts facts = device_facts(device.index);
  std::string out = facts.name + ", sm_" + std::to_string(facts.major) +
                    std::to_string(facts.minor) + ", " + std::to_string(facts.multiprocessors) +
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
