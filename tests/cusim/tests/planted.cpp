// Fifteen faults, planted in kernels and in the host's code, and what each build of the simulator
// says about them. Each runs in a process of its own, in three orders of the threads, and is
// noticed if one of them is. README.md shows the same table.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "device.h"
#include "engine/fiber.h"
#include "kernels.h"

namespace {

enum Mode { plain, sanitized, checked };
#if defined(CUSIM_CHECK)
constexpr Mode kMode = checked;
#elif defined(CUSIM_ADDRESS_SANITIZER)
constexpr Mode kMode = sanitized;
#else
constexpr Mode kMode = plain;
#endif

constexpr int kRight = 0, kWrong = 41;  // exit statuses of the process that has the fault

/// How a fault shows, from worst to best.
enum Outcome { nothing, wrong_result, reported };

struct Buffers {
  float *x, *y, *out;
  std::vector<float> host = std::vector<float>(256);
};
constexpr int kCount = 256;

struct Fault {
  const char* name;
  Outcome expected[3];                ///< plain, sanitized, checked
  std::function<bool(Buffers&)> run;  ///< whether the result is right
};

/// Memory without Catch2's macros, for the process that is to die.
float* device_copy(const std::vector<float>& values) {
  void* p = nullptr;
  if (cudaMalloc(&p, values.size() * sizeof(float)) != cudaSuccess) std::abort();
  cudaMemcpy(p, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice);
  return static_cast<float*>(p);
}
float first_of(const float* p, int i = 0) {
  float value = 0;
  cudaMemcpy(&value, p + i, sizeof value, cudaMemcpyDeviceToHost);
  return value;
}

bool wrong_product() {
  const int n = 48;
  std::vector<float> a(n * n), b(n * n);
  for (int i = 0; i < n * n; ++i) a[i] = float(i % 7), b[i] = float(i % 5);
  float* const c = device_copy(std::vector<float>(n * n));
  kernels::missing_second_barrier(device_copy(a), device_copy(b), c, n);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      if (first_of(c, i * n + j) != sum) return true;
    }
  }
  return false;
}

const float kSum = [] {
  float sum = 0;
  for (int i = 0; i < kCount; ++i) sum += float(i % 7);
  return sum;
}();

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      {"write past the end",
       {nothing, reported, reported},
       [](Buffers& b) { return kernels::write_past_end(b.y, kCount), true; }},
      {"float4 read past the end",
       {nothing, reported, reported},
       [](Buffers& b) {
         return kernels::vector_read_past_end(device_copy(std::vector<float>(253, 1)), b.y, 253),
                true;
       }},
      {"use after free",
       {nothing, reported, reported},
       [](Buffers& b) {
         cudaFree(b.x);
         return kernels::axpy(1, b.x, b.y, kCount), true;
       }},
      {"missing barrier in a sum",
       {wrong_result, wrong_result, reported},
       [](Buffers& b) {
         kernels::missing_barrier(b.x, b.out, kCount);
         return first_of(b.out) == kSum;
       }},
      {"missing second barrier in a matrix product",
       {wrong_result, wrong_result, reported},
       [](Buffers&) { return !wrong_product(); }},
      {"divergent barrier",
       {reported, reported, reported},
       [](Buffers& b) { return kernels::divergent_barrier(b.x), true; }},
      {"exit before a barrier",
       {reported, reported, reported},
       [](Buffers& b) { return kernels::early_exit(b.x, 200), true; }},
      {"shuffle that names absent lanes",
       {reported, reported, reported},
       [](Buffers& b) { return kernels::absent_lanes(b.y), true; }},
      {"blocks that add without an atomic",
       {nothing, nothing, reported},
       [](Buffers& b) { return kernels::race_of_blocks(b.x, b.out, kCount), true; }},
      {"missing __syncwarp",
       {wrong_result, wrong_result, reported},
       [](Buffers& b) {
         kernels::missing_syncwarp(b.y);
         for (int i = 0; i < 32; ++i) {
           if (first_of(b.y, i) != float(31 - i)) return false;
         }
         return true;
       }},
      {"unwritten shared memory",
       {wrong_result, wrong_result, reported},
       [](Buffers& b) {
         kernels::unwritten_shared(b.y);
         return first_of(b.y, 63) == 1;
       }},
      {"overrun of a shared array",
       {nothing, reported, reported},
       [](Buffers& b) { return kernels::shared_overrun(b.y), true; }},
      {"misaligned float4",
       {nothing, reported, reported},
       [](Buffers& b) { return kernels::misaligned_vector(b.x, b.y), true; }},
      {"host pointer in a kernel",
       {nothing, nothing, reported},
       [](Buffers& b) { return kernels::axpy(1, b.host.data(), b.y, kCount), true; }},
      {"device pointer on the host",
       {reported, reported, reported},
       [](Buffers& b) {
         const volatile float* const p = b.x;
         return p[0] == 0;
       }},
  };
  return all;
}

/// Runs the fault in a process of its own. What it writes to stderr is not shown.
Outcome outcome_of(const Fault& fault, cusim::Order order) {
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!std::freopen("/dev/null", "w", stderr)) _exit(99);
    for (int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGILL}) {
      std::signal(signal, SIG_DFL);  // not Catch2's report
    }
    cusim::config().threads = cusim::config().blocks = order;
    Buffers b;
    std::vector<float> x(kCount), minus_one(kCount, -1);
    for (int i = 0; i < kCount; ++i) x[i] = float(i % 7);
    b.x = device_copy(x);
    b.y = device_copy(minus_one);
    b.out = device_copy({0});
    const bool right = fault.run(b);
    _exit(*cusim::last_report() ? 1 : right ? kRight : kWrong);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) return reported;
  if (WEXITSTATUS(status) == kRight) return nothing;
  return WEXITSTATUS(status) == kWrong ? wrong_result : reported;  // a sanitizer exits with 1
}

}  // namespace

TEST_CASE("planted faults show as the table says", "[planted]") {
  const Fresh fresh;
  int noticed = 0;
  for (const Fault& fault : faults()) {
    Outcome best = nothing;
    for (const auto order :
         {cusim::Order::sequential, cusim::Order::reversed, cusim::Order::random}) {
      best = std::max(best, outcome_of(fault, order));
    }
    INFO(fault.name);
    CHECK(best == fault.expected[kMode]);
    noticed += best == reported;
    const char* const words[] = {"not noticed", "wrong result", "reported"};
    std::printf("%-45s %s\n", fault.name, words[best]);
  }
  std::printf("%d of %zu reported\n", noticed, faults().size());
  if (kMode == checked) CHECK(noticed == 15);
}
