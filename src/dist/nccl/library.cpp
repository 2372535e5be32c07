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

/// Looks in the process or the system's search path, then where the build found NCCL.
Nccl load() { return load_nccl(kernels::library_names("nccl", NCCL_MAJOR, FIRN_NCCL_PATH)); }

#endif

/// Fills in the functions. Returns why the library cannot be used, "" if it can.
std::string take_functions(void* library, Nccl& lib) {
  std::string missing;
#define FIRN_TAKE(f)                                             \
  lib.f = reinterpret_cast<decltype(lib.f)>(dlsym(library, #f)); \
  if (!lib.f && missing.empty()) missing = #f;
  FIRN_EACH_NCCL(FIRN_TAKE)
#undef FIRN_TAKE
  // The version is checked first: an old library lacks functions because it is old.
  if (lib.ncclGetVersion && lib.ncclGetVersion(&lib.version) == ncclSuccess) {
    if (std::string why = why_not_nccl(lib.version, NCCL_MAJOR); !why.empty()) return why;
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
    lib = Nccl();  // drops a library that was refused
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

std::string describe(const Nccl& lib, ncclResult_t result) {
  return fmt::format("{} ({}, {})", lib.ncclGetErrorString(result), name_of(result),
                     static_cast<int>(result));
}

}  // namespace firn::dist
