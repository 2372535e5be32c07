// The stand-in for NCCL: ranks of one id, and how what they have queued finds together.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "libraries/nccl_fake.h"
#include "streams.h"

namespace cusim {

enum class NcclKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  send,
  receive
};

/// A collective or one side of a transfer. `count` as its function has it.
struct NcclOp {
  NcclKind kind{};
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  ///< or the root

  std::size_t bytes() const noexcept;                ///< of `count` elements
  std::size_t from_bytes(int ranks) const noexcept;  ///< that it reads
  std::size_t to_bytes(int ranks) const noexcept;    ///< that it writes
  bool fits(const NcclOp& other) const noexcept;     ///< whether the two are one collective
};

/// What one rank launches at once: a group's operations.
struct NcclLaunch {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<NcclOp> ops;
  std::size_t left = 0;  ///< operations under way
  bool ended = false;    ///< or aborted
  CUevent_st done;       ///< the stream waits for it
};

struct NcclPart {
  NcclLaunch* launch = nullptr;
  NcclOp op;
};

/// Ranks that have one id.
struct NcclClique {
  int size = 0;
  int started = 0;                    ///< ranks that have launched a collective
  std::set<std::pair<int, int>> met;  ///< (a, b): rank a has begun to send to b or receive from it
  std::vector<ncclComm_t> ranks;
  std::map<std::uint64_t, std::vector<NcclPart>> collectives;  ///< by number: each rank's part
  struct Pair {
    std::deque<NcclPart> sends, receives;
  };
  std::map<std::pair<int, int>, Pair> pairs;  ///< by sender and receiver

  /// The rank's stream has come to the launch.
  void arrive(NcclLaunch& launch);

 private:
  void meet(std::vector<NcclPart> parts);
  void transfer(const NcclPart& send, const NcclPart& receive);
  /// Queues it on one of some streams, at random.
  void run(std::function<void()> work);
};

/// Ends what the communicator has launched, and leaves garbage.
void abandon(ncclComm_t comm);
NcclStats& mutable_nccl_stats();

}  // namespace cusim

struct ncclComm {
  cusim::NcclClique* clique = nullptr;
  int rank = 0, size = 0, device = 0;
  bool gone = false;   ///< destroyed or aborted
  bool stuck = false;  ///< its work never ends
  bool joining = true, ending = false;
  ncclResult_t error = ncclSuccess;      ///< asynchronous
  int polls = 0;                         ///< still in progress for so many
  cusim::NcclLaunch* pending = nullptr;  ///< given, and not in the stream yet
  bool launched = false;                 ///< a collective
  std::uint64_t collectives = 0;
  std::vector<std::unique_ptr<cusim::NcclLaunch>> launches;
  std::string said;
};
