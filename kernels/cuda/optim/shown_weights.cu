// Selects which of their two sets of values schedule-free weights show, on CUDA devices.
#include "kernels/cuda/optim/arena.cuh"

namespace firn::kernels::cuda {
namespace {

/// ScheduleFreeWeights as a kernel's parameter; H is the weight's type, T that of the others.
template <class H, class T>
struct Shown {
  H* weight;
  T *master, *fast, *averaged;
  T beta1;
  std::int64_t n;

  /// Returns weight i as it is to be shown.
  __device__ H at(std::int64_t i, bool averages) const {
    const T x = averaged[i];
    H out;
    narrow(averages ? x : math::training_weight(fast[i], x, beta1), out);
    return out;
  }
};

template <class H, class T>
__global__ void show_kernel(Shown<H, T> w, bool averages) {
  for (std::int64_t i = global_thread(); i < w.n; i += grid_threads())
    w.weight[i] = w.at(i, averages);
}

template <class H, class T>
__global__ void adopt_shown_kernel(Shown<H, T> w, bool averages) {
  for (std::int64_t i = global_thread(); i < w.n; i += grid_threads()) {
    const T value = widen(w.weight[i]);
    if (value == static_cast<T>(widen(w.at(i, averages)))) continue;
    w.fast[i] = value;
    w.averaged[i] = value;
    if (w.master) w.master[i] = value;
  }
}

template <class H, class T>
void launch(bool adopts, const ScheduleFreeWeights& w, bool averages, Stream stream) {
  const std::int64_t n = w.weight.numel();
  if (n == 0) return;
  const Shown<H, T> shown{static_cast<H*>(w.weight.data),
                          static_cast<T*>(w.master.data),
                          w.fast.as<T>(),
                          w.averaged.as<T>(),
                          static_cast<T>(w.beta1),
                          n};
  if (adopts) {
    gpu::launch("optim_adopt_shown", adopt_shown_kernel<H, T>, grid_for(n), dim3(kBlock), 0, stream,
                shown, averages);
  } else {
    gpu::launch("optim_show_weights", show_kernel<H, T>, grid_for(n), dim3(kBlock), 0, stream,
                shown, averages);
  }
}

void launch(bool adopts, const ScheduleFreeWeights& w, bool averages, Stream stream) {
  switch (w.weight.dtype) {
    case DType::f16:
      return launch<__half, float>(adopts, w, averages, stream);
    case DType::bf16:
      return launch<__nv_bfloat16, float>(adopts, w, averages, stream);
    case DType::f64:
      return launch<double, double>(adopts, w, averages, stream);
    default:
      return launch<float, float>(adopts, w, averages, stream);
  }
}

}  // namespace

void optim_show_weights(const ScheduleFreeWeights& w, bool averaged, Stream stream) {
  launch(false, w, averaged, stream);
}

void optim_adopt_shown(const ScheduleFreeWeights& w, bool averaged, Stream stream) {
  launch(true, w, averaged, stream);
}

}  // namespace firn::kernels::cuda
