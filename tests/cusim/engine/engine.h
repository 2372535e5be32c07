// The engine: runs the threads of one block after the other, each as a fiber. Only the files of the
// simulator itself include this header.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cusim.h"
#include "engine/fiber.h"

namespace cusim {

// ---- One block's threads and warps ----

enum class State : std::uint8_t { unstarted, ready, running, at_barrier, at_warp_op, done };

struct Thread {
  uint3 index;
  std::uint32_t linear;  ///< in its block
  std::uint16_t warp;
  std::uint8_t lane;
  State state;
  Location where;        ///< of the collective it waits in
  Fiber* fiber;          ///< while it waits
  std::uint64_t result;  ///< of the collective
  int predicate;         ///< its part in a barrier
};

/// Lanes that gather for one warp operation. The last to come computes the results of all.
struct Rendezvous {
  unsigned mask = 0;  ///< who is called for; 0: free
  unsigned arrived = 0;
  WarpOp op{};
  int width = 32;
  std::uint64_t bits[32];
  int argument[32];
};

struct Warp {
  unsigned alive = 0;
  std::uint32_t first = 0;  ///< thread of lane 0
  int waiting = 0;          ///< rendezvous in use
  Rendezvous rendezvous[4];
};

/// Threads that can run: those that waited and may go on, and those that have not begun.
class Queue {
 public:
  void clear() { items_.clear(), head_ = 0; }
  bool empty() const { return head_ == items_.size(); }
  std::size_t size() const { return items_.size() - head_; }
  void push(std::uint32_t thread);
  std::uint32_t pop_front() { return items_[head_++]; }
  /// Takes the i-th of those that wait.
  std::uint32_t pop(std::size_t i);

 private:
  std::vector<std::uint32_t> items_;
  std::size_t head_ = 0;
};

struct Engine {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Queue ready, unstarted;
  Thread* current = nullptr;
  std::uint32_t alive = 0;       ///< threads of the block that have not ended
  std::uint32_t at_barrier = 0;  ///< those of them that wait in the barrier
  BarrierOp barrier_op{};

  void (*thread_main)(void*) = nullptr;
  void* parameters = nullptr;
  std::size_t parameter_bytes = 0;
  std::size_t shared_bytes = 0;

  bool in_kernel = false;  ///< a block is being run
  bool failed = false;     ///< the kernel was stopped by a report
  std::string report;
  const void* report_pc = nullptr;  ///< the instruction in the kernel, where it is known
  int device = 0;                   ///< that the kernel runs on
  Stats stats{};
  std::uint64_t random_state = 1;
};
/// Whether this thread of the host is in a kernel's code, and not in the simulator's.
extern constinit thread_local bool kernel_code;
extern Engine& engine;  // never destroyed: see streams.cpp

/// Marks the simulator's own code that a kernel calls, so that check mode leaves its loads and
/// stores alone.
class EngineCode {
 public:
  EngineCode() : was_(kernel_code) { kernel_code = false; }
  ~EngineCode() { kernel_code = was_; }
  EngineCode(const EngineCode&) = delete;
  EngineCode& operator=(const EngineCode&) = delete;

 private:
  bool was_;
};

// ---- engine.cpp ----

std::uint64_t random_number();
void seed_random(std::uint64_t seed);
/// The last part of a path.
const char* base_name(const char* path);
/// Notes what is wrong and stops the kernel: does not come back when called from inside one.
void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

void make_ready(Thread& thread);
/// Gives way to another thread until somebody makes this one ready.
void wait_here();
/// Runs all blocks; false: stopped by a report.
bool run_kernel(const KernelCall& call);

// ---- warp.cpp ----

/// The running thread ends: what others wait for may be complete now.
void complete_without(Thread& ended);

}  // namespace cusim
