// An H200 as cuDNN reads its description: enough to choose engines, compile kernels and finalise
// plans, without a GPU or a driver.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "kernels/cuda/cudnn/library.h"

namespace firn::testing {

using gpu::Descriptor;

/// Properties of an H200, as cuDNN 9.8 and later read them.
inline constexpr std::string_view kH200 = R"({"maxGridSize": [2147483647, 65535, 65535],
"maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "multiProcessorCount": 132,
"warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
"reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
"maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
"supportCoopLaunch": 1, "totalGlobalMem": 150754820096, "smClockRateKHz": 1980000,
"memClockRateKHz": 3201000, "l2CacheSize": 62914560, "cudaDeviceId": 0, "deviceVer": 900,
"driverVer": 13000, "deviceName": "NVIDIA H200"})";

/// The described device, or one whose status says that there is none.
inline Descriptor h200() {
  Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  const std::string text(kH200);  // its end is part of it
  device
      .set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
           static_cast<std::int64_t>(text.size() + 1), text.c_str())
      .finalize();
  return device;
}

/// Skips where there is nothing to ask.
inline bool has_cudnn() {
  if (!gpu::cudnn()) {
    fmt::print("skipped: no cuDNN; tried:{}\n", gpu::why_no_cudnn());
    return false;
  }
  static const bool said = [] {
    fmt::print("cuDNN {} ({})\n", gpu::cudnn()->cudnnGetVersion(), gpu::cudnn()->path);
    return true;
  }();
  const Descriptor device = h200();
  if (device.ok()) return said;
  fmt::print("skipped: this cuDNN takes no described device: {}\n", gpu::describe(device.status()));
  return false;
}

}  // namespace firn::testing
