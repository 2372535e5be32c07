// cuBLASLt's functions, loaded at the first product. The library is not linked: it is several
// hundred megabytes, and a run on the CPU never loads it. On the simulator,
// tests/cusim/libraries/cublaslt.cpp has these functions.
#pragma once

#include <cublasLt.h>

#include <string>

namespace firn::gpu {

/// The functions of one loaded library, by the name that the header gives them.
struct CublasLt {
#define FIRN_EACH_CUBLASLT(F)             \
  F(cublasLtCreate)                       \
  F(cublasLtGetVersion)                   \
  F(cublasLtMatmul)                       \
  F(cublasLtMatmulAlgoConfigGetAttribute) \
  F(cublasLtMatmulAlgoGetHeuristic)       \
  F(cublasLtMatmulDescCreate)             \
  F(cublasLtMatmulDescDestroy)            \
  F(cublasLtMatmulDescSetAttribute)       \
  F(cublasLtMatmulPreferenceCreate)       \
  F(cublasLtMatmulPreferenceDestroy)      \
  F(cublasLtMatmulPreferenceSetAttribute) \
  F(cublasLtMatrixLayoutCreate)           \
  F(cublasLtMatrixLayoutDestroy)          \
  F(cublasLtMatrixLayoutSetAttribute)
#define FIRN_MEMBER(name) decltype(&::name) name = nullptr;
  FIRN_EACH_CUBLASLT(FIRN_MEMBER)
#undef FIRN_MEMBER
  std::string path;  ///< path of the loaded library
};

/// Returns the library, which the first call loads. If there is none, throws a DeviceError that
/// names every place that was tried.
const CublasLt& cublaslt();

/// Returns the name of a status, like CUBLAS_STATUS_NOT_SUPPORTED.
const char* status_name(cublasStatus_t status) noexcept;

/// Throws Error naming the op, the call, the status and `what` (shapes and dtypes).
void check(cublasStatus_t status, const char* op, const char* call, const std::string& what = {});

}  // namespace firn::gpu
