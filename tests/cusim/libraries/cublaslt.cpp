// The part of cuBLASLt that firn uses, for the simulator: reference products in stream order, one
// operation of the stream (one node of a graph) a product. It refuses what the library's header and
// manual do not promise, so that a wrong call is found without a GPU:
//
//   - an algorithm serves the problem that it was found for, with pointers that are aligned as the
//     preference said (or better) and with the workspace that it asked for, 256-byte aligned;
//   - a handle is not made, and no algorithm looked for, while the thread captures a graph; as
//   after
//     any call that a capture forbids, the capture is invalid then;
//   - products.h says which problems it takes.
//
// The workspace is filled with garbage.
#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>

#include "cusim.h"
#include "libraries/products.h"
#include "runtime.h"
#include "streams.h"

struct cublasLtContext {
  int device;
};

namespace {

using namespace cusim::lt;

struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
};

/// What stands in a cublasLtMatmulAlgo_t: the problem that it was found for, as a hash, and what it
/// relies on.
struct Algo {
  std::uint64_t magic, problem, workspace;
  std::uint32_t align_a, align_b, align_c, align_d;
  std::uint32_t align_bias, align_aux;
};
constexpr int kAlgorithms = 2;  // offered for every problem, if so many are asked for
constexpr std::uint64_t kMagic = 0x66697265636c6166;
constexpr std::uint64_t kWorkspace = 2048;  // asked for by every algorithm, where allowed
static_assert(sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t));

template <class T, class Opaque>
T& self(Opaque p) {
  return *reinterpret_cast<T*>(p);
}

std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  std::uint32_t a = 256;
  while (address % a != 0) a /= 2;
  return a;
}
template <class T>
cublasStatus_t assign(T& field, const void* value, std::size_t bytes) {
  if (!value || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

std::uint64_t hash_problem(const Desc& d, const Layout& a, const Layout& b, const Layout& c,
                           const Layout& out) {
  std::uint64_t h = 1469598103934665603u;
  const auto mix = [&](std::uint64_t v) { h = (h ^ v) * 1099511628211u; };
  mix(d.compute), mix(d.scale), mix(static_cast<std::uint64_t>(d.trans_a));
  mix(static_cast<std::uint64_t>(d.trans_b)), mix(d.epilogue);
  mix(static_cast<std::uint64_t>(d.aux_ld));
  for (const Layout* l : {&a, &b, &c, &out}) {
    mix(l->type), mix(l->rows), mix(l->cols), mix(static_cast<std::uint64_t>(l->ld));
    mix(static_cast<std::uint64_t>(l->batch)), mix(static_cast<std::uint64_t>(l->stride));
  }
  return h;
}

/// Whether the runtime forbids the thread what a capture does not survive.
bool forbidden_by_capture() {
  const std::lock_guard lock(cusim::runtime_lock());
  return cusim::refuse_while_capturing() != cudaSuccess;
}

std::function<int(const cusim::ProductCall&)>& product_hook() {
  static auto& hook = *new std::function<int(const cusim::ProductCall&)>;
  return hook;
}

/// What to answer to a call: `answer`, or what the hook says.
cublasStatus_t answer_to(bool question, const Desc& d, const Layout& a, const Layout& out,
                         std::uint32_t reductions, cublasStatus_t answer) {
  if (!product_hook()) return answer;
  cusim::ProductCall call;
  call.question = question;
  call.m = static_cast<std::int64_t>(out.rows);
  call.n = static_cast<std::int64_t>(out.cols);
  call.k = static_cast<std::int64_t>(d.trans_a != CUBLAS_OP_N ? a.rows : a.cols);
  call.batch = out.batch;
  call.epilogue = d.epilogue;
  call.reductions = reductions;
  call.answer = answer;
  return static_cast<cublasStatus_t>(product_hook()(call));
}

}  // namespace

void cusim::on_product(std::function<int(const ProductCall&)> hook) {
  product_hook() = std::move(hook);
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  if (cusim::api_call("cublasLtCreate")) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (forbidden_by_capture()) return CUBLAS_STATUS_ALLOC_FAILED;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext{device};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return 130000; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new Desc{.compute = compute, .scale = scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete &self<Desc>(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  Desc& d = self<Desc>(desc);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(d.trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(d.trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(d.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(d.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return assign(d.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return assign(d.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return assign(d.aux_ld, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{.type = type, .rows = rows, .cols = cols, .ld = ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &self<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  Layout& l = self<Layout>(layout);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return assign(l.order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return assign(l.batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return assign(l.stride, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete &self<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  Preference& p = self<Preference>(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(p.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign(p.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return assign(p.align_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return assign(p.align_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return assign(p.align_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign(p.align_d, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (requested < 1 || !results || !returned) return CUBLAS_STATUS_INVALID_VALUE;
  if (cusim::api_call("cublasLtMatmulAlgoGetHeuristic")) return CUBLAS_STATUS_INTERNAL_ERROR;
  if (forbidden_by_capture()) return CUBLAS_STATUS_INTERNAL_ERROR;
  *returned = 0;
  const Desc& m = self<Desc>(desc);
  const Preference& p = self<Preference>(preference);
  const Layout &la = self<Layout>(a), &lb = self<Layout>(b), &lc = self<Layout>(c),
               &ld = self<Layout>(d);
  if (const auto status =
          answer_to(true, m, la, ld, p.reductions, check_problem(m, la, lb, lc, ld));
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const Algo algo{kMagic,
                  hash_problem(m, la, lb, lc, ld),
                  std::min(p.workspace, kWorkspace),
                  p.align_a,
                  p.align_b,
                  p.align_c,
                  p.align_d,
                  alignment_of(m.bias),
                  alignment_of(m.aux)};
  *returned = std::min(requested, kAlgorithms);
  for (int i = 0; i < *returned; ++i) {
    results[i] = {};
    std::memcpy(&results[i].algo, &algo, sizeof algo);
    results[i].workspaceSize = algo.workspace;
    results[i].state = CUBLAS_STATUS_SUCCESS;
    results[i].wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t a, const void* B,
                              cublasLtMatrixLayout_t b, const void* beta, const void* C,
                              cublasLtMatrixLayout_t c, void* D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (cusim::api_call("cublasLtMatmul")) return CUBLAS_STATUS_EXECUTION_FAILED;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device != handle->device) {
    return CUBLAS_STATUS_INVALID_VALUE;  // a handle belongs to the device that it was made on
  }
  Call call{self<Desc>(desc),
            self<Layout>(a),
            self<Layout>(b),
            self<Layout>(c),
            self<Layout>(d),
            A,
            B,
            C,
            D,
            0,
            0};
  if (const auto status = answer_to(false, call.d, call.la, call.ld, 0,
                                    check_problem(call.d, call.la, call.lb, call.lc, call.ld));
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (!alpha || !beta || !A || !B || !D || !algorithm) return CUBLAS_STATUS_INVALID_VALUE;
  if (call.d.scale == CUDA_R_64F) {
    call.alpha = *static_cast<const double*>(alpha), call.beta = *static_cast<const double*>(beta);
  } else {
    call.alpha = *static_cast<const float*>(alpha), call.beta = *static_cast<const float*>(beta);
  }
  if (call.beta != 0 && !C) return CUBLAS_STATUS_INVALID_VALUE;
  if (C == D && call.lc != call.ld) return CUBLAS_STATUS_INVALID_VALUE;

  Algo algo;
  std::memcpy(&algo, algorithm, sizeof algo);
  if (algo.magic != kMagic ||
      algo.problem != hash_problem(call.d, call.la, call.lb, call.lc, call.ld)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const std::uint32_t e = call.d.epilogue;
  if (!aligned(A, algo.align_a) || !aligned(B, algo.align_b) || (C && !aligned(C, algo.align_c)) ||
      !aligned(D, algo.align_d) ||
      (has(e, kBias | kBGradB) && !aligned(call.d.bias, algo.align_bias)) ||
      (has(e, kAux) && !aligned(call.d.aux, algo.align_aux))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (workspace_bytes < algo.workspace ||
      (algo.workspace > 0 && (!workspace || !aligned(workspace, 256)))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!in_device_memory(call) ||
      (algo.workspace > 0 && !cusim::is_device_range(workspace, algo.workspace))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  cusim::enqueue(stream, [call, workspace, bytes = algo.workspace] {
    const cusim::DeviceAccess open;
    if (bytes > 0) std::memset(workspace, 0xa5, bytes);
    run(call);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
