// Versions and files of the GPU's libraries.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "bench/gpu/probe/probes.h"
#include "bench/gpu/probe/product.h"
#include "firn/error.h"
#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/settings/describe.h"
#ifdef FIRN_PROBE_CUDNN
#include "kernels/cuda/cudnn/library.h"
#endif

namespace probe {
namespace {

using firn::kernels::cuda::version_text;

long long attribute(cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, 0), "cudaDeviceGetAttribute");
  return value;
}

void gpu(Line& line) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  const auto number = [](long long n) { return std::to_string(n); };
  line.add(properties.name);
  line.cell([&] {
    return "sm_" + number(attribute(cudaDevAttrComputeCapabilityMajor)) +
           number(attribute(cudaDevAttrComputeCapabilityMinor)) + ", " +
           number(attribute(cudaDevAttrMultiProcessorCount)) + " SMs,";
  });
  line.cell([&] { return "clock " + number(attribute(cudaDevAttrClockRate) / 1000) + " MHz,"; });
  line.cell([&] {
    return "memory " + number(static_cast<long long>(properties.totalGlobalMem >> 20)) +
           " MiB at " + number(attribute(cudaDevAttrMemoryClockRate) / 1000) + " MHz, " +
           number(attribute(cudaDevAttrGlobalMemoryBusWidth)) + " bits,";
  });
  line.cell([&] {
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return number(static_cast<long long>(free >> 20)) + " MiB free,";
  });
  line.cell(
      [&] { return "L2 " + number(attribute(cudaDevAttrL2CacheSize) / (1 << 20)) + " MiB,"; });
  line.cell([&] {
    return "shared memory " + number(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) / 1024) +
           " KiB a block";
  });
}

void driver(Line& line) {
  int v = 0;
  check(cudaDriverGetVersion(&v), "cudaDriverGetVersion");
  line.add("CUDA " + version_text(v));
  std::ifstream file("/proc/driver/nvidia/version");
  std::string text;
  line.add(std::getline(file, text) ? "(" + text + ")" : "(no /proc/driver/nvidia/version)");
}

void runtime(Line& line) {
  int v = 0;
  check(cudaRuntimeGetVersion(&v), "cudaRuntimeGetVersion");
  line.add("CUDA " + version_text(v) + ", headers " + version_text(CUDART_VERSION));
}

void cublaslt_version(Line& line) {
  const auto& lt = firn::gpu::cublaslt();
  line.add(std::to_string(lt.cublasLtGetVersion()) + ", headers " + std::to_string(CUBLAS_VERSION) +
           ", opened as " + lt.path);
}

void cudnn_version(Line& line) {
#ifdef FIRN_PROBE_CUDNN
  if (const firn::gpu::Cudnn* const library = firn::gpu::cudnn()) {
    line.add(std::to_string(library->cudnnGetVersion()) + ", headers " +
             std::to_string(CUDNN_VERSION) + ", opened as " + library->path);
  } else {
    line.add("none:" + firn::gpu::why_no_cudnn());
  }
#elif defined(FIRN_HAS_CUSIM)
  line.add("simulator");
#else
  line.add("firn was compiled without its headers");
#endif
}

/// Lists the files of CUDA that this process has mapped, once cuBLASLt and cuDNN are open.
void files(Line& line) {
  try {
    firn::gpu::cublaslt();
  } catch (const firn::Error&) {  // its own line reports it
  }
#ifdef FIRN_PROBE_CUDNN
  firn::gpu::cudnn();
#endif
  std::vector<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string text; std::getline(maps, text);) {
    const auto slash = text.find('/');
    if (slash == std::string::npos) continue;
    const std::string path = text.substr(slash), name = path.substr(path.rfind('/') + 1);
    const bool cuda = name.starts_with("libcuda") || name.starts_with("libcublas") ||
                      name.starts_with("libcudnn") || name.starts_with("libnvidia");
    if (cuda && std::find(found.begin(), found.end(), path) == found.end()) found.push_back(path);
  }
  for (const std::string& path : found) line.add(path);
  if (found.empty()) line.add("none");
}

}  // namespace

void add_machine(std::vector<Step>& steps) {
  steps.push_back({"GPU", gpu});
  steps.push_back({"driver", driver});
  steps.push_back({"runtime", runtime});
  steps.push_back({"cuBLASLt", cublaslt_version});
  steps.push_back({"cuDNN", cudnn_version});
  steps.push_back({"files", files});
}

}  // namespace probe
