// What the simulated cuBLASLt says of an algorithm. It has one, number 0: whole sums in one pass,
// without a tile or stages to speak of.
#include <cublasLt.h>

#include <cstdint>
#include <cstring>

extern "C" cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
    void* value, size_t bytes, size_t* written) {
  std::uint32_t answer = 0;
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
    case CUBLASLT_ALGO_CONFIG_TILE_ID:           // CUBLASLT_MATMUL_TILE_UNDEFINED
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:         // CUBLASLT_MATMUL_STAGES_UNDEFINED
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:  // CUBLASLT_REDUCTION_SCHEME_NONE
      break;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      answer = 1;
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (!algorithm || !value || bytes != sizeof answer) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, &answer, sizeof answer);
  if (written) *written = sizeof answer;
  return CUBLAS_STATUS_SUCCESS;
}
