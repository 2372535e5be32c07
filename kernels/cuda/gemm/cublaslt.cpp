#include "kernels/cuda/gemm/cublaslt.h"

#include <memory>
#include <vector>

#include "firn/error.h"

#ifndef FIRN_HAS_CUSIM
#include "kernels/settings/open_library.h"
#endif

namespace firn::gpu {
namespace {

#ifdef FIRN_HAS_CUSIM

CublasLt load() {
  CublasLt lt;
#define FIRN_TAKE(name) lt.name = ::name;
  FIRN_EACH_CUBLASLT(FIRN_TAKE)
#undef FIRN_TAKE
  lt.path = "simulator";
  return lt;
}

#else

/// Returns names of the library, in order of preference. First comes the one that belongs to the
/// headers, in the process or the system's search path. Then come the path that the build found (in
/// the toolkit or in Python's packages), and other major versions.
std::vector<std::string> candidates() {
  auto names = kernels::library_names("cublasLt", CUBLAS_VER_MAJOR, FIRN_CUBLASLT_PATH);
  for (const int major : {13, 12}) {
    if (major != CUBLAS_VER_MAJOR) names.push_back("libcublasLt.so." + std::to_string(major));
  }
  return names;
}

CublasLt load() {
  CublasLt lt;
  const kernels::OpenedLibrary opened = kernels::open_library(candidates(), [&](void* library) {
    std::string missing;
#define FIRN_TAKE(f)                                           \
  lt.f = reinterpret_cast<decltype(lt.f)>(dlsym(library, #f)); \
  if (!lt.f) missing = "has no function " #f;
    FIRN_EACH_CUBLASLT(FIRN_TAKE)
#undef FIRN_TAKE
    return missing;
  });
  if (!opened.name.empty()) {
    lt.path = opened.name;
    return lt;
  }
  throw DeviceError(
      "cublasLt",
      "matrix products on CUDA devices need cuBLASLt, which was not found; tried:" + opened.tried,
      "install the CUDA Toolkit's cuBLAS (or pip's nvidia-cublas), and add its folder "
      "to LD_LIBRARY_PATH or build with -DFIRN_CUBLASLT_LIBRARY=PATH");
}

#endif

}  // namespace

const CublasLt& cublaslt() {
  static const auto* const lt = new CublasLt(load());  // retried after an exception
  return *lt;
}

const char* status_name(cublasStatus_t status) noexcept {
  switch (status) {
#define FIRN_NAME(s) \
  case s:            \
    return #s;
    FIRN_NAME(CUBLAS_STATUS_SUCCESS)
    FIRN_NAME(CUBLAS_STATUS_NOT_INITIALIZED)
    FIRN_NAME(CUBLAS_STATUS_ALLOC_FAILED)
    FIRN_NAME(CUBLAS_STATUS_INVALID_VALUE)
    FIRN_NAME(CUBLAS_STATUS_ARCH_MISMATCH)
    FIRN_NAME(CUBLAS_STATUS_MAPPING_ERROR)
    FIRN_NAME(CUBLAS_STATUS_EXECUTION_FAILED)
    FIRN_NAME(CUBLAS_STATUS_INTERNAL_ERROR)
    FIRN_NAME(CUBLAS_STATUS_NOT_SUPPORTED)
    FIRN_NAME(CUBLAS_STATUS_LICENSE_ERROR)
#undef FIRN_NAME
  }
  return "an unknown status";
}

void check(cublasStatus_t status, const char* op, const char* call, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(op,
              std::string(call) + " answered " + status_name(status) + " (" +
                  std::to_string(static_cast<int>(status)) + ")" +
                  (what.empty() ? "" : " for " + what),
              "CUBLASLT_LOG_LEVEL=2 makes the library say more");
}

}  // namespace firn::gpu
