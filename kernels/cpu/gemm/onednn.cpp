#ifdef FIRN_HAS_ONEDNN
#include "kernels/cpu/gemm/onednn.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "kernels/cpu/device/reserve.h"

// Two functions of OpenMP's run-time library, which oneDNN links. They are declared here because
// clang has no omp.h of its own.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int);
}

namespace firn::kernels::cpu {
namespace {

/// Calls of oneDNN in progress. Threads count in different cache lines, as far as there are enough.
struct alignas(64) Calls {
  std::atomic<int> count{0};
};
constinit Calls calls[64];
constinit std::atomic<bool> ended{false};

Calls& calls_of_thread() noexcept {
  static constinit std::atomic<unsigned> next{0};
  thread_local constinit int place = -1;
  if (place < 0) place = static_cast<int>(next.fetch_add(1, std::memory_order_relaxed) % 64);
  return calls[place];
}

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

void end_before_onednn() noexcept {
  static const bool reset =
      pthread_atfork(nullptr, nullptr, [] {
        for (Calls& c : calls) c.count.store(0);  // a child of fork() has none of the other threads
      }) == 0;
  static_cast<void>(reset);
  std::atexit(end_onednn);
}

OneThread::OneThread() : saved_(omp_get_max_threads()) {
  if (saved_ != 1) {
    // The first call in a thread allocates, and GNU's library ends the program if that fails.
    thread_local constinit bool known = false;
    if (!known) {
      const Reserve reserve(kCallReserve);
      omp_set_num_threads(1);
      known = true;
    } else {
      omp_set_num_threads(1);
    }
  }
  // Raises the count before it reads `ended`; end_onednn() sets `ended` before it reads the counts.
  calls_of_thread().count.fetch_add(1);
  usable_ = !ended.load();
  if (!usable_) calls_of_thread().count.fetch_sub(1);
}

OneThread::~OneThread() {
  if (usable_) calls_of_thread().count.fetch_sub(1, std::memory_order_release);
  if (saved_ != 1) omp_set_num_threads(saved_);
}

}  // namespace firn::kernels::cpu
#endif
