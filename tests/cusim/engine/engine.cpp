// The scheduler: which thread of which block runs next.
#include "engine/engine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>

#include "check/check.h"
#include "memory.h"
#include "symbols.h"

#ifdef CUSIM_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

// Check mode knows the built-in variables by their section.
#define CUSIM_BUILTIN __attribute__((section("cusim_builtin")))
CUSIM_BUILTIN uint3 threadIdx{}, blockIdx{};
CUSIM_BUILTIN dim3 blockDim{}, gridDim{};

extern "C" {
extern char __start_cusim_shared[] __attribute__((weak));
extern char __stop_cusim_shared[] __attribute__((weak));
}

namespace cusim {

Engine& engine = *new Engine;
constinit thread_local bool kernel_code = false;

Stats& stats() { return engine.stats; }
const char* last_report() { return engine.report.c_str(); }

// ---- Small things ----

std::uint64_t random_number() {  // xorshift64 (Marsaglia 2003)
  std::uint64_t& x = engine.random_state;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}
void seed_random(std::uint64_t seed) {
  engine.random_state = (seed + 1) * 0x9e3779b97f4a7c15ull;
  if (engine.random_state == 0) engine.random_state = 1;
  for (int i = 0; i < 4; ++i) random_number();  // small seeds give like numbers at first
}

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash ? slash + 1 : path;
}

void Queue::push(std::uint32_t thread) {
  if (head_ > 0 && items_.size() == items_.capacity()) {
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }
  items_.push_back(thread);
}
std::uint32_t Queue::pop(std::size_t i) {
  std::swap(items_[head_], items_[head_ + i]);
  return items_[head_++];
}

void fail(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  char place[128];
  std::snprintf(place, sizeof place, "cusim: block (%u,%u,%u) thread (%u,%u,%u): ", blockIdx.x,
                blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  kernel_code = false;
  if (!engine.failed) engine.report = std::string(place) + text;
  engine.failed = true;
  if (engine.in_kernel) switch_to(&host_fiber);  // never to come back
}

// ---- The block's dynamic shared memory ----

namespace {

constexpr std::size_t kSharedLimit = std::size_t{228} << 10;  // as on an H100

char* shared_memory() {
  static char* const memory =
      static_cast<char*>(mmap(nullptr, kSharedLimit, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return memory;
}

/// Shared memory starts as NaN in every block.
void spoil_shared_memory() {
  if (engine.shared_bytes) std::memset(shared_memory(), 0xff, engine.shared_bytes);
  char *begin = __start_cusim_shared, *end = __stop_cusim_shared;
  if (begin) std::memset(begin, 0xff, static_cast<std::size_t>(end - begin));
}

void set_shared_bytes(std::size_t bytes) {
  engine.shared_bytes = bytes;
#ifdef CUSIM_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(shared_memory(), bytes);
  __asan_poison_memory_region(shared_memory() + bytes, kSharedLimit - bytes);
#endif
}

}  // namespace

void* dynamic_shared() { return shared_memory(); }

// ---- Threads ----

void make_ready(Thread& thread) {
  thread.state = State::ready;
  engine.ready.push(thread.linear);
}

namespace {

void thread_loop();

/// The thread that runs next, or null where none can.
Thread* pick() {
  const std::size_t ready = engine.ready.size(), unstarted = engine.unstarted.size();
  if (ready + unstarted == 0) return nullptr;
  if (config().threads == Order::random) {
    const std::size_t i = random_number() % (ready + unstarted);
    return &engine.threads[i < ready ? engine.ready.pop(i) : engine.unstarted.pop(i - ready)];
  }
  return &engine.threads[ready ? engine.ready.pop_front() : engine.unstarted.pop_front()];
}

void enter(Thread& thread) {
  engine.current = &thread;
  threadIdx = thread.index;
  thread.state = State::running;
}

/// Leaves the running fiber for `next`, on a fiber of its own where it has not begun.
void run_next(Thread& next) {
  Fiber* fiber = next.state == State::unstarted ? take_fiber(thread_loop) : next.fiber;
  enter(next);
  if (fiber == current_fiber) return;  // it was this fiber's own turn again
  ++engine.stats.switches;
  switch_to(fiber);
}

/// Who waits where, when nothing can run.
std::string describe_deadlock() {
  std::map<std::string, int> waiting;
  for (const Thread& t : engine.threads) {
    if (t.state != State::at_barrier && t.state != State::at_warp_op) continue;
    const char* what = t.state == State::at_barrier ? "barrier" : "warp operation";
    ++waiting[std::string(what) + " at " + base_name(t.where.file) + ":" +
              std::to_string(t.where.line)];
  }
  std::string text = "deadlock:";
  for (const auto& [place, count] : waiting) {
    text += " [" + std::to_string(count) + " threads wait in the " + place + "]";
  }
  return text;
}

[[noreturn]] void report_deadlock() {
  static std::string text;  // nothing on a stack that is abandoned is ever destroyed
  text = describe_deadlock();
  fail("%s", text.c_str());
  __builtin_unreachable();
}

/// What every fiber runs: threads that have not begun, one after the other, for as long as no
/// thread that waited is chosen.
void thread_loop() {
  on_fiber_entry();
  for (;;) {
    kernel_code = true;
    engine.thread_main(engine.parameters);
    kernel_code = false;
    Thread& ended = *engine.current;
    ended.state = State::done;
    --engine.alive;
    complete_without(ended);

    Thread* const next = pick();
    if (next && next->state == State::unstarted) {
      enter(*next);
      continue;
    }
    if (!next && engine.alive) report_deadlock();
    Fiber* const to = next ? next->fiber : &host_fiber;
    give_fiber(current_fiber);
    if (next) enter(*next);
    ++engine.stats.switches;
    switch_to(to);
  }
}

}  // namespace

void wait_here() {
  engine.current->fiber = current_fiber;
  Thread* const next = pick();
  if (!next) report_deadlock();
  run_next(*next);
}

// ---- Blocks ----

namespace {

void set_up_threads(dim3 block) {
  const std::uint32_t count = block.x * block.y * block.z;
  engine.threads.resize(count);
  engine.warps.resize((count + 31) / 32);
  std::uint32_t i = 0;
  for (unsigned z = 0; z < block.z; ++z) {
    for (unsigned y = 0; y < block.y; ++y) {
      for (unsigned x = 0; x < block.x; ++x, ++i) {
        Thread& t = engine.threads[i];
        t.index = {x, y, z};
        t.linear = i;
        t.warp = static_cast<std::uint16_t>(i / 32);
        t.lane = static_cast<std::uint8_t>(i % 32);
      }
    }
  }
}

bool run_block(uint3 index) {
  blockIdx = index;
  const auto count = static_cast<std::uint32_t>(engine.threads.size());
  engine.alive = count;
  engine.at_barrier = 0;
  engine.ready.clear();
  engine.unstarted.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    engine.threads[i].state = State::unstarted;
    engine.unstarted.push(config().threads == Order::reversed ? count - 1 - i : i);
  }
  for (std::uint32_t w = 0; w < engine.warps.size(); ++w) {
    Warp& warp = engine.warps[w];
    const std::uint32_t lanes = std::min(32u, count - w * 32);
    warp.alive = lanes == 32 ? ~0u : (1u << lanes) - 1;
    warp.first = w * 32;
    warp.waiting = 0;
    for (Rendezvous& r : warp.rendezvous) r.mask = r.arrived = 0;
  }
  spoil_shared_memory();
  check::begin_block();

  host_fiber.stack = nullptr;  // on_fiber_entry() finds out: launches come from any host thread
  run_next(*pick());           // until the last thread has ended, or a report
  ++engine.stats.blocks;
  engine.stats.threads += count;
  if (engine.failed) forget_fibers();
  return !engine.failed;
}

/// In which order the grid's blocks run.
std::vector<std::uint64_t> block_order(std::uint64_t count) {
  std::vector<std::uint64_t> order(count);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  if (config().blocks == Order::reversed) std::reverse(order.begin(), order.end());
  if (config().blocks == Order::random) {
    for (std::uint64_t i = count; i > 1; --i) std::swap(order[i - 1], order[random_number() % i]);
  }
  return order;
}

}  // namespace

bool run_kernel(const KernelCall& call) {
  blockDim = call.block;
  gridDim = call.grid;
  engine.thread_main = call.thread_main;
  engine.parameters = call.parameters.get();
  engine.parameter_bytes = call.parameter_bytes;
  set_shared_bytes(call.shared);
  set_up_threads(call.block);
  engine.failed = false;
  engine.report_pc = nullptr;

  const std::uint64_t across = call.grid.x, rows = call.grid.y;
  const std::uint64_t count = across * rows * call.grid.z;
  const std::vector<std::uint64_t> order =
      config().blocks == Order::sequential ? std::vector<std::uint64_t>() : block_order(count);
  {
    const DeviceAccess access;
    check::begin_launch();
    engine.in_kernel = true;
    bool ok = true;
    for (std::uint64_t i = 0; i < count && ok; ++i) {
      const std::uint64_t b = order.empty() ? i : order[i];
      ok = run_block({static_cast<unsigned>(b % across), static_cast<unsigned>(b / across % rows),
                      static_cast<unsigned>(b / across / rows)});
    }
    engine.in_kernel = false;
    check::end_launch();
  }
  ++engine.stats.launches;
  if (engine.failed) {
    ++engine.stats.errors;
    if (engine.report_pc) engine.report += "\n  in " + source_line(engine.report_pc);
    std::fprintf(stderr, "%s\n", engine.report.c_str());
  }
  return !engine.failed;
}

}  // namespace cusim
