// Contract of matrix multiplication.
#pragma once

#include "kernels/dispatch.h"

namespace firn::kernels {

namespace cpu {
struct Microkernel;
}

/// The right factor of several products on the CPU, packed once for all (pack_right()).
struct PackedRight {
  const cpu::Microkernel* unit = nullptr;  ///< packs and multiplies; null if nothing is packed
  std::int64_t bytes = 0;
  void* data = nullptr;  ///< `bytes` bytes, aligned to 64
};

struct GemmArgs {
  double alpha = 1;
  double beta = 0;      ///< with 0, c is not read
  ConstView bias = {};  ///< [n] added to every row, any floating dtype; or data == nullptr
  /// The packed b as well, for products without a batch axis on the CPU.
  PackedRight packed = {};
};

namespace cpu {

/// c = alpha * a b + beta * c + bias, for [m, k] x [k, n], or [batch, m, k] x [batch, k, n] with
/// batch strides of any size, 0 included. a and b share a floating dtype; c has that dtype, or f32
/// if they are 16-bit. Products accumulate in f32 (f64 for f64). Strides are free: an operand
/// without a unit stride is copied to workspace first. k = 0 gives beta*c + bias.
///
/// On the CPU the split over threads depends on the shape alone, so the bits are the same for any
/// number of threads. On CUDA devices the order of a sum depends on shape, dtypes and layout; a
/// bias of another dtype is rounded to c's dtype first.
void gemm(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args,
          Stream stream);

/// Says how to pack the right factor b [k, n] for products with left ones of m rows; `data` is
/// null. An f32 factor that gemm() leaves to a library is packed too: the library packs it for each
/// product. If `unit` is null there is nothing to pack: b is f64, or empty.
PackedRight plan_right(const ConstView& b, std::int64_t m);
/// Packs b at to.data, where `to` comes from plan_right().
void pack_right(const ConstView& b, const PackedRight& to);

/// Returns the unit that multiplies factors of `dtype` (bf16, f16 or f32) on this CPU, in words.
const char* product_unit(DType dtype);

}  // namespace cpu

inline double gemm_flops(const ConstView& a, const ConstView&, const View& c, const auto&...) {
  return a.rank() == 0 ? 0 : 2.0 * double(c.numel()) * double(a.shape[a.rank() - 1]);
}
FIRN_KERNEL_OF_PRODUCTS(gemm, gemm_flops)
FIRN_CPU_VARIANTS_OF(product_unit)
FIRN_CPU_VARIANTS_OF(plan_right)
FIRN_KERNEL_CPU(pack_right)
inline PackedRight plan_right(const ConstView& b, std::int64_t m) {
  return FIRN_ON_CPU(plan_right)(b, m);
}

}  // namespace firn::kernels
