// Check mode (FIRN_CUSIM_CHECK): every load and store of a kernel is looked at. Kernels are
// compiled with -fsanitize=thread, and the functions that this plants in front of each access are
// our own (check_entry.cpp). Here: what the engine tells the checker. In other builds nothing is
// done.
#pragma once

#include "memory.h"

namespace cusim::check {

#ifdef CUSIM_CHECK
/// A kernel's access to [p, p + bytes), from the instruction at `pc`.
struct Access {
  char* p;
  std::size_t bytes;
  bool write;
  bool atomic;
  const void* pc;
  bool aligned = true;  ///< the compiler takes the address for a multiple of the size
};
void on_access(const Access& access);

void begin_launch();
void end_launch();
void begin_block();
void after_barrier();
/// `whole`: of all lanes that have not ended.
void after_warp_sync(unsigned warp, bool whole);
void after_fence();
void after_atomic(const void* address);
/// The block's memory is freed.
void forget_block(Block& block);
/// The set of blocks has changed.
void forget_blocks();
/// Code that is no kernel has written [p, p + bytes).
void wrote(void* p, std::size_t bytes);
#else
inline void begin_launch() {}
inline void end_launch() {}
inline void begin_block() {}
inline void after_barrier() {}
inline void after_warp_sync(unsigned, bool) {}
inline void after_fence() {}
inline void after_atomic(const void*) {}
inline void forget_block(Block&) {}
inline void forget_blocks() {}
inline void wrote(void*, std::size_t) {}
#endif

}  // namespace cusim::check
