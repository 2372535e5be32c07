// Everything that the CPU backend keeps for each thread.
#pragma once

#include <cstddef>

namespace firn::kernels::cpu {

class Slot;

struct ThreadState {
  Slot* workspace = nullptr;        ///< the innermost one (workspace.h)
  bool in_pool = false;             ///< a piece of the thread pool's work is running
  std::size_t reserved = 0;         ///< bytes that are left of the innermost Reserve
  int onednn_calls = -1;            ///< where this thread's calls of oneDNN are counted
  bool has_openmp = false;          ///< OpenMP has memory for this thread
  bool onednn_stream_gone = false;  ///< the thread ends, and its stream is destroyed
};
extern thread_local constinit ThreadState thread_state;

}  // namespace firn::kernels::cpu
