// Measures what the machine can do without firn: copying, filling, and the time of a launch in a
// chain of kernels that do nothing. Every lower bound of the other works consists of these.
#include "bench.h"
#include "kernels/cuda/device/gpu.h"

namespace bench {
namespace {

using firn::gpu::check_cuda;

__global__ void empty_kernel() {}

constexpr std::size_t kPer = sizeof(uint4);

/// Issues four loads of 16 bytes a thread before the first is stored. `count` is a multiple of four
/// times the number of threads.
__global__ void copy_kernel(const uint4* from, uint4* to, std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += 4 * stride) {
    const uint4 a = from[i], b = from[i + stride], c = from[i + 2 * stride],
                d = from[i + 3 * stride];
    to[i] = a;
    to[i + stride] = b;
    to[i + 2 * stride] = c;
    to[i + 3 * stride] = d;
  }
}

/// A plain CUDA graph, recorded from a stream.
class RawGraph {
 public:
  template <class Fn>
  RawGraph(cudaStream_t stream, Fn&& record) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "ceilings",
               "cudaStreamBeginCapture");
    record();
    check_cuda(cudaStreamEndCapture(stream, &graph_), "ceilings", "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&exec_, graph_, 0), "ceilings", "cudaGraphInstantiate");
  }
  ~RawGraph() {
    cudaGraphExecDestroy(exec_);
    cudaGraphDestroy(graph_);
  }
  RawGraph(const RawGraph&) = delete;
  RawGraph& operator=(const RawGraph&) = delete;
  void launch(cudaStream_t stream) {
    check_cuda(cudaGraphLaunch(exec_, stream), "ceilings", "cudaGraphLaunch");
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

void chains(firn::Stream stream) {
  const cudaStream_t s = firn::gpu::native(stream);
  const auto empty = [&] {
    firn::gpu::launch("ceilings", empty_kernel, dim3(1), dim3(32), 0, stream);
  };
  report({.work = "launch", .mode = "eager", .dtype = "-", .values = device_us(empty), .nodes = 1});
  report({.work = "launch_host",
          .mode = "eager",
          .dtype = "-",
          .values = host_ns(empty),
          .unit = "ns",
          .nodes = 1});
  for (const int length : {1, 10, 100, 1000}) {
    const int n = sized(length, std::min(length, 10));
    RawGraph graph(s, [&] {
      for (int i = 0; i < n; ++i) empty();
    });
    report({.work = "chain_" + std::to_string(length),
            .mode = "graph",
            .dtype = "-",
            .values = device_us([&] { graph.launch(s); }),
            .nodes = n});
    if (length != 10) continue;
    report({.work = "graph_launch_host",
            .mode = "graph",
            .dtype = "-",
            .values = host_ns([&] { graph.launch(s); }),
            .unit = "ns",
            .nodes = n});
  }
}

#ifndef FIRN_HAS_CUSIM
/// Runs two chains of 50 kernels that are not ordered with respect to each other.
void two_branches(firn::Stream stream) {
  const cudaStream_t s = firn::gpu::native(stream);
  cudaStream_t side = nullptr;
  cudaEvent_t fork = nullptr, join = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), "ceilings",
             "cudaStreamCreate");
  check_cuda(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "ceilings",
             "cudaEventCreate");
  check_cuda(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), "ceilings",
             "cudaEventCreate");
  {
    RawGraph graph(s, [&] {
      check_cuda(cudaEventRecord(fork, s), "ceilings", "cudaEventRecord");
      check_cuda(cudaStreamWaitEvent(side, fork, 0), "ceilings", "cudaStreamWaitEvent");
      for (int i = 0; i < 50; ++i) {
        firn::gpu::launch("ceilings", empty_kernel, dim3(1), dim3(32), 0, stream);
        firn::gpu::launch("ceilings", empty_kernel, dim3(1), dim3(32), 0,
                          firn::Stream{stream.device, side});
      }
      check_cuda(cudaEventRecord(join, side), "ceilings", "cudaEventRecord");
      check_cuda(cudaStreamWaitEvent(s, join, 0), "ceilings", "cudaStreamWaitEvent");
    });
    report({.work = "two_branches_100",
            .mode = "graph",
            .dtype = "-",
            .values = device_us([&] { graph.launch(s); }),
            .nodes = 100});
  }
  cudaEventDestroy(join);
  cudaEventDestroy(fork);
  cudaStreamDestroy(side);
}

/// Waits for the previous launch, as programmatic dependent launch requires.
__global__ void dependent_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// Runs a chain of 100 in which each kernel may be prepared while the one before it still runs.
void dependent_launches(firn::Stream stream) {
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream.device.index),
             "ceilings", "cudaDeviceGetAttribute");
  if (major < 9) return;
  const cudaStream_t s = firn::gpu::native(stream);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  config.stream = s;
  config.attrs = &attribute;
  config.numAttrs = 1;
  RawGraph graph(s, [&] {
    for (int i = 0; i < 100; ++i)
      check_cuda(cudaLaunchKernelEx(&config, dependent_kernel), "ceilings", "cudaLaunchKernelEx");
  });
  report({.work = "pdl_100",
          .mode = "graph",
          .dtype = "-",
          .values = device_us([&] { graph.launch(s); }),
          .nodes = 100});
}
#endif

void bandwidth(firn::Stream stream) {
  const cudaStream_t s = firn::gpu::native(stream);
  const std::size_t bytes = sized<std::size_t>(std::size_t{4} << 30, 1 << 16);
  const firn::Tensor from = random({static_cast<std::int64_t>(bytes / 4)}, firn::f32);
  const firn::Tensor to = firn::empty(from.shape(), firn::f32, kDevice);
  const void* source = from.view().data;
  void* target = to.mutable_view().data;
  const double both = 2 * static_cast<double>(bytes);
  report({.work = "copy",
          .mode = "memcpy",
          .dtype = "-",
          .values = device_us([&] {
            check_cuda(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, s),
                       "ceilings", "cudaMemcpyAsync");
          }),
          .nodes = 1,
          .bytes = both});
  const auto count = static_cast<std::int64_t>(bytes / kPer);
  report({.work = "copy",
          .mode = "kernel",
          .dtype = "-",
          .values = device_us([&] {
            firn::gpu::launch("ceilings", copy_kernel, dim3(sized(1024u, 4u)),
                              dim3(sized(256u, 32u)), 0, stream, static_cast<const uint4*>(source),
                              static_cast<uint4*>(target), count);
          }),
          .nodes = 1,
          .bytes = both});
  report({.work = "fill",
          .mode = "memset",
          .dtype = "-",
          .values = device_us([&] {
            check_cuda(cudaMemsetAsync(target, 0, bytes, s), "ceilings", "cudaMemsetAsync");
          }),
          .nodes = 1,
          .bytes = static_cast<double>(bytes)});
  report({.work = "read_sum",
          .mode = "firn",
          .dtype = "f32",
          .values = device_us([&] {
            const firn::NoGrad guard;
            firn::Tensor sum = firn::sum(from);
          }),
          .bytes = static_cast<double>(bytes)});
}

}  // namespace

void ceilings() {
  const firn::Stream stream = firn::current_stream(kDevice);
  chains(stream);
#ifndef FIRN_HAS_CUSIM
  two_branches(stream);
  dependent_launches(stream);
#endif
  bandwidth(stream);
}

}  // namespace bench
