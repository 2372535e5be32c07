// Warp operations, barriers and whole kernels compute what a GPU computes, in every order of
// threads.
#include <cmath>

#include "device.h"
#include "kernels.h"

namespace {

const auto kOrders = {cusim::Order::sequential, cusim::Order::reversed, cusim::Order::random};

void use(cusim::Order order) { cusim::config().threads = cusim::config().blocks = order; }

std::vector<float> ramp(int n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = float((i * 37) % 19) / 8.f;
  return values;
}

}  // namespace

TEST_CASE("warp operations") {
  for (auto order : kOrders) {
    const Fresh fresh;
    use(order);
    auto* const out = on_device(std::vector<std::uint32_t>(64 * 8));
    REQUIRE(kernels::warp_operations(out) == cudaSuccess);
    const auto r = on_host(out, 64 * 8);
    for (unsigned i = 0; i < 64; ++i) {
      INFO("thread " << i);
      const std::uint32_t* const mine = r.data() + std::size_t{8} * i;
      const unsigned lane = i % 32, first = i - lane;
      CHECK(mine[0] == first + 5);
      CHECK(mine[1] == (lane == 0 ? i : i - 1));
      CHECK(mine[2] == (lane == 31 ? i : i + 1));
      CHECK(mine[3] == (i ^ 1u));
      CHECK(mine[4] == 0xaaaaaaaau);
      CHECK(mine[5] == (i < 32 ? 3u : 2u));
      CHECK(mine[6] == 0x11111111u << (i % 4));
      CHECK(mine[7] == (i ^ (lane < 16 ? 2u : 4u)));
    }
  }
}

TEST_CASE("votes of a block") {
  const Fresh fresh;
  auto* const out = on_device(std::vector<int>(3));
  REQUIRE(kernels::block_votes(out, 10) == cudaSuccess);
  CHECK(on_host(out, 3) == std::vector<int>{10, 0, 1});
  REQUIRE(kernels::block_votes(out, 96) == cudaSuccess);
  CHECK(on_host(out, 3) == std::vector<int>{96, 1, 1});
  REQUIRE(kernels::block_votes(out, 0) == cudaSuccess);
  CHECK(on_host(out, 3) == std::vector<int>{0, 0, 0});
}

TEST_CASE("kernels with barriers, shuffles and shared memory") {
  for (auto order : kOrders) {
    const Fresh fresh;
    use(order);
    const auto x = ramp(1003);
    float* const y = on_device(ramp(1003));
    REQUIRE(kernels::axpy(2, on_device(x), y, 1003) == cudaSuccess);
    const auto axpy = on_host(y, 1003);
    for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(axpy[i] == 3 * x[i]);

    const int n = 40;
    const auto a = ramp(n * n);
    float* const c = on_device(std::vector<float>(n * n));
    REQUIRE(kernels::matmul(on_device(a), on_device(a), c, n) == cudaSuccess);
    const auto product = on_host(c, n * n);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        float sum = 0;
        for (int k = 0; k < n; ++k) sum += a[std::size_t(i * n + k)] * a[std::size_t(k * n + j)];
        REQUIRE(product[std::size_t(i * n + j)] == sum);
      }
    }

    const int rows = 3, columns = 77;
    float* const s = on_device(std::vector<float>(rows * columns));
    REQUIRE(kernels::softmax(on_device(ramp(rows * columns)), s, rows, columns) == cudaSuccess);
    const auto softmax = on_host(s, rows * columns);
    for (int row = 0; row < rows; ++row) {
      float sum = 0;
      for (int j = 0; j < columns; ++j) sum += softmax[std::size_t(row * columns + j)];
      REQUIRE(std::abs(sum - 1) < 1e-5f);
    }
  }
}

TEST_CASE("bad launches are refused") {
  const Fresh fresh;
  float* const y = on_device(std::vector<float>(4));
  const auto kernel = [](float* p, int n) { p[n] = 0; };
  void (*const function)(float*, int) = kernel;
  CHECK(cusim::launch(function, 1, 1025, 0, nullptr, y, 0) == cudaErrorInvalidConfiguration);
  CHECK(cusim::launch(function, 0, 32, 0, nullptr, y, 0) == cudaErrorInvalidConfiguration);
  CHECK(cusim::launch(function, dim3(1, 70000), 32, 0, nullptr, y, 0) ==
        cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cusim::launch(function, 1, 32, 49 << 10, nullptr, y, 0) == cudaErrorInvalidValue);
  REQUIRE(cudaFuncSetAttribute(reinterpret_cast<const void*>(function),
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               64 << 10) == cudaSuccess);
  CHECK(cusim::launch(function, 1, 32, 49 << 10, nullptr, y, 0) == cudaSuccess);
  struct Big {
    char bytes[5000];
  };
  void (*const big)(Big) = [](Big) {};
  CHECK(cusim::launch(big, 1, 1, 0, nullptr, Big{}) == cudaErrorInvalidValue);
}

TEST_CASE("a failed kernel's error stays, and says where") {
  const Fresh fresh;
  float* const y = on_device(std::vector<float>(32));
  kernels::absent_lanes(y);
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  CHECK_THAT(cusim::last_report(), contains("kernels.cu"));
  void* p = nullptr;
  CHECK(cudaMalloc(&p, 16) == cudaErrorLaunchFailure);
  CHECK(cusim::stats().errors == 1);
  cusim::reset();
  CHECK(cudaMalloc(&p, 16) == cudaSuccess);
}
