// Streams and events in eager and lazy order, pinned and pageable copies, capture and graphs.
#include <thread>

#include "device.h"
#include "kernels.h"

namespace {

constexpr int kCount = 1000;
constexpr auto kBytes = kCount * sizeof(float);

struct TwoStreams {
  TwoStreams() {
    for (auto* s : {&a, &b}) {
      REQUIRE(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking) == cudaSuccess);
    }
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    x = on_device(std::vector<float>(kCount, 1));
    y = on_device(std::vector<float>(kCount, 1));
  }
  ~TwoStreams() {
    cudaEventDestroy(event);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
  }
  TwoStreams(const TwoStreams&) = delete;
  TwoStreams& operator=(const TwoStreams&) = delete;

  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t event = nullptr;
  float *x, *y;
};

struct Pinned {
  Pinned() { REQUIRE(cudaHostAlloc(&p, kBytes, cudaHostAllocMapped) == cudaSuccess); }
  ~Pinned() { cudaFreeHost(p); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  float& operator[](int i) { return static_cast<float*>(p)[i]; }
  void* p = nullptr;
};

}  // namespace

TEST_CASE("a pinned buffer is filled when the host has waited, not before") {
  const Fresh fresh;
  for (const bool lazy : {false, true}) {
    cusim::config().lazy_streams = lazy;
    const TwoStreams s;
    Pinned result;
    result[0] = 0;
    REQUIRE(kernels::axpy(2, s.x, s.y, kCount, s.a) == cudaSuccess);
    REQUIRE(cudaMemcpyAsync(result.p, s.y, kBytes, cudaMemcpyDeviceToHost, s.a) == cudaSuccess);
    CHECK(result[0] == (lazy ? 0.f : 3.f));
    CHECK(cudaStreamQuery(s.a) == (lazy ? cudaErrorNotReady : cudaSuccess));
    REQUIRE(cudaStreamSynchronize(s.a) == cudaSuccess);
    CHECK(result[0] == 3);
  }
}

TEST_CASE("lazy streams expose a missing wait, and none where there is one") {
  int without = 0, with = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (const bool wait : {false, true}) {
      const Fresh fresh;
      cusim::config().lazy_streams = true;
      cusim::config().seed = seed;
      cusim::reset();
      const TwoStreams s;
      REQUIRE(kernels::axpy(2, s.x, s.y, kCount, s.a) == cudaSuccess);
      if (wait) {
        REQUIRE(cudaEventRecord(s.event, s.a) == cudaSuccess);
        REQUIRE(cudaStreamWaitEvent(s.b, s.event, 0) == cudaSuccess);
      }
      REQUIRE(kernels::axpy(1, s.y, s.x, kCount, s.b) == cudaSuccess);
      REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
      (wait ? with : without) += on_host(s.x, 1)[0] != 4;
    }
  }
  CHECK(without > 0);
  CHECK(without < 20);
  CHECK(with == 0);
}

TEST_CASE("pageable memory is staged, so the host may reuse it at once") {
  const Fresh fresh;
  cusim::config().lazy_streams = true;
  const TwoStreams s;
  std::vector<float> values(kCount, 5);
  REQUIRE(cudaMemcpyAsync(s.x, values.data(), kBytes, cudaMemcpyDefault, s.a) == cudaSuccess);
  values.assign(kCount, 6);
  REQUIRE(cudaStreamSynchronize(s.a) == cudaSuccess);
  CHECK(on_host(s.x, 1)[0] == 5);
  CHECK(cudaMemcpyAsync(s.x, values.data(), kBytes, cudaMemcpyDeviceToHost, s.a) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(s.x, s.y, kBytes + 4, cudaMemcpyDefault, s.a) == cudaErrorInvalidValue);
}

TEST_CASE("a kernel writes pinned memory of the host") {
  const Fresh fresh;
  void *host = nullptr, *device = nullptr;
  REQUIRE(cudaHostAlloc(&host, sizeof(int), cudaHostAllocMapped) == cudaSuccess);
  REQUIRE(cudaHostGetDevicePointer(&device, host, 0) == cudaSuccess);
  REQUIRE(kernels::store(static_cast<int*>(device), 42) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(*static_cast<int*>(host) == 42);
  cudaPointerAttributes attributes;
  REQUIRE(cudaPointerGetAttributes(&attributes, host) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeHost);
  CHECK(cudaFreeHost(host) == cudaSuccess);
}

TEST_CASE("the host's waits are counted") {
  const Fresh fresh;
  const TwoStreams s;
  Pinned pinned;
  const std::uint64_t before = cusim::stats().host_waits;
  REQUIRE(kernels::axpy(2, s.x, s.y, kCount, s.a) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(pinned.p, s.y, kBytes, cudaMemcpyDefault, s.a) == cudaSuccess);
  CHECK(cusim::stats().host_waits == before);
  REQUIRE(cudaStreamSynchronize(s.a) == cudaSuccess);
  CHECK(cusim::stats().host_waits == before + 1);
}

// ---- Capture ----

TEST_CASE("a graph replays what was recorded on two streams") {
  for (const bool lazy : {false, true}) {
    const Fresh fresh;
    cusim::config().lazy_streams = lazy;
    const TwoStreams s;
    cudaEvent_t back = nullptr;
    REQUIRE(cudaEventCreateWithFlags(&back, cudaEventDisableTiming) == cudaSuccess);
    REQUIRE(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal) == cudaSuccess);
    REQUIRE(kernels::axpy(1, s.x, s.y, kCount, s.a) == cudaSuccess);
    REQUIRE(cudaEventRecord(s.event, s.a) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(s.b, s.event, 0) == cudaSuccess);
    REQUIRE(kernels::axpy(1, s.x, s.y, kCount, s.b) == cudaSuccess);  // in the other stream
    REQUIRE(cudaMemsetAsync(s.x, 0, 4, s.b) == cudaSuccess);
    REQUIRE(cudaEventRecord(back, s.b) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(s.a, back, 0) == cudaSuccess);
    cudaStreamCaptureStatus status;
    REQUIRE(cudaStreamIsCapturing(s.b, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusActive);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(s.a, &graph) == cudaSuccess);
    REQUIRE(cudaStreamIsCapturing(s.b, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusNone);
    CHECK(on_host(s.y, 1)[0] == 1);  // nothing has run

    std::size_t count = 0;
    REQUIRE(cudaGraphGetNodes(graph, nullptr, &count) == cudaSuccess);
    REQUIRE(count == 3);
    cudaGraphNode_t nodes[3];
    REQUIRE(cudaGraphGetNodes(graph, nodes, &count) == cudaSuccess);
    cudaGraphNodeType type;
    REQUIRE(cudaGraphNodeGetType(nodes[2], &type) == cudaSuccess);
    CHECK(type == cudaGraphNodeTypeMemset);
    CHECK(cusim::describe(graph) ==
          "kernel grid (2,1,1) block (128,1,1)\nkernel grid (2,1,1) block (128,1,1)\n"
          "memset 4 bytes\n");

    cudaGraphExec_t executable = nullptr;
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    for (int i = 0; i < 3; ++i) REQUIRE(cudaGraphLaunch(executable, s.a) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(s.a) == cudaSuccess);
    CHECK(on_host(s.y, 2) == std::vector<float>{3, 7});
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaEventDestroy(back) == cudaSuccess);
  }
}

TEST_CASE("calls that may disturb a capture are refused and end it") {
  const auto refused = [](auto&& call, cudaError_t expected) {
    const Fresh fresh;
    const TwoStreams s;
    REQUIRE(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(call(s) == expected);
    cudaStreamCaptureStatus status;
    REQUIRE(cudaStreamIsCapturing(s.a, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusInvalidated);
    CHECK(kernels::axpy(1, s.x, s.y, kCount, s.a) == cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(s.a, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
    REQUIRE(cudaStreamIsCapturing(s.a, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusNone);
    CHECK(kernels::axpy(1, s.x, s.y, kCount, s.a) == cudaSuccess);
  };
  void* p = nullptr;
  float value = 0;
  refused([&](auto&) { return cudaMalloc(&p, 16); }, cudaErrorStreamCaptureUnsupported);
  refused([](auto& s) { return cudaStreamSynchronize(s.a); }, cudaErrorStreamCaptureUnsupported);
  refused([](auto&) { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported);
  refused([](auto& s) { return cudaStreamQuery(s.a); }, cudaErrorStreamCaptureUnsupported);
  refused([&](auto& s) { return cudaMemcpy(&value, s.x, 4, cudaMemcpyDefault); },
          cudaErrorStreamCaptureUnsupported);
  refused([](auto& s) { return kernels::axpy(1, s.x, s.y, kCount, nullptr); },
          cudaErrorStreamCaptureImplicit);
  refused(
      [](auto& s) {
        cudaEventRecord(s.event, s.b);  // work that is not recorded
        return cudaStreamWaitEvent(s.a, s.event, 0);
      },
      cudaErrorStreamCaptureIsolation);
}

TEST_CASE("a relaxed thread may allocate during a capture") {
  const Fresh fresh;
  const TwoStreams s;
  REQUIRE(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  auto mode = cudaStreamCaptureModeRelaxed;
  REQUIRE(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
  CHECK(mode == cudaStreamCaptureModeGlobal);
  void* p = nullptr;
  CHECK(cudaMalloc(&p, 16) == cudaSuccess);
  REQUIRE(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
  cudaError_t elsewhere = cudaErrorUnknown;
  std::thread([&elsewhere] {  // the capture is this thread's own: others may do what they like
    void* q = nullptr;
    elsewhere = cudaMalloc(&q, 16);
  })
      .join();
  CHECK(elsewhere == cudaSuccess);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(s.a, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("a fork that does not join is refused") {
  const Fresh fresh;
  const TwoStreams s;
  REQUIRE(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal) == cudaSuccess);
  REQUIRE(cudaEventRecord(s.event, s.a) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(s.b, s.event, 0) == cudaSuccess);
  REQUIRE(kernels::axpy(1, s.x, s.y, kCount, s.b) == cudaSuccess);
  CHECK(cudaEventSynchronize(s.event) == cudaErrorCapturedEvent);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(s.a, &graph) == cudaErrorStreamCaptureUnjoined);
  CHECK(graph == nullptr);
}
