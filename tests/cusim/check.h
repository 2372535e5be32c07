// Check mode (FIRN_CUSIM_CHECK): what the engine tells the checker. Without it nothing is done.
#pragma once

#include "memory.h"

namespace cusim::check {

#ifdef CUSIM_CHECK
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
void forget_last_block();
/// Code that is no kernel has written [p, p + bytes) of device memory.
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
inline void forget_last_block() {}
inline void wrote(void*, std::size_t) {}
#endif

}  // namespace cusim::check
