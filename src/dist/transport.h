// Transport: one rank's end of a group, which carries its bytes. group.cpp has checked the tensors.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/peers.h"
#include "firn/dist/group.h"
#include "firn/dtype.h"

namespace firn::dist {

/// Converts a deadline to the clock's unit, at most 31 years.
inline std::chrono::steady_clock::duration seconds(double s) noexcept {
  constexpr double kLongest = 1e9;
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(std::min(s, kLongest)));
}

enum class CallKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  barrier,
  send,  // between two ranks, like recv
  recv
};
/// Returns "all_reduce" and so on: a text that is never freed.
const char* to_string(CallKind kind) noexcept;

/// A collective as all ranks must make it, or one rank's side of a message. Transports exchange it
/// as bytes, so it has no gaps.
struct Call {
  CallKind kind = CallKind::barrier;
  DType dtype = DType::u8;
  Reduce reduce = Reduce::sum;
  std::uint8_t of_split = 0;  ///< 1: Group::split() makes the call
  std::int32_t root = 0;      ///< broadcast's root; the other rank of a send or recv
  std::int64_t count = 0;     ///< elements of one part, or of the tensor if it has no parts

  bool operator==(const Call&) const = default;
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(count) * size_of(dtype); }
};
static_assert(sizeof(Call) == 16);

/// Describes a call: "all_reduce(max) of 5 f32", "broadcast from rank 2 of 0 i64", "barrier".
std::string describe(const Call& call);

/// Names a rank: "rank 2", or in a group that was split off "rank 2 (rank 5 of all)". `of_all` has
/// the numbers of its ranks in the first group, and is empty for the first group.
std::string name_of(int rank, std::span<const int> of_all);

/// Throws RankError on each rank if the ranks' calls are not all the same. Its peer is the first
/// rank whose call differs from that of `rank`.
void check_same(int rank, std::span<const Call> calls, std::span<const int> of_all);

/// Throws RankError for `rank`, whose send or recv does not fit the other side. The dtype or the
/// number of elements differs, or both go the same way.
[[noreturn]] void throw_unlike(int rank, const Call& own, const Call& other,
                               std::span<const int> of_all);

/// One part of a split, as one of its ranks knows it.
struct SplitPart {
  int index = 0;             ///< the part's index from 0, different for each part
  int rank = 0;              ///< this rank's number in it
  std::vector<int> members;  ///< the numbers that its ranks have in the group that is split
};

/// One direction of a message: `call` is a send of `from`, or a recv into `to`.
struct Message {
  Call call;
  const void* from = nullptr;
  void* to = nullptr;
};

/// One rank's end of a group. One thread at a time calls it.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual std::string_view kind() const noexcept = 0;
  virtual double deadline() const noexcept = 0;
  /// Device of the tensors.
  virtual Device device() const noexcept { return Device::cpu(); }
  /// Returns the CPU group of the same ranks, or nullopt if this group is already on the CPU.
  virtual std::optional<Group> host() { return std::nullopt; }
  /// Called before `call` is made over host(). Throws RankError if another rank's call differs.
  virtual void announce(const Call&) {}

  /// Makes `call` with all others. `from` and `to` have `call.count` elements each, but for
  ///   all_reduce, broadcast   from == to
  ///   reduce_scatter          `from` has size() times as many; `to` is apart from it, or is its
  ///                           own part
  ///   all_gather              `to` has size() times as many; `from` is apart from it, or is its
  ///                           own part
  ///   all_to_all              both have size() times as many, and are apart
  /// A pointer is null only if it has no elements. Throws RankError, std::bad_alloc.
  virtual void run(const Call& call, const void* from, void* to) = 0;
  /// Allocates and releases what run() would on device(), in a dry run.
  virtual void plan(const Call&) {}

  /// Sends, receives, or does both at once: at most one message of each kind. Returns when the
  /// others have the messages or, between processes, when the memory may be used again. Throws
  /// RankError, std::bad_alloc. The default throws Error: this kind of group has no messages.
  virtual void exchange_messages(std::span<const Message> messages);
  /// Makes this rank's end of its part of the group, with all the memory that it needs. All ranks
  /// have agreed on the split, and each calls this for its part. If it throws on one rank, all give
  /// up what it made. The default throws Error: this kind of group cannot be split.
  virtual std::shared_ptr<Transport> split(const SplitPart& part);
  /// Connects what split() has made, after it has succeeded on all ranks, which all call this.
  virtual void connect() {}

  /// Reports that this rank cannot continue, because of `why`. From now on calls throw RankError on
  /// all ranks, and calls that wait throw at once.
  virtual void give_up(std::string_view why) noexcept = 0;

  /// True if a thread may make calls of this group while another one makes calls of another group.
  virtual bool is_concurrent() const noexcept { return false; }
  /// True if a network carries the bytes, so that a rank gains by computing meanwhile.
  virtual bool is_far() const noexcept { return false; }

  /// True if a call that threw may still read and write its memory. The memory must then live as
  /// long as the process.
  virtual bool keeps_memory() const noexcept { return false; }
};

/// Throws what autograd::Peers::agree() does, for `rank` whose outcome is `mine`. `failed` and
/// `out_of_memory` are the first ranks with these outcomes, or `size`.
void require_done(const char* op, int rank, int size, int failed, int out_of_memory,
                  autograd::Outcome mine);

/// Does what autograd::Peers::agree() does, in no memory but the stack. `transport` is one of the
/// CPU. The call is one of Group::split() if `of_split`.
void agree(Transport& transport, const char* op, autograd::Outcome mine, bool of_split = false);

/// Runs the function, which needs no other rank. If it throws on one rank, all ranks throw.
template <class Fn>
void on_every_rank(Transport& transport, const char* op, const Fn& function,
                   bool of_split = false) {
  autograd::run_and_agree(
      function, [&](autograd::Outcome outcome) { agree(transport, op, outcome, of_split); });
}

/// Gives firn's parts outside of Group the transport of a group.
struct GroupAccess {
  static const std::shared_ptr<Transport>& transport(const Group& group) {
    return group.transport_;
  }
};

}  // namespace firn::dist
