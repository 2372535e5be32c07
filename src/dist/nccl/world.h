// One rank's end of a group over NCCL: its communicator, how the rank waits for it, and how it
// fails.
//
// The communicator does not block: a call that needs other ranks answers "in progress", and its
// state is polled, so a deadline can pass. A thread watches the work that is queued on the device.
// Only that thread can end a collective that hangs, for the host may itself hang in a call of CUDA
// that waits for the device.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "dist/nccl/library.h"
#include "dist/transport.h"
#include "firn/dist/nccl.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/stream.h"

namespace firn::dist {

/// Limits by which reductions are cut, in bytes, equal on all ranks. Tests set them.
struct NcclSizes {
  std::int64_t whole = 64 << 10;  ///< largest total of all ranks that is sent whole to all
  std::int64_t piece =
      64 << 20;  ///< piece of a tensor; a rank needs this much memory for the others' shares
};
NcclSizes& nccl_sizes() noexcept;

inline constexpr const char* kNcclHint =
    "a group is broken once a rank has failed: load the last saved state, in new processes; "
    "NCCL_DEBUG=WARN makes NCCL say more";

class NcclWorld {
 public:
  /// `bootstrap` compares calls; without it, calls are not compared. `of_all` is as in name_of().
  /// The group is not connected yet.
  NcclWorld(int rank, int size, Device device, const NcclOptions& options,
            std::optional<Group> bootstrap, std::vector<int> of_all = {});
  ~NcclWorld();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  Device device() const noexcept { return device_; }
  double deadline() const noexcept { return options_.deadline; }
  const NcclOptions& options() const noexcept { return options_; }
  const std::vector<int>& of_all() const noexcept { return of_all_; }

  /// Connects to the other ranks. Throws RankError; the group is then invalid.
  void connect(const ncclUniqueId& id);
  /// Invalidates the group, since rank `peer` has not connected, and throws RankError.
  [[noreturn]] void give_up(int peer);

  /// Transport::run(), exchange_messages(), plan() and announce().
  void run(const Call& call, const void* from, void* to);
  void exchange_messages(std::span<const Message> messages);
  void plan(const Call& call) const;
  void announce(const Call& call);
  const std::optional<Group>& bootstrap() const noexcept { return bootstrap_; }

 private:
  using Clock = std::chrono::steady_clock;
  /// A collective that is queued on the device.
  struct Queued {
    Call call;
    Event begin, end;
    bool whole = false;                           ///< all of it is queued, and `end` marks its end
    std::optional<Clock::time_point> since = {};  ///< time at which it was first seen to have begun
  };
  /// Error that invalidated the group.
  struct Broken {
    std::string op, text, hint;
    int peer = -1;
    bool told = false;  ///< true once a call has thrown it
  };
  /// The results of NCCL's functions in one step; the first failure counts.
  struct Results {
    ncclResult_t first = ncclSuccess;
    const char* function = "";
    bool add(const char* name, ncclResult_t result) noexcept {
      if (first == ncclSuccess && result != ncclSuccess && result != ncclInProgress) {
        first = result;
        function = name;
      }
      return first == ncclSuccess;
    }
  };

  // compare.cpp: comparing calls on the host
  void compare(const Call& call);
  void on_host(const Call& call, const std::function<void()>& fn);
  void compare_sides(std::span<const Message> messages);
  void exchange(const Call* mine, const Call* own, Call& theirs);

  // world.cpp: waiting, and failures
  void require_whole(const char* op);
  /// Calls `fn(results)` with the lock held, then waits until NCCL has queued its work.
  void step(const char* op, const std::string& what, const std::function<void(Results&)>& fn);
  void settle(const char* op, const std::string& what);
  void queue_watched(Queued queued, Stream stream, const std::function<void()>& fn);
  void watch_from(Queued queued, Stream stream, const std::function<void()>& fn);
  void watch() noexcept;
  void look();
  /// The callers of these two hold the lock.
  void break_up(const char* op, std::string text, std::string hint, int peer) noexcept;
  [[noreturn]] void throw_broken(const char* op);
  std::string failure(const char* function, ncclResult_t result) const;
  Queued take_events(const Call& call);
  void leave() noexcept;
  void leave_word() noexcept;

  // collectives.cpp
  struct Layout;
  std::int64_t scratch_bytes(const Call& call) const;
  bool by_engine(const Call& call) const noexcept;
  void queue(const Call& call, const std::byte* from, std::byte* to, std::byte* scratch,
             Stream stream);
  void by_order(const Call& call, const std::byte* from, std::byte* to, std::byte* scratch,
                Stream stream);
  void queue_messages(std::span<const Message> messages, Stream stream);
  void for_others(const std::function<void(int)>& fn) const;

  const int rank_, size_;
  const Device device_;
  const NcclOptions options_;
  const Nccl& lib_;
  const std::vector<int> of_all_;
  std::optional<Group> bootstrap_;
  Tensor mine_, other_, all_;  // u8: calls, for bootstrap_
  std::vector<Call> calls_;

  std::mutex mutex_;  // guards the members below, and NCCL's functions
  std::condition_variable wake_;
  ncclComm_t comm_ = nullptr;  // null: not connected, or aborted
  std::deque<Queued> queued_;
  std::vector<Queued> idle_;  // events to be used again
  std::optional<Broken> broken_;
  bool stop_ = false;
  std::thread watchdog_;
  std::optional<runtime::WaitCheck> check_;
};

}  // namespace firn::dist
