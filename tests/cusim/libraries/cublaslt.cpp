// The part of cuBLASLt that firn uses, for the simulator: reference products in stream order, one
// operation of the stream (one node of a graph) a product. It refuses what the library's header and
// manual do not promise, so that a wrong call is found without a GPU, and it is strict where the
// library happens to be lenient:
//
//   - an algorithm serves the problem that it was found for, with pointers that are aligned as the
//     preference said (or better) and with the workspace that it asked for, 256-byte aligned;
//   - no empty products, and no batches with an epilogue other than the bias;
//   - every matrix and vector lies in one allocation of the device's memory;
//   - epilogues: types and leading dimensions as the header says, a pointer for each that is used;
//     BGRADB with op(B) = T and more than one column; none with f64.
//
// With beta = 0, C is not read. The workspace is filled with garbage.
#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <vector>

#include "check/check.h"
#include "cusim.h"

struct cublasLtContext {
  int device;
};

namespace {

struct Layout {
  cudaDataType type;
  std::uint64_t rows, cols;
  std::int64_t ld;
  std::int32_t batch = 1;
  std::int64_t stride = 0;
  std::int32_t order = CUBLASLT_ORDER_COL;

  bool operator==(const Layout&) const = default;
};

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
bool aligned(const void* p, std::uint32_t to) {
  return to != 0 && reinterpret_cast<std::uintptr_t>(p) % to == 0;
}

template <class T>
cublasStatus_t assign(T& field, const void* value, std::size_t bytes) {
  if (!value || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool has(std::uint32_t epilogue, std::uint32_t bit) { return (epilogue & bit) != 0; }
constexpr std::uint32_t kRelu = 2, kBias = 4, kDRelu = 8, kGelu = 32, kDGelu = 64, kAux = 128,
                        kBGradB = 512;

std::size_t bytes_of(cudaDataType t) { return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2; }

// ---- What is supported ----

bool types_supported(const Desc& d, cudaDataType a, cudaDataType b, cudaDataType c) {
  if (a != b) return false;
  switch (d.compute) {
    case CUBLAS_COMPUTE_32F:
      if (d.scale != CUDA_R_32F) return false;
      if (a == CUDA_R_32F) return c == CUDA_R_32F;
      return (a == CUDA_R_16F || a == CUDA_R_16BF) && (c == a || c == CUDA_R_32F);
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return d.scale == CUDA_R_32F && a == CUDA_R_32F && c == CUDA_R_32F;
    case CUBLAS_COMPUTE_64F:
      return d.scale == CUDA_R_64F && a == CUDA_R_64F && c == CUDA_R_64F;
    default:
      return false;
  }
}

bool epilogue_known(std::uint32_t e) {
  // DRELU_BGRAD and DGELU_BGRAD return 16-bit bias gradients, BGRADA has no use in firn.
  constexpr std::uint32_t known[] = {
      CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_BGRADB,
      CUBLASLT_EPILOGUE_RELU,     CUBLASLT_EPILOGUE_RELU_BIAS,     CUBLASLT_EPILOGUE_DRELU,
      CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_GELU,
      CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_BIAS,     CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
      CUBLASLT_EPILOGUE_DGELU};
  return std::find(std::begin(known), std::end(known), e) != std::end(known);
}

cublasStatus_t check_epilogue(const Desc& d, const Layout& out, std::int64_t k) {
  const std::uint32_t e = d.epilogue;
  if (!epilogue_known(e)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (e == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (d.compute == CUBLAS_COMPUTE_64F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (out.batch != 1 && e != CUBLASLT_EPILOGUE_BIAS) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has(e, kBias | kBGradB)) {
    if (d.bias_type != -1 && d.bias_type != out.type) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!d.bias || !aligned(d.bias, static_cast<std::uint32_t>(bytes_of(out.type)))) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  if (has(e, kAux)) {
    const std::int64_t multiple = has(e, kRelu | kDRelu) ? 128 : 8;
    if (!d.aux || !aligned(d.aux, 16)) return CUBLAS_STATUS_INVALID_VALUE;
    if (d.aux_ld % multiple != 0 || d.aux_ld < static_cast<std::int64_t>(out.rows)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  if (has(e, kDRelu | kDGelu) && k < 2) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (e == CUBLASLT_EPILOGUE_BGRADB && (d.trans_b != CUBLAS_OP_T || out.cols == 1)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_problem(const Desc& d, const Layout& a, const Layout& b, const Layout& c,
                             const Layout& out) {
  for (const Layout* l : {&a, &b, &c, &out}) {
    if (l->rows == 0 || l->cols == 0 || l->batch < 1) return CUBLAS_STATUS_INVALID_VALUE;
    if (l->order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (l->ld < static_cast<std::int64_t>(l->rows)) return CUBLAS_STATUS_INVALID_VALUE;
    if (l->batch != out.batch) return CUBLAS_STATUS_INVALID_VALUE;
    if (std::max({l->rows, l->cols}) > INT32_MAX) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool ta = d.trans_a != CUBLAS_OP_N, tb = d.trans_b != CUBLAS_OP_N;
  const std::uint64_t m = ta ? a.cols : a.rows, k = ta ? a.rows : a.cols;
  if ((tb ? b.cols : b.rows) != k || (tb ? b.rows : b.cols) != out.cols || m != out.rows ||
      c.rows != m || c.cols != out.cols) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (out.batch > 1 && std::abs(out.stride) < static_cast<std::int64_t>(m)) {
    return CUBLAS_STATUS_INVALID_VALUE;  // the results overlap
  }
  if (c.type != out.type || !types_supported(d, a.type, b.type, out.type)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return check_epilogue(d, out, static_cast<std::int64_t>(k));
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

// ---- The product ----

/// n consecutive elements, in the type of the sums; and one value back.
void widen(const void* p, cudaDataType t, std::int64_t at, std::int64_t n, float* to) {
  switch (t) {
    case CUDA_R_32F:
      std::copy_n(static_cast<const float*>(p) + at, n, to);
      return;
    case CUDA_R_16F:
      for (std::int64_t i = 0; i < n; ++i)
        to[i] = __half2float(static_cast<const __half*>(p)[at + i]);
      return;
    default:
      for (std::int64_t i = 0; i < n; ++i) {
        to[i] = __bfloat162float(static_cast<const __nv_bfloat16*>(p)[at + i]);
      }
  }
}
void widen(const void* p, cudaDataType, std::int64_t at, std::int64_t n, double* to) {
  std::copy_n(static_cast<const double*>(p) + at, n, to);
}
void narrow(void* p, cudaDataType, std::int64_t at, double v) { static_cast<double*>(p)[at] = v; }
void narrow(void* p, cudaDataType t, std::int64_t at, float v) {
  switch (t) {
    case CUDA_R_32F:
      static_cast<float*>(p)[at] = v;
      return;
    case CUDA_R_16F:
      static_cast<__half*>(p)[at] = __float2half_rn(v);
      return;
    default:
      static_cast<__nv_bfloat16*>(p)[at] = __float2bfloat16_rn(v);
  }
}

/// A matrix packed without gaps: column after column, or row after row.
template <class T>
std::vector<T> gather(const void* p, const Layout& l, std::int64_t offset, bool by_column) {
  const auto rows = static_cast<std::int64_t>(l.rows), cols = static_cast<std::int64_t>(l.cols);
  std::vector<T> out(static_cast<std::size_t>(rows * cols)), column(static_cast<std::size_t>(rows));
  for (std::int64_t j = 0; j < cols; ++j) {
    if (by_column) {
      widen(p, l.type, offset + j * l.ld, rows, out.data() + j * rows);
    } else {
      widen(p, l.type, offset + j * l.ld, rows, column.data());
      for (std::int64_t i = 0; i < rows; ++i)
        out[static_cast<std::size_t>(i * cols + j)] = column[static_cast<std::size_t>(i)];
    }
  }
  return out;
}

struct Call {
  Desc d;
  Layout la, lb, lc, ld;
  const void *a, *b, *c;
  void* out;
  double alpha, beta;
};

float gelu(float x) {
  const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1 + std::tanh(inner));
}
float gelu_slope(float x) {
  const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x), t = std::tanh(inner);
  return 0.5f * (1 + t) +
         0.5f * x * (1 - t * t) * 0.7978845608028654f * (1 + 3 * 0.044715f * x * x);
}

/// One value of alpha AB + beta C through the epilogue.
float finish(const Call& call, std::int64_t i, std::int64_t j, float v) {
  const std::uint32_t e = call.d.epilogue;
  if (has(e, kBias)) {
    float bias;
    widen(call.d.bias, call.ld.type, i, 1, &bias);
    v += bias;
  }
  const std::int64_t at = j * call.d.aux_ld + i;
  auto* mask = static_cast<std::uint8_t*>(call.d.aux);
  const auto bit = static_cast<std::uint8_t>(1u << (at % 8));
  if (has(e, kRelu)) {
    if (has(e, kAux)) {
      mask[at / 8] = static_cast<std::uint8_t>(v > 0 ? mask[at / 8] | bit : mask[at / 8] & ~bit);
    }
    return v > 0 || std::isnan(v) ? v : 0.0f;
  }
  if (has(e, kGelu)) {
    if (has(e, kAux)) narrow(call.d.aux, call.ld.type, at, v);
    return gelu(v);
  }
  if (has(e, kDRelu)) return (mask[at / 8] & bit) ? v : 0.0f;
  if (has(e, kDGelu)) {
    float before;
    widen(call.d.aux, call.ld.type, at, 1, &before);
    return v * gelu_slope(before);
  }
  return v;
}
double finish(const Call&, std::int64_t, std::int64_t, double v) { return v; }

template <class T>
void multiply(const Call& call, std::int64_t batch) {
  const bool ta = call.d.trans_a != CUBLAS_OP_N, tb = call.d.trans_b != CUBLAS_OP_N;
  const auto m = static_cast<std::int64_t>(call.ld.rows),
             n = static_cast<std::int64_t>(call.ld.cols);
  const auto k = static_cast<std::int64_t>(ta ? call.la.rows : call.la.cols);
  // a: k runs of m values; b: n runs of k values.
  const std::vector<T> a = gather<T>(call.a, call.la, batch * call.la.stride, !ta);
  const std::vector<T> b = gather<T>(call.b, call.lb, batch * call.lb.stride, !tb);
  constexpr std::int64_t kColumns = 4;
  std::vector<T> sums(static_cast<std::size_t>(m * kColumns));
  for (std::int64_t j0 = 0; j0 < n; j0 += kColumns) {
    const std::int64_t width = std::min(kColumns, n - j0);
    std::fill(sums.begin(), sums.end(), T(0));
    for (std::int64_t p = 0; p < k; ++p) {
      const T* const x = a.data() + p * m;
      for (std::int64_t q = 0; q < width; ++q) {
        const T y = b[static_cast<std::size_t>((j0 + q) * k + p)];
        T* const s = sums.data() + q * m;
        for (std::int64_t i = 0; i < m; ++i) s[i] += x[i] * y;
      }
    }
    for (std::int64_t q = 0; q < width; ++q) {
      for (std::int64_t i = 0; i < m; ++i) {
        T v = static_cast<T>(call.alpha) * sums[static_cast<std::size_t>(q * m + i)];
        if (call.beta != 0) {
          T old;
          widen(call.c, call.lc.type, batch * call.lc.stride + (j0 + q) * call.lc.ld + i, 1, &old);
          v += static_cast<T>(call.beta) * old;
        }
        narrow(call.out, call.ld.type, batch * call.ld.stride + (j0 + q) * call.ld.ld + i,
               finish(call, i, j0 + q, v));
      }
    }
  }
  if constexpr (std::is_same_v<T, float>) {
    if (call.d.epilogue == CUBLASLT_EPILOGUE_BGRADB) {  // sums of op(B)'s columns
      for (std::int64_t j = 0; j < n; ++j) {
        T sum = 0;
        for (std::int64_t p = 0; p < k; ++p) sum += b[static_cast<std::size_t>(j * k + p)];
        narrow(call.d.bias, call.ld.type, j, sum);
      }
    }
  }
}

/// Bytes from the first element of the first matrix of a batch to the last of the last.
std::size_t extent(const Layout& l) {
  const auto rows = static_cast<std::int64_t>(l.rows), cols = static_cast<std::int64_t>(l.cols);
  const std::int64_t elements = (l.batch - 1) * l.stride + (cols - 1) * l.ld + rows;
  return static_cast<std::size_t>(elements) * bytes_of(l.type);
}

std::size_t bias_bytes(const Call& call) {
  const bool columns = call.d.epilogue == CUBLASLT_EPILOGUE_BGRADB;
  return (columns ? call.ld.cols : call.ld.rows) * bytes_of(call.ld.type);
}
std::size_t aux_bytes(const Call& call) {
  const std::size_t row = has(call.d.epilogue, kRelu | kDRelu)
                              ? static_cast<std::size_t>(call.d.aux_ld) / 8
                              : static_cast<std::size_t>(call.d.aux_ld) * bytes_of(call.ld.type);
  return row * call.ld.cols;
}

bool in_device_memory(const Call& call) {
  const std::uint32_t e = call.d.epilogue;
  return cusim::is_device_range(call.a, extent(call.la)) &&
         cusim::is_device_range(call.b, extent(call.lb)) &&
         cusim::is_device_range(call.out, extent(call.ld)) &&
         (call.beta == 0 || cusim::is_device_range(call.c, extent(call.lc))) &&
         (!has(e, kBias | kBGradB) || cusim::is_device_range(call.d.bias, bias_bytes(call))) &&
         (!has(e, kAux) || cusim::is_device_range(call.d.aux, aux_bytes(call)));
}

/// Tells check mode what no longer is unwritten memory.
void note_written(const Call& call) {
  const std::uint32_t e = call.d.epilogue;
  const std::size_t size = bytes_of(call.ld.type);
  for (std::int64_t i = 0; i < call.ld.batch; ++i) {
    for (std::uint64_t j = 0; j < call.ld.cols; ++j) {
      const std::int64_t at = i * call.ld.stride + static_cast<std::int64_t>(j) * call.ld.ld;
      cusim::check::wrote(static_cast<char*>(call.out) + static_cast<std::size_t>(at) * size,
                          call.ld.rows * size);
    }
  }
  if (has(e, kBGradB)) cusim::check::wrote(call.d.bias, bias_bytes(call));
  if (has(e, kAux) && has(e, kRelu | kGelu)) cusim::check::wrote(call.d.aux, aux_bytes(call));
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  if (cusim::api_call("cublasLtCreate")) return CUBLAS_STATUS_NOT_INITIALIZED;
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
  *returned = 0;
  const Desc& m = self<Desc>(desc);
  const Preference& p = self<Preference>(preference);
  const Layout &la = self<Layout>(a), &lb = self<Layout>(b), &lc = self<Layout>(c),
               &ld = self<Layout>(d);
  if (const auto status = check_problem(m, la, lb, lc, ld); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  Algo algo{kMagic,
            hash_problem(m, la, lb, lc, ld),
            std::min(p.workspace, kWorkspace),
            p.align_a,
            p.align_b,
            p.align_c,
            p.align_d,
            alignment_of(m.bias),
            alignment_of(m.aux)};
  results[0] = {};
  std::memcpy(&results[0].algo, &algo, sizeof algo);
  results[0].workspaceSize = algo.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1;
  *returned = 1;
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
  if (const auto status = check_problem(call.d, call.la, call.lb, call.lc, call.ld);
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
    for (std::int32_t i = 0; i < call.ld.batch; ++i) {
      if (call.d.compute == CUBLAS_COMPUTE_64F) {
        multiply<double>(call, i);
      } else {
        multiply<float>(call, i);
      }
    }
    note_written(call);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
