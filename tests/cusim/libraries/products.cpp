#include "libraries/products.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <vector>

#include "check/check.h"
#include "cusim.h"

namespace cusim::lt {
namespace {

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
  if (has(e, kDRelu | kDGelu | kBGradB) && (k < 2 || out.rows < 2 || out.cols < 2)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (e == CUBLASLT_EPILOGUE_BGRADB && d.trans_b != CUBLAS_OP_T) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
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

/// An exact tanh, or what the hardware's may be off by: 11 bits of it.
float tanh_of_library(float x) {
  const float t = std::tanh(x);
  if (!config().hardware_tanh || !std::isfinite(t)) return t;
  int exponent = 0;
  const float fraction = std::frexp(t, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 11)), exponent - 11);
}

constexpr float kGeluScale = 0.7978845608028654f, kGeluCube = 0.044715f;

float gelu(float x) {
  return 0.5f * x * (1 + tanh_of_library(kGeluScale * (x + kGeluCube * x * x * x)));
}
float gelu_slope(float x) {
  const float t = tanh_of_library(kGeluScale * (x + kGeluCube * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kGeluScale * (1 + 3 * kGeluCube * x * x);
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
      mask[at / 8] = static_cast<std::uint8_t>(v >= 0 ? mask[at / 8] | bit : mask[at / 8] & ~bit);
    }
    return v > 0 ? v : 0.0f;
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

bool in_device_memory(const Call& call) {
  const std::uint32_t e = call.d.epilogue;
  return cusim::is_device_range(call.a, extent(call.la)) &&
         cusim::is_device_range(call.b, extent(call.lb)) &&
         cusim::is_device_range(call.out, extent(call.ld)) &&
         (call.beta == 0 || cusim::is_device_range(call.c, extent(call.lc))) &&
         (!has(e, kBias | kBGradB) || cusim::is_device_range(call.d.bias, bias_bytes(call))) &&
         (!has(e, kAux) || cusim::is_device_range(call.d.aux, aux_bytes(call)));
}

void run(const Call& call) {
  for (std::int32_t i = 0; i < call.ld.batch; ++i) {
    if (call.d.compute == CUBLAS_COMPUTE_64F) {
      multiply<double>(call, i);
    } else {
      multiply<float>(call, i);
    }
  }
  note_written(call);
}

}  // namespace cusim::lt
