// How exact activations in the epilogues of matrix products are: the one table of the bounds that
// tests of dense layers take, on a GPU as on the simulator. What a sum and its roundings add comes
// from the dtype and the length, and stands in the tests.
#pragma once

#include <array>
#include <cmath>

#include "firn/firn.h"
#include "kernels/settings/settings.h"

namespace firn::testing {

struct EpilogueBound {
  DType dtype;
  kernels::Epilogues way;
  double
      tanh;  ///< most relative error of the tanh in gelu, beyond the rounding of the compute type
};

/// cuBLASLt's epilogues take the hardware's tanh, for which PTX promises 2^-11 (tanh.approx); twice
/// that, since the library promises nothing. firn's own kernels take an exact one, and so does
/// `automatic` with f32 and f64.
inline constexpr std::array<EpilogueBound, 12> kEpilogueBounds = {{
    {f16, kernels::Epilogues::fused, 0x1p-10},
    {f16, kernels::Epilogues::automatic, 0x1p-10},
    {f16, kernels::Epilogues::unfused, 0},
    {bf16, kernels::Epilogues::fused, 0x1p-10},
    {bf16, kernels::Epilogues::automatic, 0x1p-10},
    {bf16, kernels::Epilogues::unfused, 0},
    {f32, kernels::Epilogues::fused, 0x1p-10},
    {f32, kernels::Epilogues::automatic, 0},
    {f32, kernels::Epilogues::unfused, 0},
    {f64, kernels::Epilogues::fused, 0},
    {f64, kernels::Epilogues::automatic, 0},
    {f64, kernels::Epilogues::unfused, 0},
}};

/// The bound of the table; 0 on the CPU.
inline double tanh_error(DType dtype, kernels::Epilogues way) {
  if (default_device().is_cpu()) return 0;
  for (const EpilogueBound& b : kEpilogueBounds)
    if (b.dtype == dtype && b.way == way) return b.tanh;
  throw Error("tanh_error", "the table has no row for this dtype and way");
}

/// What that makes of gelu_tanh(x) and of its derivative, at most: t and 1 - t^2 stand for tanh and
/// its slope, and |t| <= 1.
inline double gelu_error(double x, double tanh) { return 0.5 * std::abs(x) * tanh; }
inline double gelu_slope_error(double x, double tanh) {
  const double inner = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  return tanh * (0.5 + std::abs(x) * inner);
}

}  // namespace firn::testing
