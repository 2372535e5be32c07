// Moments pooled over the micro-batches of a cycle, and running statistics, on CUDA devices. Each
// kernel is one block, and the host does not wait for it.
#include "kernels/channel_norm.h"
#include "kernels/cuda/device/element.cuh"
#include "kernels/math/channel_norm.h"

namespace firn::kernels::cuda {
namespace {

/// A vector of any floating dtype.
struct Numbers {
  void* data;
  DType dtype;
  std::int64_t stride;

  explicit Numbers(const View& v) : data(v.data), dtype(v.dtype), stride(v.strides[0]) {}
  explicit Numbers(const ConstView& v)
      : data(const_cast<void*>(v.data)), dtype(v.dtype), stride(v.strides[0]) {}
  __device__ double at(std::int64_t i) const {
    return load_element<double>(data, dtype, i * stride);
  }
  __device__ void set(std::int64_t i, double value) const {
    store_element(value, data, dtype, i * stride);
  }
};

struct Running {
  Numbers mean, var;
  std::int64_t* batches;  // may be null

  Running(const View& m, const View& v, const View& b)
      : mean(m), var(v), batches(b.as<std::int64_t>()) {}
  __device__ std::int64_t before() const { return batches ? *batches : 0; }
  __device__ void run_on(const math::RunningUpdate& update, std::int64_t i, double new_mean,
                         double squares) const {
    mean.set(i, update.mean(mean.at(i), new_mean));
    var.set(i, update.var(var.at(i), squares));
  }
  /// One thread calls it after all have called before().
  __device__ void count() const {
    if (batches) *batches += 1;
  }
};

static __global__ void pool_kernel(Numbers mean, Numbers var, double count, double* means,
                                   double* squares, double* pooled_count, std::int64_t c) {
  const double before = *pooled_count;
  __syncthreads();
  const math::Merge<double> merge(before, count);
  for (std::int64_t i = threadIdx.x; i < c; i += blockDim.x) {
    const auto both = merge({means[i], squares[i]}, {mean.at(i), var.at(i) * count});
    means[i] = both.mean;
    squares[i] = both.squares;
  }
  if (threadIdx.x == 0) *pooled_count = before + count;
}

static __global__ void commit_kernel(double* means, double* squares, double* pooled_count,
                                     double momentum, const math::StepState* state, Running running,
                                     std::int64_t c) {
  const double count = *pooled_count;
  const bool commits = count > 0 && math::commits(state);
  const math::RunningUpdate update(count, momentum, running.before());
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < c; i += blockDim.x) {
    if (commits) running.run_on(update, i, means[i], squares[i]);
    means[i] = 0;
    squares[i] = 0;
  }
  if (threadIdx.x != 0) return;
  *pooled_count = 0;
  if (commits) running.count();
}

static __global__ void update_kernel(Numbers mean, Numbers var, double count, double momentum,
                                     Running running, std::int64_t c) {
  const math::RunningUpdate update(count, momentum, running.before());
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < c; i += blockDim.x)
    running.run_on(update, i, mean.at(i), var.at(i) * count);
  if (threadIdx.x == 0) running.count();
}

}  // namespace

void pool_moments(const ConstView& mean, const ConstView& var, double count, const View& pooled,
                  const View& pooled_count, Stream stream) {
  if (!(count > 0)) return;
  const std::int64_t c = mean.shape[0];
  double* const means = pooled.as<double>();
  gpu::launch("pool_moments", pool_kernel, dim3(1), dim3(kBlock), 0, stream, Numbers(mean),
              Numbers(var), count, means, means + c, pooled_count.as<double>(), c);
}

void commit_moments(const View& pooled, const View& pooled_count, double momentum,
                    const ConstView& state, const View& running_mean, const View& running_var,
                    const View& batches, Stream stream) {
  const std::int64_t c = running_mean.shape[0];
  double* const means = pooled.as<double>();
  gpu::launch("commit_moments", commit_kernel, dim3(1), dim3(kBlock), 0, stream, means, means + c,
              pooled_count.as<double>(), momentum, state.as<math::StepState>(),
              Running(running_mean, running_var, batches), c);
}

void update_moments(const ConstView& mean, const ConstView& var, double count, double momentum,
                    const View& running_mean, const View& running_var, const View& batches,
                    Stream stream) {
  if (!(count > 0)) return;
  gpu::launch("update_moments", update_kernel, dim3(1), dim3(kBlock), 0, stream, Numbers(mean),
              Numbers(var), count, momentum, Running(running_mean, running_var, batches),
              running_mean.shape[0]);
}

}  // namespace firn::kernels::cuda
