// The processes of an MPI job, as one of them sees it: how it waits for the others, how they tell
// each other what has failed, and how it ends.
//
// A group has two communicators: one for its bytes, and one for messages about its calls. A rank
// waits in polls, so it reads messages meanwhile. If a deadline passes, it calls the roll: ranks
// that wait in the same collective answer, the first that does not is the one to blame, and all are
// told.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/transport.h"

namespace firn::dist {

/// How messages are cut, in bytes, the same on all ranks. Tests set them.
struct MpiSizes {
  std::int64_t whole = 16 << 10;   ///< up to so many from all ranks together, all are sent to all
  std::int64_t share = 1 << 20;    ///< of each rank's share of a piece of a reduction
  std::int64_t message = 1 << 30;  ///< largest message: MPI counts in int
};
MpiSizes& mpi_sizes() noexcept;

/// A group of this process: that of all processes, or one that was split off. Never destroyed: MPI
/// may write to its memory as long as the process lives. One thread at a time may use it, and, but
/// with serves_threads(), all of them.
class MpiWorld {
 public:
  /// That of all processes. The first call initialises MPI. Throws Error if MPI cannot serve.
  static MpiWorld& get();
  /// Whether several threads may use MPI at once, each another group.
  static bool serves_threads() noexcept;
  /// Whether the processes of the job are on several machines. After get().
  static bool spans_machines() noexcept;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// Transport::run().
  void run(const Call& call, const void* from, void* to, double deadline);
  /// Transport::talk().
  void talk(std::span<const Talk> talks, double deadline);
  /// Transport::give_up().
  void give_up(std::string_view why) noexcept;
  /// Transport::split(). Waits for the other ranks of this group as MPI does, without a deadline.
  MpiWorld& split(const SplitPart& part);
  bool keeps_memory() const noexcept { return pending_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class News : std::int32_t { roll, here, broken, left };
  enum class Break : std::int32_t { none, late, gone, different, failed, given_up };
  /// What ranks tell each other.
  struct Message {
    News news = News::roll;
    Break why = Break::none;
    std::int32_t finder = -1, blamed = -1;  // of `broken`
    std::int64_t number = 0;                // of the collective; of `left` the last one
    double deadline = 0;
    CallKind kind = CallKind::barrier;  // of the call that did not end
    char text[128] = {};                // why a rank has given up, cut off; it ends with a zero
  };
  /// One direction of a message between two ranks, and what the other one says it is.
  struct Side {
    Call own, other;
    bool heard = false;
  };
  /// What a rank brings to a meeting: its call, and what it gives if that is little.
  struct Record {
    Call call;
    std::byte given[112];
  };
  /// One message to all others. MPI reads it as long as it likes.
  struct Outbox {
    Message message;
    std::vector<MPI_Request> requests;
    bool sent = false;
  };

  MpiWorld();
  MpiWorld(const MpiWorld& parent, const SplitPart& part);
  void reserve();

  // world.cpp: waiting, and what goes wrong
  void meet(const Call& call, const void* from);
  void wait(std::vector<MPI_Request>& requests, bool bulk);
  void ok(int result, const char* function);
  void heed();
  void obey_news();
  [[noreturn]] void be_late();
  void tell_all(Outbox& outbox, const Message& message) noexcept;
  [[noreturn]] void throw_broken(CallKind kind) const;
  std::string name(int rank) const { return name_of(rank, of_all_); }
  static void at_exit() noexcept;
  void leave() noexcept;

  // collectives.cpp: the bytes
  using Buffer = std::vector<std::byte>;
  void take_memory(const Call& call);
  void send(const void* from, std::int64_t bytes, int to, int tag,
            std::vector<MPI_Request>& requests);
  void receive(void* to, std::int64_t bytes, int from, int tag, std::vector<MPI_Request>& requests);
  void all_gather(const std::byte* from, std::byte* to, std::int64_t part);
  void all_to_all(const std::byte* from, std::byte* to, std::int64_t part);
  void broadcast(std::byte* x, std::int64_t bytes, int root);
  void reduce(const Call& call, const std::byte* from, std::byte* to);
  void reduce_whole(const Call& call, std::byte* x);
  static bool fits_in_record(const Call& call) noexcept;
  void take_from_records(const Call& call, std::byte* to);

  // talks.cpp: messages between two ranks
  void hear_other_sides(std::size_t sides);
  void refuse_same_way(std::size_t sides);
  void require_peers(std::size_t sides, Clock::time_point& gone_since);
  [[noreturn]] void be_late_to(int peer);

  int rank_ = 0, size_ = 1;
  std::vector<int> of_all_;
  MPI_Comm data_ = MPI_COMM_NULL, news_ = MPI_COMM_NULL;

  Call call_;                // the collective that this rank is in, or was in
  std::int64_t number_ = 0;  // of it; the first is 1
  bool inside_ = false;
  double deadline_ = 0;
  std::vector<Record> records_;  // of all ranks, from this one on
  std::vector<Call> calls_;      // of all ranks, from rank 0 on
  bool pending_ = false;         // a call has thrown whose messages MPI still may carry

  Break break_ = Break::none;
  Message broken_;                  // what broke the group
  std::string error_;               // of MPI
  std::vector<std::int64_t> left_;  // the last collective of ranks that have ended; -1: of others
  std::vector<char> here_;          // who has answered the roll
  Outbox roll_, notice_, farewell_;

  Side sides_[2];  // of the messages under way
  std::vector<MPI_Request> end_, even_, odd_;
  Buffer even_rows_, odd_rows_;  // what the others have sent of a piece
  std::vector<const void*> rows_;
};

}  // namespace firn::dist
