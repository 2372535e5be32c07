// State that ranks as threads share: where each one is, and how they wait for each other.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/local/range_check.h"
#include "dist/transport.h"

namespace firn::dist {

/// A collective has two barriers. At the first, ranks wait until all have come, at most until the
/// deadline. Between them each rank does its share of the work: it reads and writes memory of the
/// others. So the others wait at the second barrier, without a deadline, since no rank stops in
/// between. In a message the rank that comes second copies (messages.cpp).
class LocalWorld : public std::enable_shared_from_this<LocalWorld> {
 public:
  /// Throws std::bad_alloc. A world that was split off has a `parent`, and `of_all`, the numbers of
  /// its ranks in the first world.
  LocalWorld(int ranks, double deadline, std::shared_ptr<LocalWorld> parent = {},
             std::vector<int> of_all = {});

  int size() const noexcept { return static_cast<int>(places_.size()); }
  double deadline() const noexcept { return deadline_; }

  /// Transport::run() of `rank`.
  void run(int rank, const Call& call, const void* from, void* to);
  /// Transport::exchange_messages() of `rank`.
  void exchange_messages(int rank, std::span<const Message> messages);
  /// Returns the world of a part; all of its ranks get one world. Calls after the same collectives
  /// belong to one split.
  std::shared_ptr<LocalWorld> split(const SplitPart& part);
  /// Reports that `rank` makes no more calls. `thrown` is its exception's text; null: its function
  /// has returned. Calls of other ranks that need it throw RankError from now on.
  void leave(int rank, const char* thrown) noexcept;
  /// Transport::give_up() of `rank`.
  void give_up(int rank, std::string_view why) noexcept;

 private:
  struct Place {
    std::uint64_t came = 0;  ///< collectives that the rank has come to
    bool inside = false;     ///< true during a call
    bool gone = false;
  };
  /// A message that waits for the other rank, or has found it. It is on the stack of its rank.
  struct Post {
    enum State : std::uint8_t { waiting, copying, done, unlike, overlap };
    int rank;
    const Message& message;
    State state = waiting;
    Call other = {};  ///< call of the other side
  };
  struct Child {
    std::weak_ptr<LocalWorld> world;
    std::vector<int> members;
  };
  /// Reason why calls throw from now on.
  enum class Break : std::uint8_t { none, late, gone, failed, different, overlap };

  void meet(std::unique_lock<std::mutex>& lock, int rank, const Call& call, const void* from,
            void* to);
  /// Runs when all ranks have come. Invalidates the group if their calls do not fit together.
  void agree();
  void break_up(Break why, int finder, int blamed, CallKind call) noexcept;
  /// `met`: true if the call is one of those that failed, false if it came later.
  [[noreturn]] void throw_broken(int rank, CallKind kind, bool met) const;
  void note_thrown(std::string_view what) noexcept;
  void work(int rank, const Call& call) const noexcept;

  // messages.cpp
  void enter(int rank, CallKind kind);
  Post* partner_of(const Post& post) noexcept;
  void refuse_same_way(std::span<Post> posts) noexcept;
  void meet_partner(std::unique_lock<std::mutex>& lock, Post& post) noexcept;
  void wait_for(std::unique_lock<std::mutex>& lock, int rank, std::span<Post> posts);
  bool is_gone(int rank) const noexcept { return places_[static_cast<std::size_t>(rank)].gone; }
  std::string name(int rank) const { return name_of(rank, of_all_); }

  const double deadline_;
  const std::shared_ptr<LocalWorld> parent_;  // reports to this world the ranks that end
  const std::vector<int> of_all_;

  std::mutex mutex_;  // guards the members below; in between, all ranks read calls and buffers
  std::condition_variable met_;
  std::vector<Place> places_;
  std::vector<Call> calls_;
  std::vector<const void*> from_;
  std::vector<void*> to_;
  RangeCheck ranges_;
  std::vector<Post*> posts_;  // posts that wait
  /// Worlds of the parts of the last split, by the number of collectives before it.
  std::map<std::pair<std::uint64_t, int>, std::shared_ptr<LocalWorld>> parts_;
  std::vector<Child> children_;
  int arrived_ = 0, finished_ = 0;         // ranks at the first and at the second barrier
  std::uint64_t opened_ = 0, closed_ = 0;  // collectives past the first and past the second barrier

  Break break_ = Break::none;
  int finder_ = -1, blamed_ = -1;
  CallKind broken_call_ = CallKind::barrier;
  bool threw_ = false;  // true if the rank that ended or gave up threw `thrown_`
  std::string thrown_;
};

}  // namespace firn::dist
