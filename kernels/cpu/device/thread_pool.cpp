#include "kernels/cpu/device/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "kernels/cpu/device/thread_state.h"

namespace firn::kernels::cpu {
namespace {

void pause() noexcept {
#if defined(__SSE2__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#elif defined(__riscv)
  asm volatile(".insn i 0x0F, 0, x0, x0, 0x010");  // pause, which older assemblers do not know
#elif defined(__powerpc64__)
  asm volatile("or 27,27,27");  // yield
#else
  asm volatile("");  // a scheduler's yield would cost more than the wait
#endif
}

// Number of spins that take some 50 microseconds: the gap between two kernels of a small model.
constexpr int kSpins = 1500;

/// The chunks of one thread and the number of those that have begun, on a cache line of its own.
struct alignas(64) Share {
  std::atomic<std::int64_t> begun{0};
  std::int64_t first = 0, count = 0;
};

/// If the system refuses a thread, the pool tries again after this many pieces of work.
constexpr int kPatience = 4096;

class Pool {
 public:
  void run(const Work& work, int threads) {
    if (forking_.load(std::memory_order_relaxed)) return alone(work);
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return alone(work);
    threads = at_hand(threads);
    if (threads == 1) return alone(work);
    work_ = work;
    threads_ = threads;
    for (int t = 0; t < threads; ++t) {
      Share& share = shares_[t];
      share.begun.store(0, std::memory_order_relaxed);
      share.first = work.chunks * t / threads;
      share.count = work.chunks * (t + 1) / threads - share.first;
    }
    open_.store(threads - 1);
    round_.fetch_add(1);
    if (sleepers_.load() > 0) round_.notify_all();
    drain(0);
    // No worker may enter from here on; run() waits for those inside. A worker raises busy_ before
    // it reads open_, and run() clears open_ before it reads busy_.
    open_.store(0);
    for (int spins = 0;; ++spins) {
      const int busy = busy_.load();
      if (busy == 0) return;
      if (spins < kSpins) {
        pause();
      } else {
        busy_.wait(busy);
      }
    }
  }

  // fork() waits until no work is running here. The child has no workers; its pool starts anew but
  // keeps its memory.
  void before_fork() noexcept {
    forking_.store(true);  // else threads that compute all the time would never let fork() lock
    mutex_.lock();
    if (const auto before = before_.load()) before();
  }
  void after_fork_in_parent() noexcept {
    if (const auto after = after_.load()) after();
    forking_.store(false);
    mutex_.unlock();
  }
  void after_fork_in_child() noexcept {
    workers_ = 0;
    patience_ = 0;
    open_.store(0);
    busy_.store(0);
    sleepers_.store(0);
    after_fork_in_parent();
  }

  void around_fork(void (*before)() noexcept, void (*after)() noexcept) noexcept {
    after_.store(after);
    before_.store(before);
  }

 private:
  /// Creates missing threads, and returns the number of threads, including the caller.
  int at_hand(int threads) noexcept {
    if (workers_ >= threads - 1) return threads;
    if (patience_ > 0) {
      --patience_;
      return workers_ + 1;
    }
    try {
      while (static_cast<int>(shares_.size()) < threads) shares_.emplace_back();
      for (; workers_ < threads - 1; ++workers_)
        std::thread(&Pool::worker, this, workers_).detach();
    } catch (const std::exception&) {  // the system has no more threads, or no memory for them
      patience_ = kPatience;
    }
    return workers_ + 1;
  }

  static void call(const Work& work, std::int64_t first, std::int64_t count, std::int64_t i,
                   int thread) {
    work.call(work.context, first + (work.order == Order::forward ? i : count - 1 - i), thread);
  }

  static void alone(const Work& work) {
    thread_state.in_pool = true;
    for (std::int64_t i = 0; i < work.chunks; ++i) call(work, 0, work.chunks, i, 0);
    thread_state.in_pool = false;
  }

  /// Runs the thread's own share, then the rest of the others'.
  void drain(int own) {
    thread_state.in_pool = true;
    for (int t = 0; t < threads_; ++t) {
      Share& share = shares_[(own + t) % threads_];
      for (;;) {
        const std::int64_t i = share.begun.fetch_add(1, std::memory_order_relaxed);
        if (i >= share.count) break;
        call(work_, share.first, share.count, i, own);
      }
    }
    thread_state.in_pool = false;
  }

  [[noreturn]] void worker(int index) {
    std::uint32_t seen = round_.load() - 1;  // its first round may be open
    for (;;) {
      for (int spins = 0; round_.load() == seen; ++spins) {
        if (spins < kSpins) {
          pause();
          continue;
        }
        sleepers_.fetch_add(1);
        round_.wait(seen);
        sleepers_.fetch_sub(1);
      }
      seen = round_.load();
      busy_.fetch_add(1);
      if (open_.load() > index) drain(index + 1);
      if (busy_.fetch_sub(1) == 1) busy_.notify_all();
    }
  }

  std::mutex mutex_;  // one piece of work at a time
  int workers_ = 0;   // threads created so far
  int patience_ = 0;  // pieces of work before the next try to create threads
  Work work_{};
  int threads_ = 0;
  std::deque<Share> shares_;  // one for each thread
  std::atomic<std::uint32_t> round_{1};
  std::atomic<int> open_{0};  // workers with a smaller index may take part
  std::atomic<int> busy_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> forking_{false};
  std::atomic<void (*)() noexcept> before_{nullptr}, after_{nullptr};  // handlers of around_fork()
};

// The pool is never destroyed: its threads may outlive main().
Pool& pool() {
  static Pool& all = []() -> Pool& {
    auto made = std::make_unique<Pool>();
    // The handlers are registered after the allocator's and so called before them: work that runs
    // here takes the allocator's lock. Registration comes last: if memory ran out after it, the
    // next try would register the pool again.
    if (pthread_atfork([] { pool().before_fork(); }, [] { pool().after_fork_in_parent(); },
                       [] { pool().after_fork_in_child(); }) != 0)
      throw std::bad_alloc();
    return *made.release();
  }();
  return all;
}

}  // namespace

bool inside_work() noexcept { return thread_state.in_pool; }

InsideWork::InsideWork() noexcept : before_(thread_state.in_pool) { thread_state.in_pool = true; }
InsideWork::~InsideWork() { thread_state.in_pool = before_; }

void around_fork(void (*before)() noexcept, void (*after)() noexcept) {
  pool().around_fork(before, after);
}

void run_on_threads(const Work& work, int threads) { pool().run(work, threads); }

}  // namespace firn::kernels::cpu
