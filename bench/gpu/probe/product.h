// One product as firn passes it to cuBLASLt (kernels/cuda/gemm/product.cpp), but with separate
// steps: descriptors, the search for an algorithm, the call, the nodes of its graph.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "firn/dtype.h"

namespace probe {

/// Throws std::runtime_error naming the call and CUDA's error, or Broken if the error stays.
void check(cudaError_t status, const char* call);

/// Returns the name of a status without its prefix: "SUCCESS", "NOT_SUPPORTED".
std::string name_of(cublasStatus_t status);

/// Device memory.
class Memory {
 public:
  explicit Memory(std::size_t bytes, bool zeros = true);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }
  /// Stores the values, each rounded to `dtype` (f16, bf16 or f32).
  void put(const std::vector<float>& values, firn::DType dtype);
  /// Returns the first `count` values of `dtype`.
  std::vector<float> values(std::size_t count, firn::DType dtype) const;
  std::vector<unsigned char> bytes(std::size_t count) const;

 private:
  void* data_ = nullptr;
};

/// A stream that does not wait for the legacy one.
class WorkStream {
 public:
  WorkStream();
  ~WorkStream();
  WorkStream(const WorkStream&) = delete;
  WorkStream& operator=(const WorkStream&) = delete;
  cudaStream_t get() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Returns a new handle of the library, which is never destroyed. Throws if the library refuses.
cublasLtHandle_t new_handle();

/// The problem D [m, n] = alpha op(A) op(B), column-major, without gaps, through an epilogue.
struct Problem {
  firn::DType in, out;
  cublasLtEpilogue_t epilogue;
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  float alpha = 1;
};

/// Result of the search for an algorithm, which asks for kAsked at most.
struct Found {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  int count = 0;
  bool second_search =
      false;  ///< nothing without a split of the inner axis, as firn searches first
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace = 0;
};
inline constexpr int kAsked = 16;

/// A problem with its operands, bias and aux in memory.
class Product {
 public:
  explicit Product(const Problem& problem);
  ~Product();
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  /// Searches for algorithms in the library.
  Found search(cublasLtHandle_t handle) const;
  /// Queues the product; returns the library's answer.
  cublasStatus_t run(cublasLtHandle_t handle, const Found& found, cudaStream_t stream) const;

  Memory& a() { return a_; }
  Memory& b() { return b_; }
  Memory& d() { return d_; }
  Memory& aux() { return aux_; }
  std::int64_t aux_ld() const { return aux_ld_; }

 private:
  std::int64_t k_;
  float alpha_;
  std::int64_t aux_ld_;  ///< bits for ReLU, elements for GELU
  Memory a_, b_, d_, bias_, aux_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t layout_a_ = nullptr, layout_b_ = nullptr, layout_d_ = nullptr;
};

/// Returns "66/20/36/1": number, tile, stages and splits of an algorithm, and its workspace if it
/// needs one.
std::string describe(const Found& found);

/// Result of a capture; the graph is null if the capture failed.
struct Recorded {
  cudaError_t status = cudaSuccess;
  cudaGraph_t graph = nullptr;
};
/// Ends the capture of a stream, even if it failed.
Recorded end_capture(cudaStream_t stream);

/// Returns "1n", or "3n(k1 set1 copy1)" if there are other nodes than kernels.
std::string nodes_of(cudaGraph_t graph);

}  // namespace probe
