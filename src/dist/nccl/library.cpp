#include "dist/nccl/library.h"

#include "base/check.h"
#include "kernels/settings/open_library.h"

namespace firn::dist {
namespace {

#ifdef FIRN_HAS_CUSIM

Nccl load() {
  Nccl lib;
#define FIRN_TAKE(name) lib.name = ::name;
  FIRN_EACH_NCCL(FIRN_TAKE)
#undef FIRN_TAKE
  lib.path = "simulator";
  lib.ncclGetVersion(&lib.version);
  return lib;
}

#else

/// In the process or the system's search path, then where the build found it.
Nccl load() {
  std::vector<std::string> names = {"libnccl.so." + std::to_string(NCCL_MAJOR)};
#ifdef FIRN_NCCL_PATH
  if (*FIRN_NCCL_PATH) names.emplace_back(FIRN_NCCL_PATH);
#endif
  return load_nccl(names);
}

#endif

/// Fills in the functions. Returns why the library cannot be used, "" if it can.
std::string take_functions(void* library, Nccl& lib) {
  std::string missing;
#define FIRN_TAKE(f)                                             \
  lib.f = reinterpret_cast<decltype(lib.f)>(dlsym(library, #f)); \
  if (!lib.f && missing.empty()) missing = #f;
  FIRN_EACH_NCCL(FIRN_TAKE)
#undef FIRN_TAKE
  // The version first: an old library lacks functions because it is old.
  if (lib.ncclGetVersion && lib.ncclGetVersion(&lib.version) == ncclSuccess) {
    if (lib.version < kOldestNccl)
      return fmt::format("is NCCL {}, older than {}", nccl_version_text(lib.version),
                         nccl_version_text(kOldestNccl));
    if (lib.version / 10000 != NCCL_MAJOR)
      return fmt::format("is NCCL {}, and firn was built for NCCL {}",
                         nccl_version_text(lib.version), NCCL_MAJOR);
  }
  return missing.empty() ? "" : "has no function " + missing;
}

const char* name_of(ncclResult_t result) noexcept {
  switch (result) {
#define FIRN_NAME(r) \
  case r:            \
    return #r;
    FIRN_NAME(ncclSuccess)
    FIRN_NAME(ncclUnhandledCudaError)
    FIRN_NAME(ncclSystemError)
    FIRN_NAME(ncclInternalError)
    FIRN_NAME(ncclInvalidArgument)
    FIRN_NAME(ncclInvalidUsage)
    FIRN_NAME(ncclRemoteError)
    FIRN_NAME(ncclInProgress)
#undef FIRN_NAME
    default:
      return "an unknown result";
  }
}

}  // namespace

Nccl load_nccl(const std::vector<std::string>& names) {
  Nccl lib;
  const kernels::OpenedLibrary opened = kernels::open_library(names, [&lib](void* library) {
    lib = Nccl();  // nothing of one that was refused
    return take_functions(library, lib);
  });
  if (!opened.name.empty()) {
    lib.path = opened.name;
    return lib;
  }
  throw DeviceError("nccl_group",
                    "ranks on CUDA devices need NCCL, which was not found; tried:" + opened.tried,
                    "install it (apt-get install libnccl2 from NVIDIA's packages, or pip's "
                    "nvidia-nccl-cu13), and add its folder to LD_LIBRARY_PATH or build with "
                    "-DFIRN_NCCL_LIBRARY=PATH");
}

const Nccl& nccl() {
  static const auto* const lib = new Nccl(load());  // retried after an exception
  return *lib;
}

std::string nccl_version_text(int version) {  // before 2.9 as 2408, then as 22809
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
  return fmt::format("{}.{}.{}", major, minor, version % 100);
}

std::string describe(const Nccl& lib, ncclResult_t result) {
  return fmt::format("{} ({}, {})", lib.ncclGetErrorString(result), name_of(result),
                     static_cast<int>(result));
}

}  // namespace firn::dist
