// One GEMM as cuBLASLt computes it: D = alpha op(A) op(B) + beta D on column-major matrices, with
// an epilogue. A row-major matrix is the transpose of a column-major one, so a row-major C = A B is
// computed as C^T = B^T A^T, without copies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "firn/stream.h"
#include "firn/view.h"

namespace firn::kernels::cuda {

/// What happens to a result before it is stored. `bias` is one value per row of D. relu and gelu
/// (its tanh form) come after a bias if there is one, and save what the gradient needs in `aux` if
/// that is given.
enum class Epilogue : std::uint8_t {
  none,
  bias,
  relu,
  gelu,
  relu_gradient,
  gelu_gradient,
  bias_gradient
};

/// A matrix in memory, column-major: element (i, j) at i + j*ld.
struct Matrix {
  const void* data = nullptr;
  std::int64_t rows = 0, cols = 0, ld = 0;
  std::int64_t stride = 0;  ///< to the next matrix of a batch, in elements
  bool transposed = false;  ///< op() transposes it; a result never is
};

struct Product {
  const char* op = "";
  DType in = DType::f32;   ///< of A and B
  DType out = DType::f32;  ///< of D, bias and the values in aux
  Matrix a, b, d;
  std::int64_t batch = 1;
  double alpha = 1, beta = 0;
  Epilogue epilogue = Epilogue::none;
  const void* bias = nullptr;  ///< bias_gradient writes it: sums over op(B)'s columns
  const void* aux = nullptr;   ///< forward epilogues write it, gradients read it; 16-byte aligned
  std::int64_t aux_ld = 0;     ///< relu: bits, a multiple of 128; gelu: elements, a multiple of 8
};

/// Queues the product on the stream. Returns false, with nothing done, if the library has no
/// algorithm for its epilogue. Throws Error if it has none for the product itself. The algorithm is
/// chosen once per problem, device and thread. The choice depends on the problem alone; of
/// addresses only the alignment, up to 16 bytes, counts. The order of sums does not change from run
/// to run.
bool multiply(const Product& product, Stream stream);

/// Bytes of workspace that algorithms may use.
inline constexpr std::size_t kProductWorkspace = std::size_t{32} << 20;

}  // namespace firn::kernels::cuda
