// One GEMM as cuBLASLt computes it: D = alpha op(A) op(B) + beta D on column-major matrices, with
// an epilogue. A row-major matrix is the transpose of a column-major one. So a row-major C = A B is
// computed as C^T = B^T A^T, without copies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "firn/runtime/stream.h"
#include "firn/view.h"

namespace firn::kernels::cuda {

/// Operation on a result before it is stored. `bias` is one value per row of D. gelu (its tanh
/// form) comes after a bias if there is one, and saves what the gradient needs in `aux` if that is
/// given. The library's relu is not here, because it may turn a NaN into 0 and its mask may pass
/// the gradient at 0: dense.cu computes relu and its mask itself.
enum class Epilogue : std::uint8_t {
  none,
  bias,
  gelu,
  relu_gradient,
  gelu_gradient,
  bias_gradient
};

/// A matrix in memory, column-major: element (i, j) at i + j*ld.
struct Matrix {
  const void* data = nullptr;
  std::int64_t rows = 0, cols = 0, ld = 0;
  std::int64_t stride = 0;  ///< distance to the next matrix of a batch, in elements
  bool transposed = false;  ///< op() transposes it; a result never is
};

struct Product {
  const char* op = "";
  DType in = DType::f32;   ///< dtype of A and B
  DType out = DType::f32;  ///< dtype of D, bias and the values in aux
  Matrix a, b, d;
  std::int64_t batch = 1;
  double alpha = 1, beta = 0;
  Epilogue epilogue = Epilogue::none;
  const void* bias = nullptr;  ///< bias_gradient writes it: sums over op(B)'s columns
  const void* aux = nullptr;   ///< gelu writes it, gradients read it; 16-byte aligned
  std::int64_t aux_ld = 0;     ///< relu: bits, a multiple of 128; gelu: elements, a multiple of 8
};

/// Queues the product on the stream; in a dry run it only allocates the workspace. Returns false,
/// with nothing done, if the library has no algorithm for its epilogue, or may have none: it has no
/// gradient epilogues for sizes of 1. Algorithms are chosen once per problem, device and thread.
/// The choice depends on the problem alone, including the alignment of addresses up to 16 bytes,
/// but not on `beta`. The order of sums does not change from run to run.
///
/// An algorithm that the library offered and then refuses to run is not tried again: the next one
/// runs, or the result is false. The first refusal of each epilogue is a warning.
///
/// Throws Error if the library has no algorithm for the product itself. It also throws if a graph
/// is captured and the problem is new to this thread. cublasLtCreate() allocates, and the search
/// for an algorithm fails in a capture in some versions (13.3, CUBLAS_STATUS_INTERNAL_ERROR), so
/// neither may happen there. A handle made in advance would not help with the search.
bool multiply(const Product& product, Stream stream);

/// Chooses the algorithms of a product that may be queued later, in a captured graph. It does
/// nothing while a graph is captured.
void plan_ahead(const Product& product, Stream stream);

/// Largest workspace of algorithms, in bytes.
inline constexpr std::size_t kProductWorkspace = std::size_t{32} << 20;

}  // namespace firn::kernels::cuda
