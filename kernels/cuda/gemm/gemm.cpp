// GEMM on CUDA devices. Views are converted for cuBLASLt. Other kernels do what it does not
// support: empty inner axes, and results without a unit stride.
#include "kernels/gemm.h"

#include "firn/error.h"
#include "kernels/copy.h"
#include "kernels/cuda/gemm/operand.h"
#include "kernels/cuda/gemm/product.h"
#include "kernels/elementwise.h"
#include "kernels/settings/settings.h"

namespace firn::kernels::cuda {
namespace {

/// c = beta*c + bias, the bias repeated along the rows; with beta 0, c is not read.
void scale_and_add(const View& c, double beta, const ConstView& bias, Stream stream) {
  if (bias.data) {
    const ConstView rows = broadcast_to(bias, c.shape);
    if (beta == 0) {
      kernels::copy(rows, c, stream);
    } else {
      kernels::axpby(1.0, rows, beta, c, stream);
    }
  } else if (beta == 0) {
    kernels::fill(c, 0.0, stream);
  } else if (beta != 1) {
    kernels::axpby(beta, c, 0.0, c, stream);
  }
}

}  // namespace

void gemm(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args,
          Stream stream) {
  if (batch_invariance_required())
    throw Error("gemm", "batch invariance is required, which cuBLASLt does not promise",
                "compute on the CPU, or call require_batch_invariance(false)");
  if (c.numel() == 0) return;
  const int last = c.rank() - 1;
  if (a.shape[last] == 0) return scale_and_add(c, args.beta, args.bias, stream);

  const Result place(c);
  if (!place.direct()) {
    // Computes a row-major result of the compute dtype first, which is rounded once into c.
    const Buffer own(c.shape, compute_dtype(c.dtype), stream);
    gemm(a, b, own.view(), {.alpha = args.alpha, .beta = 0, .bias = args.bias}, stream);
    return kernels::axpby(1.0, own.view(), args.beta, c, stream);
  }
  // C^T = B^T A^T, column-major. If C itself is column-major, C = A B.
  const Operand left(place.row_major() ? b : transposed(a), stream);
  const Operand right(place.row_major() ? a : transposed(b), stream);
  Product p;
  p.op = "gemm";
  p.in = a.dtype;
  p.out = c.dtype;
  p.a = left.matrix();
  p.b = right.matrix();
  p.d = place.matrix();
  p.batch = c.rank() == 3 ? c.shape[0] : 1;
  p.alpha = args.alpha;
  p.beta = args.beta;
  // The library adds a bias only along rows, and only to 16- and 32-bit results.
  if (args.bias.data && a.dtype != DType::f64 && place.row_major()) {
    const Vector bias(args.bias, c.dtype, stream);
    p.epilogue = Epilogue::bias;
    p.bias = bias.data();
    if (multiply(p, stream)) return;
    p.epilogue = Epilogue::none;
    p.bias = nullptr;
  }
  // With beta 0, the result starts with its bias. Else the bias is added last, so that c is
  // unchanged if the product throws.
  if (args.bias.data && args.beta == 0) {
    scale_and_add(c, 0, args.bias, stream);
    p.beta = 1;
  }
  multiply(p, stream);
  if (args.bias.data && args.beta != 0) scale_and_add(c, 1, args.bias, stream);
}

}  // namespace firn::kernels::cuda
