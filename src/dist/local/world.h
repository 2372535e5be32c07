// What ranks that are threads share: where each one is, and how they wait for each other.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "dist/local/range_check.h"
#include "dist/transport.h"

namespace firn::dist {

/// A collective has two meetings. At the first, ranks wait until all have come, at most until the
/// deadline. Between them each rank does its share of the work: it reads and writes memory of the
/// others, which therefore wait at the second meeting, and without a deadline, since nobody stops
/// on the way.
class LocalWorld {
 public:
  /// Throws std::bad_alloc.
  LocalWorld(int ranks, double deadline);

  int size() const noexcept { return static_cast<int>(places_.size()); }
  double deadline() const noexcept { return deadline_; }

  /// Transport::run() of `rank`.
  void run(int rank, const Call& call, const void* from, void* to);
  /// `rank` makes no more calls: its function has returned, or `thrown` is what it threw. Others
  /// that wait for it, or will, throw RankError.
  void leave(int rank, const char* thrown) noexcept;

 private:
  struct Place {
    std::uint64_t came = 0;  ///< collectives that the rank has come to
    bool inside = false;     ///< in one
    bool gone = false;
  };
  /// Why calls throw from now on.
  enum class Break : std::uint8_t { none, late, gone, different, overlap };

  void meet(std::unique_lock<std::mutex>& lock, int rank, const Call& call, const void* from,
            void* to);
  /// All ranks have come: breaks the group if what they give does not fit together.
  void agree();
  void break_up(Break why, int finder, int blamed, CallKind call) noexcept;
  /// `met`: the call is one of those that broke the group, and no later one.
  [[noreturn]] void throw_broken(int rank, CallKind kind, bool met) const;
  void work(int rank, const Call& call) const noexcept;

  const double deadline_;

  std::mutex mutex_;  // of all that follows; during the work all ranks read calls and buffers
  std::condition_variable met_;
  std::vector<Place> places_;
  std::vector<Call> calls_;
  std::vector<const void*> from_;
  std::vector<void*> to_;
  RangeCheck ranges_;
  int arrived_ = 0, finished_ = 0;         // ranks at the first and at the second meeting
  std::uint64_t opened_ = 0, closed_ = 0;  // collectives past the first and past the second

  Break break_ = Break::none;
  int finder_ = -1, blamed_ = -1;
  CallKind broken_call_ = CallKind::barrier;
  bool threw_ = false;  // the rank that has ended, and what it threw
  std::string thrown_;
};

}  // namespace firn::dist
