// Fibers: stacks that the engine switches between, 12 ns a switch. One simulated thread that waits
// in a barrier occupies one; a thread that never waits shares one with the threads before it.
#pragma once

#include <cstddef>

namespace cusim {

inline constexpr std::size_t kStackBytes = std::size_t{256} << 10;

struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr;  ///< its lowest address
  std::size_t bytes = 0;
  void* sanitizer_stack = nullptr;  ///< AddressSanitizer's fake stack, while it does not run
};

/// The stack the host runs on. Filled in at the first switch.
extern Fiber host_fiber;
/// What runs now.
extern Fiber* current_fiber;

/// A fiber that begins at `entry` (which never returns) when it is switched to.
Fiber* take_fiber(void (*entry)());
/// May be called by the fiber itself, just before it switches away for good.
void give_fiber(Fiber* fiber);
/// After a kernel was stopped: no fiber is in use any more.
void forget_fibers();

/// Runs `to` until something switches back here.
void switch_to(Fiber* to);
/// The first thing a fiber's entry calls.
void on_fiber_entry();

}  // namespace cusim
