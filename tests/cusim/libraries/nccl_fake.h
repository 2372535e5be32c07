// What tests set of the stand-in for NCCL, and see of it. Ranks are threads of the process. Each
// has a device of its own (CUSIM_DEVICES), or they share one, which NCCL itself refuses.
//
// It knows what firn uses: communicators that do not block, collectives, and grouped sends and
// receives. As with NCCL, work is in the stream only when the communicator is no longer "in
// progress"; the first collective of a communicator needs all ranks, and the first message of two
// ranks both; a collective that others do not make never ends; and ncclCommAbort() ends what hangs
// and leaves garbage. Transfers end in a random order, and each rank's part of a collective at its
// own time. Sums begin at another rank for each element, and maxima leave out a NaN.
#pragma once

#include <cstdint>
#include <functional>

namespace cusim {

struct NcclSettings {
  int most_polls = 3;  ///< a call is "in progress" for up to so many polls, at random
  /// Whether ranks learn (ncclRemoteError) that another has aborted: over a network they do, within
  /// a machine they do not.
  bool tell_of_aborts = false;
};
NcclSettings& nccl_settings();

struct NcclCall {
  const char* name;
  int rank;  ///< of the communicator; -1: the function has none
};
/// `hook` is called at each call and returns the ncclResult_t to answer. With another one than
/// success nothing is done, but that ncclCommAbort() and ncclGroupEnd() end things all the same.
/// Null: none. The calls of several threads come one at a time.
void on_nccl_call(std::function<int(const NcclCall&)> hook);

/// Communicators of `rank` have this asynchronous error from now on, and their work never ends.
void nccl_async_error(int rank, int result);

struct NcclStats {
  std::uint64_t calls, transfers, aborts;
  std::uint64_t alive;   ///< communicators that are neither destroyed nor aborted
  std::uint64_t misuse;  ///< calls that NCCL forbids: of a communicator that is gone or in progress
};
const NcclStats& nccl_stats();

/// Forgets all communicators, which must be gone, with settings, hooks and stats.
void reset_nccl();

}  // namespace cusim
