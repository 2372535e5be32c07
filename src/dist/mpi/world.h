// The processes of an MPI job, as one of them sees them: how it waits for the others, how they
// report failures, and how it ends.
//
// A group has two communicators: one for its bytes, and one for messages about its calls. A rank
// waits in polls, so it reads messages meanwhile. If a deadline passes, it calls the roll: ranks
// that wait in the same collective answer. The first rank that does not is the one to blame, and
// the failure is reported to all.
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

/// Limits by which messages are cut, in bytes, equal on all ranks. Tests set them.
struct MpiSizes {
  std::int64_t whole = 16 << 10;   ///< largest total of all ranks that is sent whole to all
  std::int64_t share = 1 << 20;    ///< largest share of a rank in a piece of a reduction
  std::int64_t message = 1 << 30;  ///< largest message: MPI counts in int
};
MpiSizes& mpi_sizes() noexcept;

/// The group of all processes, or one that was split off. It is never destroyed: MPI may write to
/// its memory as long as the process lives. One thread at a time may use it and, without
/// serves_threads(), one thread at a time may use all groups.
class MpiWorld {
 public:
  /// Returns the group of all processes. The first call initialises MPI. Throws Error if MPI cannot
  /// serve.
  static MpiWorld& get();
  /// Returns true if several threads may use MPI at once, each with another group.
  static bool serves_threads() noexcept;
  /// Returns true if the processes of the job are on several machines. Call get() before.
  static bool spans_machines() noexcept;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// Transport::run().
  void run(const Call& call, const void* from, void* to, double deadline);
  /// Transport::exchange_messages().
  void exchange_messages(std::span<const dist::Message> messages, double deadline);
  /// Transport::give_up().
  void give_up(std::string_view why) noexcept;
  /// Makes this rank's end of a part of `parent`, for split_off(), which allocates nothing.
  MpiWorld(const MpiWorld& parent, const SplitPart& part);
  /// Splits the part with this index off. Waits for the other ranks of `parent` as MPI does,
  /// without a deadline. From now on the object lives as long as the process.
  void split_off(const MpiWorld& parent, int index);
  bool keeps_memory() const noexcept { return pending_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class News : std::int32_t { roll, here, broken, left };
  enum class Break : std::int32_t { none, late, gone, different, failed, given_up };
  /// Message to another rank about a call.
  struct Message {
    News news = News::roll;
    Break why = Break::none;
    std::int32_t finder = -1, blamed = -1;  // ranks that found and caused `broken`
    std::int64_t number = 0;  // collective's number; with `left`, that of the last one
    double deadline = 0;
    CallKind kind = CallKind::barrier;  // kind of the call that did not end
    char text[128] = {};  // reason why a rank has given up, cut off; it ends with a zero
  };
  /// One direction of a message between two ranks: this rank's call, and the other's.
  struct Side {
    Call own, other;
    bool heard = false;
  };
  /// Record that ranks exchange in meet(): the call, and the data if it is small.
  struct Record {
    Call call;
    std::byte given[112];
  };
  /// One message to all others. MPI may read it at any later time.
  struct Outbox {
    Message message;
    std::vector<MPI_Request> requests;
    bool sent = false;
  };

  MpiWorld();
  void reserve();

  // world.cpp: waiting, and failures
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

  // messages.cpp: messages between two ranks
  void hear_other_sides(std::size_t sides);
  void refuse_same_way(std::size_t sides);
  void require_peers(std::size_t sides, Clock::time_point& gone_since);
  [[noreturn]] void be_late_to(int peer);

  int rank_ = 0, size_ = 1;
  std::vector<int> of_all_;
  MPI_Comm data_ = MPI_COMM_NULL, news_ = MPI_COMM_NULL;

  Call call_;                // the collective that this rank is in, or was in
  std::int64_t number_ = 0;  // number of that collective; the first is 1
  bool inside_ = false;
  double deadline_ = 0;
  std::vector<Record> records_;  // records of all ranks, from this one on
  std::vector<Call> calls_;      // calls of all ranks, from rank 0 on
  bool pending_ = false;         // true if MPI may still carry messages of a call that threw

  Break break_ = Break::none;
  Message broken_;                  // failure of the group
  std::string error_;               // MPI's error
  std::vector<std::int64_t> left_;  // last collective of each rank that has ended; -1 for others
  std::vector<char> here_;          // 1 for each rank that has answered the roll
  Outbox roll_, notice_, farewell_;

  Side sides_[2];  // sides of the messages in flight
  std::vector<MPI_Request> end_, even_, odd_;
  Buffer even_rows_, odd_rows_;  // the other ranks' elements of a piece
  std::vector<const void*> rows_;
};

}  // namespace firn::dist
