// The backends' facts about this build and this machine, for describe(Device) and environment().
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "firn/device.h"
#include "kernels/settings/isa.h"

namespace firn::kernels {

/// A library of another project, as this process has it.
struct LibraryFacts {
  std::string version;  ///< empty if there is none
  std::string path;     ///< the name by which it was opened; empty if it is linked
  std::string tried;    ///< why there is none: a line for each place
};

namespace cpu {

struct CpuFacts {
  Isa machine;                 ///< the highest level that the CPU has
  Isa level;                   ///< the level in use
  Isa kernels;                 ///< the level of the kernels' instructions
  int variants;                ///< number of the kernels' variants in this build
  bool forced;                 ///< true if FIRN_CPU_ISA chose the level
  std::string f32, bf16, f16;  ///< units that multiply factors of the dtype, in words
  bool bf16_unit, f16_unit;    ///< true if it is a unit for 16-bit numbers
};
/// Throws as isa() does.
CpuFacts cpu_facts();
/// Returns the level of the instructions in the kernels of a native build, or of the highest
/// variant up to `level`. Throws nothing, unlike cpu_facts().
Isa level_of_kernels(Isa level) noexcept;
/// Returns the features that the CPU has and the system supports, as /proc/cpuinfo names them. They
/// are avx2, fma, f16c, avx512f, avx512_bf16, avx512_fp16, amx_tile, amx_bf16, amx_fp16, in this
/// order.
std::vector<std::string> cpu_features();

/// These libraries are linked: they have no path, and no place was tried. A version is empty if
/// firn was built without the library.
LibraryFacts onednn_facts();
LibraryFacts eigen_facts();

}  // namespace cpu

#ifdef FIRN_HAS_CUDA
namespace cuda {

struct DeviceFacts {
  std::string name;
  int major, minor;  ///< compute capability
  int multiprocessors;
  std::size_t bytes;  ///< bytes of memory
};
/// Throws Error if CUDA refuses. Makes no context on the device.
DeviceFacts device_facts(int index);
/// Returns "13.2" for 13020, as CUDA writes its versions.
std::string version_text(int number);
/// Return, like "13.0", the CUDA version of the runtime in this program, and the highest that the
/// driver knows. The second is empty without a driver.
std::string runtime_version();
std::string driver_version();

/// Open the libraries. cuDNN is opened only in a build with its headers.
LibraryFacts cublaslt_facts();
LibraryFacts cudnn_facts();

std::string describe_device(Device device);

}  // namespace cuda
#endif

}  // namespace firn::kernels
