#include "firn/optim/health.h"

#include <cmath>

#include "optim/impl.h"

namespace firn::optim {
namespace {

// Limits of the type's magnitudes.
struct Limits {
  double smallest_normal, half_of_smallest, largest;
};

template <class T>
GradientHealth look(const T* g, std::int64_t n, double to_mean, double scale,
                    const Limits& limits) {
  GradientHealth h;
  h.received = true;
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = std::abs(static_cast<double>(g[i]));
    if (v == 0) {
      h.zeros += 1;
    } else if (!std::isfinite(v)) {
      h.non_finite += 1;
    } else {
      const double mean = v * to_mean;
      h.largest = std::fmax(h.largest, mean);
      if (mean <= limits.half_of_smallest) {
        h.flushed += 1;
      } else if (mean < limits.smallest_normal) {
        h.subnormal += 1;
      }
    }
  }
  if (n > 0)
    for (double* share : {&h.zeros, &h.flushed, &h.subnormal, &h.non_finite})
      *share /= static_cast<double>(n);
  h.headroom_bits = std::log2(limits.largest / (scale * h.largest));  // infinite for zeros
  return h;
}

}  // namespace

std::vector<GradientHealth> gradient_health(const Optimizer& optimizer, DType dtype) try {
  OptimizerImpl& impl = OptimizerAccess::impl(optimizer);
  impl.adopt_gradients();
  const ParamStore& store = impl.store;
  FIRN_CHECK(dtype == DType::f16 || dtype == DType::bf16, store.op(), "ask for f16 or bf16",
             "the health of gradients as {} is not known", dtype);
  FIRN_CHECK(!store.gradients_sharded(), store.op(), "set DistributeOptions::zero to 1",
             "gradients are sharded over ranks, and each rank has its shard alone");
  const Limits limits = dtype == DType::f16 ? Limits{0x1p-14, 0x1p-25, max_of(dtype)}
                                            : Limits{0x1p-126, 0x1p-134, max_of(dtype)};
  const math::StepState s = store.read_state();
  const double to_mean = s.weight_sum > 0 ? math::averaging_factor(s) : 1 / s.unit;
  std::vector<GradientHealth> out;
  for (std::size_t i = 0; i < store.parameters().size(); ++i) {
    const Tensor on_device = store.gradient(i);
    if (!on_device.defined()) {
      out.emplace_back();
      continue;
    }
    const Tensor g = on_device.to(Device::cpu());
    out.push_back(g.dtype() == DType::f64
                      ? look(g.view().as<double>(), g.numel(), to_mean, s.scale, limits)
                      : look(g.view().as<float>(), g.numel(), to_mean, s.scale, limits));
  }
  return out;
}
FIRN_OUT_OF_MEMORY("gradient_health")

}  // namespace firn::optim
