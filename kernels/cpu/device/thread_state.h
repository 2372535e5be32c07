// The CPU backend's state of each thread.
#pragma once

#include <cstddef>

namespace firn::kernels::cpu {

class Slot;

struct ThreadState {
  Slot* workspace = nullptr;        ///< the innermost slot (workspace.h)
  bool in_pool = false;             ///< true while a piece of the thread pool's work is running
  std::size_t reserved = 0;         ///< bytes that are left of the innermost Reserve
  int onednn_calls = -1;            ///< index of the counter of this thread's calls of oneDNN
  bool has_openmp = false;          ///< true once OpenMP has memory for this thread
  bool onednn_stream_gone = false;  ///< true once the ending thread's stream is destroyed
};
extern thread_local constinit ThreadState thread_state;

}  // namespace firn::kernels::cpu
