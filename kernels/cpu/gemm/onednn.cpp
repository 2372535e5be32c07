#ifdef FIRN_HAS_ONEDNN
#include "kernels/cpu/gemm/onednn.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "firn/error.h"
#include "kernels/cpu/device/reserve.h"
#include "kernels/cpu/device/thread_pool.h"
#include "kernels/cpu/device/thread_state.h"
#include "kernels/cpu/gemm/onednn_api.h"
#include "kernels/settings/isa.h"

// Two functions of OpenMP's run-time library, which oneDNN links. They are declared here because
// clang has no omp.h of its own.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int);
}

namespace firn::kernels::cpu {
namespace {

/// Number of calls of oneDNN in progress. Threads count in different cache lines, as far as there
/// are enough.
struct alignas(64) Calls {
  std::atomic<int> count{0};
};
constinit Calls calls[64];
constinit std::atomic<bool> ended{false};
constinit std::atomic<bool> forking{false};

Calls& calls_of_thread() noexcept {
  static constinit std::atomic<unsigned> next{0};
  int& place = thread_state.onednn_calls;
  if (place < 0) place = static_cast<int>(next.fetch_add(1, std::memory_order_relaxed) % 64);
  return calls[place];
}

/// Limits oneDNN to the instructions that FIRN_CPU_ISA allows. Throws Error if the program used
/// oneDNN before firn did, which is then too late.
bool limit_onednn() {
#if defined(__x86_64__)
  if (!isa_is_forced()) return true;
  const auto most = [] {
    switch (isa()) {
      case Isa::base:
        return dnnl_cpu_isa_sse41;
      case Isa::avx2:
        return dnnl_cpu_isa_avx2;
      case Isa::avx512:
        return dnnl_cpu_isa_avx512_core;
      case Isa::avx512_bf16:
        return dnnl_cpu_isa_avx512_core_bf16;
      default:
        return onednn::kEveryIsa;
    }
  }();
  if (dnnl_set_max_cpu_isa(most) == dnnl_success) return true;
  throw Error("FIRN_CPU_ISA", "comes too late for oneDNN, which this program uses already",
              "run an operation of firn first, or set ONEDNN_MAX_CPU_ISA as well");
#else
  return true;
#endif
}

/// Lets no call begin, and waits for those in progress.
void before_fork() noexcept {
  forking.store(true);
  for (Calls& c : calls)
    while (c.count.load() != 0) std::this_thread::yield();
}
void after_fork() noexcept { forking.store(false); }

/// Runs when the program ends, before oneDNN frees its code.
void end_onednn() {
  ended.store(true);
  using Clock = std::chrono::steady_clock;
  const auto patience = Clock::now() + std::chrono::seconds(2);
  for (Calls& c : calls)
    while (c.count.load() != 0 && Clock::now() < patience)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

bool onednn_ended() noexcept { return ended.load(std::memory_order_relaxed); }

void end_before_onednn() noexcept { std::atexit(end_onednn); }

OneThread::OneThread(bool holds_lock) : saved_(omp_get_max_threads()) {
  static const bool prepared = [] {
    around_fork(before_fork, after_fork);
    return limit_onednn();
  }();
  static_cast<void>(prepared);
  if (saved_ != 1) {
    // The first call in a thread allocates, and GNU's library ends the program if that fails.
    if (!thread_state.has_openmp) {
      const Reserve reserve(kCallReserve);
      omp_set_num_threads(1);
      thread_state.has_openmp = true;
    } else {
      omp_set_num_threads(1);
    }
  }
  // This raises the count before it reads a flag. Code that sets a flag does so before it reads the
  // counts.
  std::atomic<int>& count = calls_of_thread().count;
  count.fetch_add(1);
  while (!holds_lock && forking.load()) {
    count.fetch_sub(1);
    while (forking.load()) std::this_thread::yield();
    count.fetch_add(1);
  }
  usable_ = !ended.load();
  if (!usable_) count.fetch_sub(1);
}

OneThread::~OneThread() {
  if (usable_) calls_of_thread().count.fetch_sub(1, std::memory_order_release);
  if (saved_ != 1) omp_set_num_threads(saved_);
}

}  // namespace firn::kernels::cpu
#endif
