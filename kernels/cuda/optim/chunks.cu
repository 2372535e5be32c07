// The scalars of exact mode's chunks, which stay in device memory: no chunk waits for the host.
#include "kernels/cuda/optim/arena.cuh"

namespace firn::kernels::cuda {
namespace {

constexpr int kOneWarp = 32;

__global__ void note_sums_kernel(const math::LossSums* cycle, math::LossSums* before) {
  if (threadIdx.x == 0) *before = *cycle;
}

__global__ void take_sums_kernel(math::LossSums* cycle, const math::LossSums* before,
                                 math::CycleSums* sums) {
  if (threadIdx.x != 0) return;
  *sums = math::CycleSums::of(*cycle, *before);
  *cycle = *before;
}

template <class T>
__global__ void convert_gradient_kernel(const math::CycleSums* sums, const math::CycleSums* of,
                                        T* gradient, std::int64_t n) {
  const double factor = sums->unit / of->unit;
  if (factor == 1) return;  // the usual case
  for (std::int64_t i = global_thread(); i < n; i += grid_threads())
    gradient[i] = static_cast<T>(factor) * gradient[i];
}

__global__ void add_sums_kernel(const math::CycleSums* more, math::CycleSums* sums) {
  if (threadIdx.x == 0) sums->add(*more);
}

__global__ void put_sums_kernel(math::LossSums* cycle, const math::LossSums* before,
                                const math::CycleSums* sums) {
  if (threadIdx.x == 0) *cycle = sums->after(*before);
}

const math::CycleSums* sums_of(const ConstView& v) {
  return static_cast<const math::CycleSums*>(v.data);
}
const math::LossSums* before_of(const ConstView& v) {
  return static_cast<const math::LossSums*>(v.data);
}
/// A math::StepState begins with its base.
math::LossSums* cycle_of(const StepMemory& memory) { return memory.state.as<math::StepState>(); }

template <class... Params, class... Args>
void launch_one(const char* op, void (*kernel)(Params...), Stream stream, Args... args) {
  gpu::launch(op, kernel, dim3(1), dim3(kOneWarp), 0, stream, args...);
}

}  // namespace

void optim_note_sums(const StepMemory& memory, const View& before, Stream stream) {
  launch_one("optim_note_sums", note_sums_kernel, stream, cycle_of(memory),
             static_cast<math::LossSums*>(before.data));
}

void optim_take_sums(const StepMemory& memory, const ConstView& before, const View& sums,
                     Stream stream) {
  launch_one("optim_take_sums", take_sums_kernel, stream, cycle_of(memory), before_of(before),
             static_cast<math::CycleSums*>(sums.data));
}

void optim_convert_gradient(const ConstView& sums, const ConstView& of, const View& gradient,
                            Stream stream) {
  constexpr const char* kOp = "optim_convert_gradient";
  const std::int64_t n = gradient.numel();
  if (n == 0) return;
  if (gradient.dtype == DType::f64) {
    gpu::launch(kOp, convert_gradient_kernel<double>, grid_for(n), dim3(kBlock), 0, stream,
                sums_of(sums), sums_of(of), gradient.as<double>(), n);
  } else {
    gpu::launch(kOp, convert_gradient_kernel<float>, grid_for(n), dim3(kBlock), 0, stream,
                sums_of(sums), sums_of(of), gradient.as<float>(), n);
  }
}

void optim_add_sums(const ConstView& more, const View& sums, Stream stream) {
  launch_one("optim_add_sums", add_sums_kernel, stream, sums_of(more),
             static_cast<math::CycleSums*>(sums.data));
}

void optim_put_sums(const StepMemory& memory, const ConstView& before, const ConstView& sums,
                    Stream stream) {
  launch_one("optim_put_sums", put_sums_kernel, stream, cycle_of(memory), before_of(before),
             sums_of(sums));
}

}  // namespace firn::kernels::cuda
