// Ranks as threads of one process: for tests, for debugging, and for trying what more ranks would
// do.
#pragma once

#include <functional>

#include "firn/dist/group.h"

namespace firn::dist {

struct LocalOptions {
  double deadline = 60;  ///< seconds that a collective waits for the other ranks
  /// Most CPU threads of each rank's kernels, as by NumThreadsScope; 0: the caller's num_threads()
  /// divided by the ranks, at least 1.
  int threads = 0;
};

/// Runs rank(group) in `ranks` threads and returns when all have ended. No rank begins before all
/// threads are there. Each begins with a copy of the caller's random stream (default_generator()),
/// where that stands: all ranks draw the same numbers, and the caller's stream stays. For numbers
/// of its own a rank calls seed_thread(group.rank()). Device scopes and modes (NoGrad, autocast) of
/// the caller do not count in them. A rank may call run_local() itself.
///
/// Ranks share memory: to a collective each gives tensors of its own. The same memory is a
/// RankError if a rank would write to it.
///
/// If a rank throws or returns, collectives of the others throw RankError with that peer, as they
/// do for a rank that does not come within the deadline. When all threads have ended, the exception
/// of the lowest rank that threw something else than a RankError is thrown; if there is none, the
/// RankError of the lowest rank. Handles of the group throw RankError from then on.
///
/// Throws Error unless 1 <= ranks <= 1024, the deadline is positive and threads >= 0, if the
/// function is empty, and if the system has too few threads.
void run_local(int ranks, const std::function<void(const Group& group)>& rank,
               const LocalOptions& options = {});

}  // namespace firn::dist
