#include "bench/gpu/probe/product.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "bench/gpu/probe/steps.h"
#include "firn/half.h"
#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/gemm/product.h"

namespace probe {
namespace {

using firn::DType;
using firn::gpu::cublaslt;

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(call + (" " + name_of(status)));
}

cudaDataType data_type(DType t) {
  return t == DType::f16 ? CUDA_R_16F : t == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

bool is_relu_mask(cublasLtEpilogue_t e) {
  return e == CUBLASLT_EPILOGUE_RELU_AUX || e == CUBLASLT_EPILOGUE_RELU_AUX_BIAS ||
         e == CUBLASLT_EPILOGUE_DRELU;
}
bool has_aux(cublasLtEpilogue_t e) {
  return is_relu_mask(e) || e == CUBLASLT_EPILOGUE_GELU_AUX ||
         e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || e == CUBLASLT_EPILOGUE_DGELU;
}
bool has_bias(cublasLtEpilogue_t e) {
  return e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_RELU_BIAS ||
         e == CUBLASLT_EPILOGUE_RELU_AUX_BIAS || e == CUBLASLT_EPILOGUE_GELU_BIAS ||
         e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || e == CUBLASLT_EPILOGUE_BGRADB;
}

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
std::size_t bytes_of(std::int64_t count, DType t) {
  return static_cast<std::size_t>(count) * firn::size_of(t);
}

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, T value) {
  check(cublaslt().cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute");
}

cublasLtMatrixLayout_t layout(DType dtype, std::int64_t rows, std::int64_t cols) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublaslt().cublasLtMatrixLayoutCreate(&made, data_type(dtype),
                                              static_cast<std::uint64_t>(rows),
                                              static_cast<std::uint64_t>(cols), rows),
        "cublasLtMatrixLayoutCreate");
  return made;
}

/// Returns the workspace, as large as firn's, which all products share.
const Memory& workspace() {
  static auto* const memory = new Memory(firn::kernels::cuda::kProductWorkspace, false);
  return *memory;
}

/// Returns an attribute of an algorithm, or -1 if the library does not say.
int attribute_of(const cublasLtMatmulAlgo_t& algorithm,
                 cublasLtMatmulAlgoConfigAttributes_t which) {
  std::int32_t value = 0;
  std::size_t written = 0;
  const auto status = cublaslt().cublasLtMatmulAlgoConfigGetAttribute(&algorithm, which, &value,
                                                                      sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : -1;
}

}  // namespace

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  const std::string text =
      std::string(call) + " " + cudaGetErrorName(status) + " (" + cudaGetErrorString(status) + ")";
  cudaGetLastError();
  if (cudaDeviceSynchronize() != cudaSuccess) throw Broken(text);
  throw std::runtime_error(text);
}

std::string name_of(cublasStatus_t status) {
  const std::string name = firn::gpu::status_name(status), prefix = "CUBLAS_STATUS_";
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

Memory::Memory(std::size_t bytes, bool zeros) {
  check(cudaMalloc(&data_, bytes), "cudaMalloc");
  if (zeros) check(cudaMemset(data_, 0, bytes), "cudaMemset");
}
Memory::~Memory() { cudaFree(data_); }

void Memory::put(const std::vector<float>& values, DType dtype) {
  const std::size_t size = firn::size_of(dtype);
  std::vector<unsigned char> raw(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const firn::half h(values[i]);
    const firn::bfloat16 b(values[i]);
    const void* const from = dtype == DType::f16    ? static_cast<const void*>(&h)
                             : dtype == DType::bf16 ? static_cast<const void*>(&b)
                                                    : &values[i];
    std::memcpy(raw.data() + i * size, from, size);
  }
  check(cudaMemcpy(data_, raw.data(), raw.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
}

std::vector<unsigned char> Memory::bytes(std::size_t count) const {
  std::vector<unsigned char> raw(count);
  check(cudaMemcpy(raw.data(), data_, count, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return raw;
}

std::vector<float> Memory::values(std::size_t count, DType dtype) const {
  const std::size_t size = firn::size_of(dtype);
  const auto raw = bytes(count * size);
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    firn::half h;
    firn::bfloat16 b;
    switch (dtype) {
      case DType::f16:
        std::memcpy(&h, raw.data() + i * size, size);
        out[i] = h;
        break;
      case DType::bf16:
        std::memcpy(&b, raw.data() + i * size, size);
        out[i] = b;
        break;
      default:
        std::memcpy(&out[i], raw.data() + i * size, size);
    }
  }
  return out;
}

WorkStream::WorkStream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // earlier stores are complete
}
WorkStream::~WorkStream() { cudaStreamDestroy(stream_); }

cublasLtHandle_t new_handle() {
  cublasLtHandle_t handle = nullptr;
  check(cublaslt().cublasLtCreate(&handle), "cublasLtCreate");
  return handle;
}

Product::Product(const Problem& p)
    : k_(p.k),
      alpha_(p.alpha),
      aux_ld_(round_up(p.m, is_relu_mask(p.epilogue) ? 128 : 8)),
      a_(bytes_of(p.m * p.k, p.in)),
      b_(bytes_of(p.k * p.n, p.in)),
      d_(bytes_of(p.m * p.n, p.out)),
      bias_(bytes_of(std::max(p.m, p.n), p.out)),
      aux_(is_relu_mask(p.epilogue) ? static_cast<std::size_t>(aux_ld_ / 8 * p.n)
                                    : bytes_of(aux_ld_ * p.n, p.out)) {
  workspace();  // not in run(), which may be captured
  check(cublaslt().cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  const auto transform = [](bool t) -> std::int32_t { return t ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, transform(p.transpose_a));
  set(desc_, CUBLASLT_MATMUL_DESC_TRANSB, transform(p.transpose_b));
  set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(p.epilogue));
  if (has_bias(p.epilogue)) set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_.data());
  if (has_aux(p.epilogue)) {
    set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux_.data());
    set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld_);
  }
  layout_a_ = p.transpose_a ? layout(p.in, p.k, p.m) : layout(p.in, p.m, p.k);
  layout_b_ = p.transpose_b ? layout(p.in, p.n, p.k) : layout(p.in, p.k, p.n);
  layout_d_ = layout(p.out, p.m, p.n);
}

Product::~Product() {
  const auto& lt = cublaslt();
  for (const auto l : {layout_a_, layout_b_, layout_d_}) lt.cublasLtMatrixLayoutDestroy(l);
  lt.cublasLtMatmulDescDestroy(desc_);
}

Found Product::search(cublasLtHandle_t handle) const {
  const auto& lt = cublaslt();
  cublasLtMatmulPreference_t preference = nullptr;
  check(lt.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<void, void (*)(void*)> owned(preference, [](void* p) {
    cublaslt().cublasLtMatmulPreferenceDestroy(static_cast<cublasLtMatmulPreference_t>(p));
  });
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(lt.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
         std::uint64_t{firn::kernels::cuda::kProductWorkspace});
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(which, std::uint32_t{16});
  Found found;
  for (const auto scheme :
       {CUBLASLT_REDUCTION_SCHEME_NONE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}) {
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(scheme));
    cublasLtMatmulHeuristicResult_t results[kAsked]{};
    int count = 0;
    found.second_search = scheme != CUBLASLT_REDUCTION_SCHEME_NONE;
    found.status =
        lt.cublasLtMatmulAlgoGetHeuristic(handle, desc_, layout_a_, layout_b_, layout_d_, layout_d_,
                                          preference, kAsked, results, &count);
    if (found.status != CUBLAS_STATUS_SUCCESS) continue;
    const auto end = results + count;
    const auto good = [](const auto& r) { return r.state == CUBLAS_STATUS_SUCCESS; };
    const auto first = std::find_if(results, end, good);
    if (first == end) continue;
    found.count = static_cast<int>(std::count_if(results, end, good));
    found.algorithm = first->algo;
    found.workspace = first->workspaceSize;
    break;
  }
  return found;
}

cublasStatus_t Product::run(cublasLtHandle_t handle, const Found& found,
                            cudaStream_t stream) const {
  const float beta = 0;
  return cublaslt().cublasLtMatmul(handle, desc_, &alpha_, a_.data(), layout_a_, b_.data(),
                                   layout_b_, &beta, d_.data(), layout_d_, d_.data(), layout_d_,
                                   &found.algorithm, workspace().data(), found.workspace, stream);
}

std::string describe(const Found& found) {
  std::string text;
  for (const auto which : {CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_TILE_ID,
                           CUBLASLT_ALGO_CONFIG_STAGES_ID, CUBLASLT_ALGO_CONFIG_SPLITK_NUM})
    text += (text.empty() ? "" : "/") + std::to_string(attribute_of(found.algorithm, which));
  const std::size_t kib = (found.workspace + 1023) / 1024;
  if (kib > 0)
    text += "+" + (kib < 1024 ? std::to_string(kib) + "K" : std::to_string(kib / 1024) + "M");
  return text;
}

Recorded end_capture(cudaStream_t stream) {
  Recorded recorded;
  recorded.status = cudaStreamEndCapture(stream, &recorded.graph);
  if (recorded.status != cudaSuccess) {
    recorded.graph = nullptr;
    cudaGetLastError();
  }
  return recorded;
}

std::string nodes_of(cudaGraph_t graph) {
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  int kernels = 0, sets = 0, copies = 0;
  for (const auto node : nodes) {
    cudaGraphNodeType type{};
    check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    kernels += type == cudaGraphNodeTypeKernel;
    sets += type == cudaGraphNodeTypeMemset;
    copies += type == cudaGraphNodeTypeMemcpy;
  }
  std::string text = std::to_string(count) + "n";
  if (kernels == static_cast<int>(count)) return text;
  return text + "(k" + std::to_string(kernels) + " set" + std::to_string(sets) + " copy" +
         std::to_string(copies) + ")";
}

}  // namespace probe
