// Ranks as threads of one process: for tests, for debugging, and for trying what more ranks would
// do.
#pragma once

#include <functional>

#include "firn/dist/group.h"

namespace firn::dist {

struct LocalOptions {
  double deadline = 60;  ///< seconds that a collective waits for the other ranks
  /// CPU threads of each rank's kernels; 0: the process's threads divided by the ranks, at least 1.
  int threads = 0;
};

/// Runs rank(group) in `ranks` threads and returns when all have ended. Each thread has a random
/// stream of its own, seeded as the caller's thread would be by manual_seed() of the same seed: all
/// ranks draw the same numbers. Device scopes and modes (NoGrad, autocast) of the caller do not
/// count in them.
///
/// If a rank throws, collectives of the others throw RankError with that peer. When all threads
/// have ended, the exception of the first rank that threw something else than a RankError is
/// thrown; if there is none, the first RankError. Throws Error unless 1 <= ranks <= 1024, the
/// deadline is positive and threads >= 0, and if the function is empty.
void run_local(int ranks, const std::function<void(const Group& group)>& rank,
               const LocalOptions& options = {});

}  // namespace firn::dist
