#include "engine/fiber.h"

#include <sys/mman.h>

#include <deque>
#include <new>
#include <vector>

#ifdef CUSIM_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the registers that a function must keep, and takes another stack. (swapcontext() makes a
// system call and costs 20 times as much.)
#if defined(__x86_64__)
extern "C" void cusim_switch(void** save_stack_pointer, void* stack_pointer);
asm(R"(
.text
.globl cusim_switch
.type cusim_switch,@function
cusim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %r8
  jmp *%r8
.size cusim_switch,.-cusim_switch
)");
#else
#error "the simulator needs a stack switch for this processor: some 20 lines of assembly"
#endif

namespace cusim {

Fiber host_fiber;
Fiber* current_fiber = &host_fiber;

namespace {

constexpr std::size_t kPage = 4096;
constexpr int kSavedRegisters = 6;

std::deque<Fiber>& fibers =
    *new std::deque<Fiber>;  // grows to the number of threads that wait at once, at most a block's
std::vector<Fiber*>& free_fibers = *new std::vector<Fiber*>;

/// The stack as if the fiber had just been switched away from, about to enter `entry`.
void prepare(Fiber& fiber, void (*entry)()) {
#if defined(CUSIM_ADDRESS_SANITIZER) && !defined(CUSIM_CHECK)  // else nothing poisons the stack
  __asan_unpoison_memory_region(fiber.stack, kStackBytes);
#endif
  void** top = reinterpret_cast<void**>(fiber.stack + kStackBytes - 64);
  for (int i = 0; i < kSavedRegisters; ++i) top[i] = nullptr;
  top[kSavedRegisters] = reinterpret_cast<void*>(entry);
  fiber.stack_pointer = top;
  fiber.sanitizer_stack = nullptr;
}

Fiber* new_fiber() {
  void* memory = mmap(nullptr, kPage + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kPage, PROT_NONE);  // an overflow of the stack faults here
  Fiber& fiber = fibers.emplace_back();
  fiber.stack = static_cast<char*>(memory) + kPage;
  fiber.bytes = kStackBytes;
  return &fiber;
}

}  // namespace

Fiber* take_fiber(void (*entry)()) {
  Fiber* fiber;
  if (free_fibers.empty()) {
    fiber = new_fiber();
  } else {
    fiber = free_fibers.back();
    free_fibers.pop_back();
  }
  prepare(*fiber, entry);
  return fiber;
}

void give_fiber(Fiber* fiber) { free_fibers.push_back(fiber); }

void forget_fibers() {
  free_fibers.clear();
  for (Fiber& fiber : fibers) free_fibers.push_back(&fiber);
}

void switch_to(Fiber* to) {
  Fiber* const from = current_fiber;
  current_fiber = to;
#ifdef CUSIM_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(&from->sanitizer_stack, to->stack, to->bytes);
#endif
  cusim_switch(&from->stack_pointer, to->stack_pointer);
#ifdef CUSIM_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(from->sanitizer_stack, nullptr, nullptr);
#endif
}

void on_fiber_entry() {
#ifdef CUSIM_ADDRESS_SANITIZER
  const void* bottom;
  std::size_t bytes;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (!host_fiber.stack) {  // the first switch of all came from there
    host_fiber.stack = static_cast<char*>(const_cast<void*>(bottom));
    host_fiber.bytes = bytes;
  }
#endif
}

}  // namespace cusim
