// The threads of a Loader, and the batches that they make ahead.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/loader/batch_maker.h"

namespace firn::data {

/// Makes the batches from a position to the end of its epoch. The threads make them in any order,
/// and take() returns them in theirs. One thread calls its functions.
class Prefetcher {
 public:
  /// Starts `workers` threads, or fewer if the system refuses them.
  Prefetcher(std::shared_ptr<const BatchMaker> maker, int workers, int depth);
  /// Waits until the threads have finished the batches that they are making.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  bool has_threads() const noexcept { return !threads_.empty(); }
  /// Returns the batch at `position`, which is not the end of an epoch. If that is not the one
  /// after the last batch taken, it drops all batches made so far, and starts again from
  /// `position`.
  MadeBatch take(LoaderPosition position);
  /// Returns true if take(position) would not wait.
  bool ready(LoaderPosition position);

 private:
  void work();
  void restart(LoaderPosition position);
  LoaderPosition position_of(std::int64_t batch) const noexcept;

  const std::shared_ptr<const BatchMaker> maker_;
  const std::int64_t depth_;
  std::vector<std::thread> threads_;

  std::mutex mutex_;  // protects all members below
  std::condition_variable work_, ready_;
  bool stop_ = false;
  std::uint64_t run_ = 0;  // incremented at each restart; batches of an older run are dropped
  std::optional<LoaderPosition> start_;
  // Numbers of batches of the run from start_ on: all, begun, taken. begun_ - taken_ is at most
  // depth_.
  std::int64_t batches_ = 0, begun_ = 0, taken_ = 0;
  std::vector<std::optional<MadeBatch>> slots_;  // batch b in slot b % depth_
};

}  // namespace firn::data
