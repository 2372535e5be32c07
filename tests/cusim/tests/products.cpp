// The stand-in for cuBLASLt: what its epilogues do with zeros and NaN, and what it refuses.
#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "device.h"

namespace {

/// D [m, n] = op(A) op(B) in f32 with an epilogue, all in device memory.
struct Problem {
  std::int64_t m = 2, n = 2, k = 2;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  bool transpose_b = false;
  void* vector = nullptr;  ///< bias, or its gradient
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
};

struct Library {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;

  explicit Library(const Problem& p) {
    REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
      REQUIRE(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value) ==
              CUBLAS_STATUS_SUCCESS);
    };
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(p.epilogue));
    set(CUBLASLT_MATMUL_DESC_TRANSB,
        static_cast<std::int32_t>(p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.vector);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.aux_ld);
    const auto layout = [](cublasLtMatrixLayout_t& l, std::int64_t rows, std::int64_t cols) {
      cublasLtMatrixLayoutCreate(&l, CUDA_R_32F, static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(cols), rows);
    };
    layout(a, p.m, p.k);
    p.transpose_b ? layout(b, p.n, p.k) : layout(b, p.k, p.n);
    layout(d, p.m, p.n);
    cublasLtMatmulPreferenceCreate(&preference);
    const std::uint32_t bytes = 4;
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      cublasLtMatmulPreferenceSetAttribute(preference, attribute, &bytes, sizeof bytes);
  }
  ~Library() {
    cublasLtMatmulPreferenceDestroy(preference);
    for (const auto l : {a, b, d}) cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  cublasStatus_t ask(cublasLtMatmulHeuristicResult_t& result) const {
    int count = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference, 1, &result, &count);
  }
  cublasStatus_t multiply(const float* at_a, const float* at_b, float* at_d) const {
    cublasLtMatmulHeuristicResult_t found{};
    if (const auto status = ask(found); status != CUBLAS_STATUS_SUCCESS) return status;
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle, desc, &one, at_a, a, at_b, b, &zero, at_d, d, at_d, d,
                          &found.algo, nullptr, 0, nullptr);
  }
};

/// D of a product with the identity: the epilogue of the values of A [m, 1] times 1.
std::vector<float> through(Problem p, const std::vector<float>& values) {
  p.m = static_cast<std::int64_t>(values.size());
  p.n = p.k = 1;
  float* const a = on_device(values);
  float* const b = on_device(std::vector<float>{1});
  float* const d = on_device(std::vector<float>(values.size(), 99));
  REQUIRE(Library(p).multiply(a, b, d) == CUBLAS_STATUS_SUCCESS);
  return on_host(d, values.size());
}

cublasStatus_t answer(Problem p) {
  p.vector = on_device(std::vector<float>(64));
  p.aux = on_device(std::vector<float>(256));
  p.aux_ld = 128;
  cublasLtMatmulHeuristicResult_t found{};
  return Library(p).ask(found);
}

}  // namespace

TEST_CASE("cuBLASLt: relu makes 0 of a NaN, and its mask has the bits of zeros") {
  const Fresh fresh;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  Problem p;
  p.epilogue = CUBLASLT_EPILOGUE_RELU_AUX;
  p.aux_ld = 128;
  auto* const mask = on_device(std::vector<std::uint8_t>(16, 0xff));
  p.aux = mask;
  CHECK(through(p, {0, -0.f, 1, -1, nan, inf, -inf}) == std::vector<float>{0, 0, 1, 0, 0, inf, 0});
  CHECK(on_host(mask, 1)[0] == (0x80 | 0b0100111));  // the last one is padding, left alone
}

TEST_CASE("cuBLASLt: gelu is exact, or as the hardware's tanh makes it") {
  const Fresh fresh;
  Problem p;
  p.epilogue = CUBLASLT_EPILOGUE_GELU;
  std::vector<float> x;
  for (int i = -80; i <= 80; ++i) x.push_back(static_cast<float>(i) / 16);
  for (const bool hardware : {false, true}) {
    cusim::config().hardware_tanh = hardware;
    const std::vector<float> y = through(p, x);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double v = x[i], t = std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v));
      if (v != 0) worst = std::max(worst, std::abs(y[i] - 0.5 * v * (1 + t)) / std::abs(v));
    }
    CHECK(worst <= (hardware ? 0x1p-12 : 1e-6));
    CHECK((worst > 1e-4) == hardware);
  }
}

TEST_CASE("cuBLASLt: gradient epilogues refuse sizes of 1") {
  const Fresh fresh;
  for (const auto epilogue :
       {CUBLASLT_EPILOGUE_DRELU, CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB}) {
    Problem p;
    p.epilogue = epilogue;
    p.transpose_b = epilogue == CUBLASLT_EPILOGUE_BGRADB;
    CHECK(answer(p) == CUBLAS_STATUS_SUCCESS);
    for (std::int64_t Problem::*size : {&Problem::m, &Problem::n, &Problem::k}) {
      Problem one = p;
      one.*size = 1;
      CHECK(answer(one) == CUBLAS_STATUS_NOT_SUPPORTED);
    }
  }
}

TEST_CASE("cuBLASLt: no handle and no algorithm while the thread captures") {
  const Fresh fresh;
  const Library library{Problem{}};
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                          cudaStreamCaptureModeRelaxed}) {
    for (const bool handle : {true, false}) {
      REQUIRE(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
      const bool allowed = mode == cudaStreamCaptureModeRelaxed;
      if (handle) {
        cublasLtHandle_t fresh_handle = nullptr;
        CHECK(cublasLtCreate(&fresh_handle) ==
              (allowed ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED));
        if (allowed) cublasLtDestroy(fresh_handle);
      } else {
        cublasLtMatmulHeuristicResult_t found{};
        CHECK(library.ask(found) ==
              (allowed ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INTERNAL_ERROR));
      }
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamEndCapture(stream, &graph) ==
            (allowed ? cudaSuccess : cudaErrorStreamCaptureInvalidated));
      if (graph) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    }
  }
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("cuBLASLt: a hook sees every call, and answers it") {
  const Fresh fresh;
  std::vector<cusim::ProductCall> calls;
  int status = CUBLAS_STATUS_SUCCESS;
  cusim::on_product([&](const cusim::ProductCall& call) {
    calls.push_back(call);
    return call.question ? call.answer : status;
  });
  Problem p;
  p.m = 3, p.n = 4, p.k = 5;
  const Library library(p);
  float* const a = on_device(std::vector<float>(15, 1));
  float* const b = on_device(std::vector<float>(20, 1));
  float* const d = on_device(std::vector<float>(12, 7));
  status = CUBLAS_STATUS_NOT_SUPPORTED;
  CHECK(library.multiply(a, b, d) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(on_host(d, 12) == std::vector<float>(12, 7));
  status = CUBLAS_STATUS_SUCCESS;
  CHECK(library.multiply(a, b, d) == CUBLAS_STATUS_SUCCESS);
  CHECK(on_host(d, 12) == std::vector<float>(12, 5));
  cusim::on_product(nullptr);
  CHECK(library.multiply(a, b, d) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(calls.size() == 4);
  CHECK((calls[0].question && !calls[1].question));
  CHECK((calls[1].m == 3 && calls[1].n == 4 && calls[1].k == 5 && calls[1].batch == 1));
  CHECK(calls[0].epilogue == CUBLASLT_EPILOGUE_DEFAULT);
  CHECK(calls[0].reductions == CUBLASLT_REDUCTION_SCHEME_MASK);
}
