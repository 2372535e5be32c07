// What carries the bytes of a group: one rank's end of it. group.cpp has checked the tensors.
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

#include "firn/dist/group.h"
#include "firn/dtype.h"

namespace firn::dist {

/// A deadline, as a clock can count it: at most 31 years.
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
  send,  // between two ranks, as is recv
  recv
};
/// "all_reduce" and so on: a text that is never freed.
const char* to_string(CallKind kind) noexcept;

/// A collective as all ranks must make it, or one rank's side of a message. Transports exchange it
/// as bytes, so it has no gaps.
struct Call {
  CallKind kind = CallKind::barrier;
  DType dtype = DType::u8;
  Reduce reduce = Reduce::sum;
  std::uint8_t of_split = 0;  ///< 1: an all_gather that Group::split() makes
  std::int32_t root = 0;      ///< of a broadcast; of a send or recv the other rank
  std::int64_t count = 0;     ///< elements of one part; of the tensor where there are no parts

  bool operator==(const Call&) const = default;
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(count) * size_of(dtype); }
};
static_assert(sizeof(Call) == 16);

/// "all_reduce(max) of 5 f32", "broadcast from rank 2 of 0 i64", "barrier".
std::string describe(const Call& call);

/// "rank 2"; in a group that was split off, "rank 2 (rank 5 of all)": `of_all` has the numbers of
/// its ranks in the first group, and is empty for that one.
std::string name_of(int rank, std::span<const int> of_all);

/// Throws RankError on each rank if the ranks' calls are not all the same. Its peer is the first
/// rank whose call is another one than that of `rank`.
void check_same(int rank, std::span<const Call> calls, std::span<const int> of_all);

/// Throws RankError of `rank` for its send or recv that meets another dtype or number of elements,
/// or a call that goes the same way.
[[noreturn]] void throw_unlike(int rank, const Call& own, const Call& other,
                               std::span<const int> of_all);

/// A group that is split off, as one of its ranks knows it.
struct SplitPart {
  int index = 0;             ///< of the part, from 0; the same number for no other part
  int rank = 0;              ///< this rank's number in it
  std::vector<int> members;  ///< the numbers that its ranks have in the group which is split
};

/// One direction of a message: `call` is a send of what `from` has, or a recv into `to`.
struct Talk {
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
  /// Where tensors are.
  virtual Device device() const noexcept { return Device::cpu(); }
  /// The same ranks with tensors on the CPU; empty: these are.
  virtual std::optional<Group> host() { return std::nullopt; }
  /// Before `call` is made over host(): throws RankError if other ranks make another call here.
  virtual void announce(const Call&) {}

  /// Makes `call` with all others. `from` and `to` have `call.count` elements each, but for
  ///   all_reduce, broadcast   from == to
  ///   reduce_scatter          `from` has size() times as many; `to` is apart from it, or is its
  ///                           own part
  ///   all_gather              `to` has size() times as many; `from` is apart from it, or is its
  ///                           own part
  ///   all_to_all              both have size() times as many, and are apart
  /// Null pointers are only for nothing. Throws RankError, std::bad_alloc.
  virtual void run(const Call& call, const void* from, void* to) = 0;
  /// In a dry run: allocates and releases what run() would on device().
  virtual void plan(const Call&) {}

  /// Sends, receives, or does both at once: at most one message of each kind. Returns when the
  /// other ranks have them, or (processes) when the memory may be used again. Throws RankError,
  /// std::bad_alloc; by itself Error: this kind of group has no messages.
  virtual void talk(std::span<const Talk> talks);
  /// This rank's place in a part of the group. All ranks have come to the same split, and each
  /// calls this for its own part. By itself throws Error: this kind of group cannot be split.
  virtual std::shared_ptr<Transport> split(const SplitPart& part);

  /// This rank cannot go on with what the others wait for, since `why`: from now on calls throw
  /// RankError on all ranks, and those that wait do so at once.
  virtual void give_up(std::string_view why) noexcept = 0;

  /// Whether a thread may make calls of this group while another one makes calls of another.
  virtual bool is_concurrent() const noexcept { return false; }
  /// Whether a network carries the bytes, so that a rank gains by computing meanwhile.
  virtual bool is_far() const noexcept { return false; }

  /// Whether a call that threw may go on to read and write its memory. The memory must then live
  /// as long as the process.
  virtual bool keeps_memory() const noexcept { return false; }
};

/// For firn's own parts that are not the group's functions.
struct GroupAccess {
  static const std::shared_ptr<Transport>& transport(const Group& group) {
    return group.transport_;
  }
};

}  // namespace firn::dist
