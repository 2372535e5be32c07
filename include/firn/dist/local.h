// Ranks as threads of one process: for tests, for debugging, and for trying out larger numbers of
// ranks.
#pragma once

#include <functional>

#include "firn/dist/group.h"

namespace firn::dist {

struct LocalOptions {
  double deadline = 60;  ///< seconds that a collective waits for the other ranks
  /// Limit of CPU threads for each rank's kernels, as set by NumThreadsScope; 0: the caller's
  /// num_threads() divided by the ranks, at least 1.
  int threads = 0;
};

/// Runs rank(group) in `ranks` threads and returns when all have ended. No rank begins before all
/// threads exist. Each begins with a copy of the caller's random stream (default_generator()) in
/// its current state. So all ranks draw the same numbers, and the caller's stream does not move.
/// For numbers of its own a rank calls seed_thread(group.rank()). Device scopes and modes (NoGrad,
/// autocast) of the caller do not apply in the ranks. A rank may call run_local() itself.
///
/// Ranks share memory, and each must give tensors of its own to a collective. If two ranks give
/// the same memory and one would write to it, they throw RankError.
///
/// If a rank throws or returns, collectives of the others throw RankError with that peer. They do
/// the same for a rank that misses the deadline. When all threads have ended, run_local() throws
/// the exception of the lowest rank that threw anything but a RankError. If there is none, it
/// throws the RankError of the lowest rank. Handles of the group throw RankError from then on.
///
/// Throws Error unless 1 <= ranks <= 1024, the deadline is positive and threads >= 0. Also throws
/// if the function is empty, and if the system has too few threads.
void run_local(int ranks, const std::function<void(const Group& group)>& rank,
               const LocalOptions& options = {});

}  // namespace firn::dist
