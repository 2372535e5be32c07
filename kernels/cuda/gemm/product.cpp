#include "kernels/cuda/gemm/product.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "firn/error.h"
#include "firn/runtime/kernel_support.h"
#include "firn/warning.h"
#include "kernels/cuda/device/host.h"
#include "kernels/cuda/gemm/contexts.h"
#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/gemm/refusals.h"
#include "kernels/gemm.h"
#include "kernels/math/macros.h"
#include "kernels/settings/settings.h"

namespace firn::kernels::cuda {
namespace {

using gpu::check;
using gpu::cublaslt;

cudaDataType data_type(DType t) {
  switch (t) {
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f64:
      return CUDA_R_64F;
    default:
      return CUDA_R_32F;
  }
}

cublasLtEpilogue_t native(const Product& p) {
  switch (p.epilogue) {
    case Epilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::gelu:
      if (p.aux) return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      return p.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case Epilogue::relu_gradient:
      return CUBLASLT_EPILOGUE_DRELU;
    case Epilogue::gelu_gradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::bias_gradient:
      return CUBLASLT_EPILOGUE_BGRADB;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

/// Returns the largest power of two, at most 16, that divides an address. No algorithm needs more,
/// and a choice that depended on more would vary with the allocator's addresses.
std::uint32_t alignment(const void* p) {
  std::uint32_t a = 16;
  while (reinterpret_cast<std::uintptr_t>(p) % a != 0) a /= 2;
  return a;
}

std::string describe(const Product& p) {
  const auto matrix = [](const char* name, const Matrix& m) {
    return std::string(name) + " [" + std::to_string(m.rows) + ", " + std::to_string(m.cols) +
           "] ld " + std::to_string(m.ld) + (m.transposed ? " transposed" : "");
  };
  return matrix("A", p.a) + ", " + matrix("B", p.b) + ", " + matrix("D", p.d) +
         " (column-major), " + to_string(p.in) + " -> " + to_string(p.out) + ", batch " +
         std::to_string(p.batch) + ", epilogue " + std::to_string(native(p));
}

// ---- Plans: descriptors and an algorithm for one problem ----

/// Everything that the choice of an algorithm depends on.
using Key = std::array<std::int64_t, 24>;

Key key_of(const Product& p, bool tf32, cublasLtReductionScheme_t reductions) {
  Key key = {static_cast<std::int64_t>(p.in),
             static_cast<std::int64_t>(p.out),
             static_cast<std::int64_t>(native(p)),
             p.batch,
             p.aux_ld,
             static_cast<std::int64_t>(reductions),
             tf32};
  std::size_t i = 7;
  for (const Matrix* m : {&p.a, &p.b, &p.d}) {
    for (const std::int64_t v : {m->rows, m->cols, m->ld, m->stride}) key[i++] = v;
    key[i++] = 2 * static_cast<std::int64_t>(alignment(m->data)) + m->transposed;
  }
  key[i++] = alignment(p.bias);
  key[i++] = alignment(p.aux);
  return key;
}

/// The deleter of a cuBLASLt object, by the library's own function.
template <class T>
struct Destroy {
  cublasStatus_t (*destroy)(T) = nullptr;
  void operator()(T object) const noexcept { destroy(object); }
};
template <class T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Destroy<T>>;
template <class T>
Owned<T> own(T object, cublasStatus_t (*destroy)(T)) {
  return Owned<T>(object, Destroy<T>{destroy});
}

/// An algorithm that the library offers for a problem.
struct Algorithm {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspace;  ///< bytes
};
/// Number of algorithms to ask for. Later ones serve calls in which the library refuses an earlier
/// one.
constexpr int kMostAlgorithms = 4;

struct Plan {
  Owned<cublasLtMatmulDesc_t> desc;
  Owned<cublasLtMatrixLayout_t> a, b, d;
  std::vector<Algorithm> algorithms;  ///< best first; empty if the library has none
  /// The call that refused all algorithms, or one of them, and its status.
  const char* refused_by = "cublasLtMatmulAlgoGetHeuristic";
  cublasStatus_t refusal = CUBLAS_STATUS_NOT_SUPPORTED;
};

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, T value,
         const char* op) {
  check(cublaslt().cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value), op,
        "cublasLtMatmulDescSetAttribute");
}

Owned<cublasLtMatrixLayout_t> layout_of(const Matrix& m, DType dtype, std::int64_t batch,
                                        const char* op) {
  const auto& lt = cublaslt();
  cublasLtMatrixLayout_t layout = nullptr;
  check(lt.cublasLtMatrixLayoutCreate(&layout, data_type(dtype), static_cast<std::uint64_t>(m.rows),
                                      static_cast<std::uint64_t>(m.cols), m.ld),
        op, "cublasLtMatrixLayoutCreate");
  auto owned = own(layout, lt.cublasLtMatrixLayoutDestroy);
  if (batch != 1) {
    const auto count = static_cast<std::int32_t>(batch);
    const auto put = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
      check(lt.cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value), op,
            "cublasLtMatrixLayoutSetAttribute");
    };
    put(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
    put(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.stride);
  }
  return owned;
}

std::int64_t inner_size(const Product& p) { return p.a.transposed ? p.a.rows : p.a.cols; }

/// True if the library may have the epilogue for these sizes. It has no DRELU or DGELU with K = 1,
/// no BGRADB with N = 1 and, before 12.3.4, none with K = 1. Sizes of 1 are not worth a request.
bool may_be_offered(const Product& p) {
  const bool gradient = p.epilogue == Epilogue::relu_gradient ||
                        p.epilogue == Epilogue::gelu_gradient ||
                        p.epilogue == Epilogue::bias_gradient;
  return !gradient || std::min({p.d.rows, p.d.cols, inner_size(p)}) > 1;
}

/// Returns the allowed ways to split the inner axis (split-K). Partial sums in the compute type,
/// added by a second kernel, are not rounded and have a fixed order. Other schemes round partial
/// sums to the type of the result, or add them in order of arrival. Below some thousand terms the
/// second launch costs more than it gains. Exceptions are f32 products whose tiles leave half the
/// multiprocessors idle: without tensor cores these take several times as long as a launch.
cublasLtReductionScheme_t reductions(const Product& p, int multiprocessors) {
  constexpr std::int64_t kLongSum = 4096, kMediumSum = 256, kTile = 128;
  const std::int64_t k = inner_size(p);
  if (k >= kLongSum) return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (p.in != DType::f32 || k < kMediumSum || split_k() == SplitK::by_depth)
    return CUBLASLT_REDUCTION_SCHEME_NONE;
  const std::int64_t tiles =
      math::ceil_div(p.d.rows, kTile) * math::ceil_div(p.d.cols, kTile) * p.batch;
  return 2 * tiles < multiprocessors ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                     : CUBLASLT_REDUCTION_SCHEME_NONE;
}

Plan make_plan(const Product& p, bool tf32, cublasLtReductionScheme_t allowed,
               cublasLtHandle_t handle) {
  const auto& lt = cublaslt();
  Plan plan;
  const bool wide = p.in == DType::f64;
  const auto compute = wide   ? CUBLAS_COMPUTE_64F
                       : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                              : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t desc = nullptr;
  check(lt.cublasLtMatmulDescCreate(&desc, compute, wide ? CUDA_R_64F : CUDA_R_32F), p.op,
        "cublasLtMatmulDescCreate");
  plan.desc = own(desc, lt.cublasLtMatmulDescDestroy);
  const auto transform = [](bool t) -> std::int32_t { return t ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, transform(p.a.transposed), p.op);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, transform(p.b.transposed), p.op);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(native(p)), p.op);
  // The heuristic reads only the alignment of these two pointers.
  const auto stand_in = [](const void* q) {
    return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(alignment(q)));
  };
  if (p.bias) set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, stand_in(p.bias), p.op);
  if (p.aux) {
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, stand_in(p.aux), p.op);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.aux_ld, p.op);
  }
  plan.a = layout_of(p.a, p.in, p.batch, p.op);
  plan.b = layout_of(p.b, p.in, p.batch, p.op);
  plan.d = layout_of(p.d, p.out, p.batch, p.op);

  cublasLtMatmulPreference_t preference = nullptr;
  check(lt.cublasLtMatmulPreferenceCreate(&preference), p.op, "cublasLtMatmulPreferenceCreate");
  const auto owned = own(preference, lt.cublasLtMatmulPreferenceDestroy);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(lt.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
          p.op, "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kProductWorkspace});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.a.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.b.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p.d.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p.d.data));

  const auto search = [&](cublasLtReductionScheme_t scheme) {
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(scheme));
    std::array<cublasLtMatmulHeuristicResult_t, kMostAlgorithms> results{};
    int count = 0;
    const cublasStatus_t status = lt.cublasLtMatmulAlgoGetHeuristic(
        handle, desc, plan.a.get(), plan.b.get(), plan.d.get(), plan.d.get(), preference,
        kMostAlgorithms, results.data(), &count);
    // A missing epilogue is INVALID_VALUE in some versions, NOT_SUPPORTED in others.
    const bool refused = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                         (status == CUBLAS_STATUS_INVALID_VALUE && p.epilogue != Epilogue::none);
    if (!refused) check(status, p.op, "cublasLtMatmulAlgoGetHeuristic", describe(p));
    for (int i = 0; i < (refused ? 0 : count); ++i) {
      const auto& result = results[static_cast<std::size_t>(i)];
      if (result.state == CUBLAS_STATUS_SUCCESS)
        plan.algorithms.push_back({result.algo, result.workspaceSize});
    }
    return !plan.algorithms.empty();
  };
  if (!search(allowed)) search(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  return plan;
}

/// A handle with the plans made for it.
struct Context {
  int device;
  int multiprocessors = 0;
  std::uint32_t warned = 0;  ///< a bit for each Epilogue of which a refusal was reported
  cublasLtHandle_t handle = nullptr;
  std::unordered_map<Key, Plan, KeyHash> plans;
};

/// Says why a product cannot be part of a graph yet.
constexpr const char* kNotYet =
    "cuBLASLt has to choose an algorithm at the first product with a shape: run the step once "
    "before";

Context& context_of(Device device, const char* op) {
  return thread_context<Context>(device.index, [&] {
    runtime::refuse_capture(op, device, kNotYet);
    auto fresh = std::make_unique<Context>();
    fresh->device = device.index;
    gpu::check_cuda(cudaDeviceGetAttribute(&fresh->multiprocessors, cudaDevAttrMultiProcessorCount,
                                           int{device.index}),
                    op, "cudaDeviceGetAttribute");
    check(cublaslt().cublasLtCreate(&fresh->handle), op, "cublasLtCreate");
    return fresh;
  });
}

Plan& plan_of(Context& context, const Product& p, Stream stream) {
  const bool tf32 = p.in == DType::f32 && tf32_allowed();
  const cublasLtReductionScheme_t allowed = reductions(p, context.multiprocessors);
  const Key key = key_of(p, tf32, allowed);
  const auto at = context.plans.find(key);
  if (at != context.plans.end()) return at->second;
  runtime::refuse_capture(p.op, stream.device, kNotYet);
  if (context.plans.size() >= kMaxPlans) context.plans.clear();
  return context.plans.emplace(key, make_plan(p, tf32, allowed, context.handle)).first->second;
}

/// Notes that the library does not run an algorithm that it offered. Passes on what the handler of
/// warnings throws; nothing has been queued then.
void drop_algorithm(Context& context, Plan& plan, const Product& p, cublasStatus_t status) {
  plan.algorithms.erase(plan.algorithms.begin());
  plan.refused_by = "cublasLtMatmul";
  plan.refusal = status;
  note_refusal(Device::cuda(context.device), p.epilogue, p.in, status);
  const auto bit = std::uint32_t{1} << static_cast<unsigned>(p.epilogue);
  if (context.warned & bit) return;
  context.warned |= bit;
  warn(p.op,
       std::string("cublasLtMatmul answered ") + gpu::status_name(status) +
           " to an algorithm that cuBLASLt had chosen, for " + describe(p) +
           ". The next one is tried" +
           (p.epilogue == Epilogue::none ? "" : ", or separate kernels"),
       "CUBLASLT_LOG_LEVEL=2 makes the library say more");
}

}  // namespace

void plan_ahead(const Product& p, Stream stream) {
  if (!may_be_offered(p) || runtime::capturing(stream.device)) return;
  gpu::check_cuda(cudaSetDevice(stream.device.index), p.op, "cudaSetDevice");
  plan_of(context_of(stream.device, p.op), p, stream);
}

bool multiply(const Product& p, Stream stream) {
  if (!may_be_offered(p)) return false;
  gpu::check_cuda(cudaSetDevice(stream.device.index), p.op, "cudaSetDevice");
  Context& context = context_of(stream.device, p.op);
  Plan& plan = plan_of(context, p, stream);
  if (plan.algorithms.empty()) {
    if (p.epilogue == Epilogue::none) check(plan.refusal, p.op, plan.refused_by, describe(p));
    return false;
  }

  const auto& lt = cublaslt();
  const Algorithm& use = plan.algorithms.front();
  if (p.bias) set(plan.desc.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias, p.op);
  if (p.aux) set(plan.desc.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux, p.op);
  const runtime::Workspace workspace(use.workspace, stream);
  if (runtime::dry_run()) return true;
  const auto alpha32 = static_cast<float>(p.alpha), beta32 = static_cast<float>(p.beta);
  const bool wide = p.in == DType::f64;
  const void* const alpha = wide ? static_cast<const void*>(&p.alpha) : &alpha32;
  const void* const beta = wide ? static_cast<const void*>(&p.beta) : &beta32;
  void* const d = const_cast<void*>(p.d.data);
  const cublasStatus_t status =
      lt.cublasLtMatmul(context.handle, plan.desc.get(), alpha, p.a.data, plan.a.get(), p.b.data,
                        plan.b.get(), beta, d, plan.d.get(), d, plan.d.get(), &use.algo,
                        workspace.data(), use.workspace, gpu::native(stream));
  // These two come from checks of the arguments, before anything is queued.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
    drop_algorithm(context, plan, p, status);
    return multiply(p, stream);
  }
  check(status, p.op, "cublasLtMatmul", describe(p));
  runtime::note_kernel(p.op);
  return true;
}

}  // namespace firn::kernels::cuda
