// The k-th allocation or call of the runtime fails on request, once, and the rest goes on.
#include "device.h"
#include "kernels.h"

TEST_CASE("every allocation fails once, and nothing leaks") {
  for (int k = 0;; ++k) {
    const Fresh fresh;
    cusim::config().fail_alloc = k;
    void* blocks[4] = {};
    int failed = 0;
    for (auto*& p : blocks) {
      const cudaError_t status = cudaMalloc(&p, 100);
      CHECK((status == cudaSuccess) == (p != nullptr));
      failed += status == cudaErrorMemoryAllocation;
    }
    CHECK(failed == (k < 4 ? 1 : 0));
    for (void* p : blocks) CHECK(cudaFree(p) == cudaSuccess);
    std::size_t free = 0, total = 0;
    REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
    CHECK(free == total);
    if (k == 4) break;
  }
}

TEST_CASE("every call of the runtime fails once, by its place in the program") {
  std::vector<std::string> names;
  const auto program = [](float* x, float* y) {
    cudaError_t first = cudaSuccess;
    const auto note = [&](cudaError_t status) {
      if (first == cudaSuccess) first = status;
    };
    cudaStream_t stream = nullptr;
    note(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    note(kernels::axpy(1, x, y, 64, stream));
    note(cudaMemsetAsync(y, 0, 4, stream));
    note(cudaStreamSynchronize(stream));
    if (stream) note(cudaStreamDestroy(stream));
    return first;
  };
  {
    const Fresh fresh;
    float* const x = on_device(std::vector<float>(64));
    cusim::on_api_call([&](std::uint64_t, const char* name) { names.emplace_back(name); });
    CHECK(program(x, x) == cudaSuccess);
    cusim::on_api_call(nullptr);
  }
  CHECK(names == std::vector<std::string>{"cudaStreamCreateWithPriority", "cudaLaunchKernel",
                                          "cudaMemsetAsync", "cudaStreamSynchronize",
                                          "cudaStreamDestroy"});
  for (std::size_t k = 0; k < names.size(); ++k) {
    INFO(names[k]);
    const Fresh fresh;
    float* const x = on_device(std::vector<float>(64));
    cusim::config().fail_api = std::int64_t(cusim::stats().api_calls + k);
    CHECK(program(x, x) != cudaSuccess);
    cusim::config().fail_api = -1;
    CHECK(program(x, x) == cudaSuccess);  // the error was of that call alone
  }
}

TEST_CASE("memory runs out where the settings say") {
  const Fresh fresh;
  cusim::config().device_bytes = 1000;
  void *first = nullptr, *second = nullptr;
  CHECK(cudaMalloc(&first, 600) == cudaSuccess);
  CHECK(cudaMalloc(&second, 600) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaFree(first) == cudaSuccess);
  CHECK(cudaMalloc(&second, 600) == cudaSuccess);
  CHECK(second != first);
  CHECK(cudaFree(first) == cudaErrorInvalidValue);
}

TEST_CASE("as many devices as the settings say") {
  const Fresh fresh;
  cusim::config().devices = 2;
  int count = 0;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 2);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  CHECK(std::string(cudaGetErrorName(cudaErrorInvalidDevice)) == "cudaErrorInvalidDevice");
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  float* const x = on_device(std::vector<float>(64));
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK(kernels::axpy(1, x, x, 64, stream) == cudaErrorInvalidResourceHandle);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(kernels::axpy(1, x, x, 64, stream) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  cusim::config().devices = 0;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
}
