// What cuBLASLt computes, for its stand-in: which problems it takes, and reference products.
//
// It is strict where the library happens to be lenient: no empty products; no batches with an
// epilogue other than the bias; types, pointers and leading dimensions of epilogues as the header
// says; DRELU, DGELU and BGRADB only with sizes above 1, BGRADB with op(B) = T; no epilogue in f64.
//
// relu is max(x, 0) as hardware computes it: a NaN or -0 gives 0. RELU_AUX sets the bit of x >= 0,
// as NVIDIA's tests (nvmath-python) expect: so that of 0 and -0, but not that of a NaN. gelu takes
// an exact tanh, or one of 11 bits as the hardware's (Config::hardware_tanh).
#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace cusim::lt {

/// What a cublasLtMatrixLayout_t holds.
struct Layout {
  cudaDataType type;
  std::uint64_t rows, cols;
  std::int64_t ld;
  std::int32_t batch = 1;
  std::int64_t stride = 0;
  std::int32_t order = CUBLASLT_ORDER_COL;

  bool operator==(const Layout&) const = default;
};

/// What a cublasLtMatmulDesc_t holds.
struct Desc {
  cublasComputeType_t compute;
  cudaDataType scale;
  std::int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  std::int32_t bias_type = -1;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
};

/// A product D = alpha op(A) op(B) + beta C, ready to run.
struct Call {
  Desc d;
  Layout la, lb, lc, ld;
  const void *a, *b, *c;
  void* out;
  double alpha, beta;
};

inline bool has(std::uint32_t epilogue, std::uint32_t bit) { return (epilogue & bit) != 0; }
constexpr std::uint32_t kRelu = 2, kBias = 4, kDRelu = 8, kGelu = 32, kDGelu = 64, kAux = 128,
                        kBGradB = 512;
inline bool aligned(const void* p, std::uint32_t to) {
  return to != 0 && reinterpret_cast<std::uintptr_t>(p) % to == 0;
}

/// Whether the library takes a problem, but for what only the product's pointers show.
cublasStatus_t check_problem(const Desc& d, const Layout& a, const Layout& b, const Layout& c,
                             const Layout& out);

/// Whether every matrix and vector lies in one allocation of the device's memory.
bool in_device_memory(const Call& call);

/// Computes the product, with the epilogue. With beta = 0, C is not read.
void run(const Call& call);

}  // namespace cusim::lt
