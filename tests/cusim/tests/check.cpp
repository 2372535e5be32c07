// Check mode: right kernels give no report, and the order that fences and atomics make between
// blocks is understood. In other builds there is nothing to test here.
#include "device.h"
#include "kernels.h"

#ifdef CUSIM_CHECK

namespace {

/// The report on the sum that is finished by the last block, "" if there is none.
std::string report_on(kernels::LastBlock parts) {
  const Fresh fresh;
  const int n = 2000, blocks = 8;
  float* const x = on_device(std::vector<float>(n, 1));
  float* const partial = on_device(std::vector<float>(2 * blocks));
  float* const out = on_device(std::vector<float>{0});
  auto* const ticket = on_device(std::vector<unsigned>{0});
  if (kernels::sum_last_block(x, partial, ticket, out, n, blocks, parts) == cudaSuccess) {
    CHECK(on_host(out, 1)[0] == n);
    CHECK(kernels::sum_last_block(x, partial, ticket, out, n, blocks, parts) == cudaSuccess);
  }
  return cusim::last_report();
}

}  // namespace

TEST_CASE("a last block sees what the others wrote, if fences and barriers say so") {
  CHECK(report_on({}) == "");
  CHECK_THAT(report_on({.fence_before = false}), contains("data race, read after write"));
  CHECK_THAT(report_on({.barrier = false}), contains("data race, read after write"));
  CHECK_THAT(report_on({.fence_after = false}), contains("data race, read after write"));
}

TEST_CASE("reports name the kernel, the line and the other thread") {
  const Fresh fresh;
  float* const x = on_device(std::vector<float>(64));
  float* const out = on_device(std::vector<float>{0});
  CHECK(kernels::race_of_blocks(x, out, 64) == cudaErrorLaunchFailure);
  CHECK_THAT(cusim::last_report(), contains("data race, read after write"));
  CHECK_THAT(cusim::last_report(), contains("thread 0 of another block"));
  CHECK_THAT(cusim::last_report(), contains("race_of_blocks_kernel"));
  CHECK_THAT(cusim::last_report(), contains("kernels.cu:"));
}

TEST_CASE("device memory that nothing has written") {
  const Fresh fresh;
  void* x = nullptr;
  REQUIRE(cudaMalloc(&x, 64 * sizeof(float)) == cudaSuccess);
  float* const y = on_device(std::vector<float>(64));
  CHECK(kernels::unwritten_device(static_cast<float*>(x), y) == cudaErrorLaunchFailure);
  CHECK_THAT(cusim::last_report(), contains("nothing has written"));
  cusim::reset();
  REQUIRE(cudaMalloc(&x, 64 * sizeof(float)) == cudaSuccess);
  REQUIRE(cudaMemset(x, 0xff, 64 * sizeof(float)) == cudaSuccess);  // written, though with ones
  CHECK(kernels::unwritten_device(static_cast<float*>(x), on_device(std::vector<float>(64))) ==
        cudaSuccess);
}

#endif
