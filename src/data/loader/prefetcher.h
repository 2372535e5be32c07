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

/// Makes the batches from a position to the end of its epoch, in any order but handed over in
/// theirs. One thread calls its functions.
class Prefetcher {
 public:
  /// Starts `workers` threads, or fewer if the system refuses them.
  Prefetcher(std::shared_ptr<const BatchMaker> maker, int workers, int depth);
  /// Waits until the threads have ended the batch that they are making.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  bool has_threads() const noexcept { return !threads_.empty(); }
  /// The batch at `position`, which is not the end of an epoch. If that is not the one after the
  /// last batch taken, all batches made so far are forgotten, and those from `position` on are
  /// begun.
  MadeBatch take(LoaderPosition position);
  /// Whether take(position) would not wait.
  bool ready(LoaderPosition position);

 private:
  void work();
  void restart(LoaderPosition position);
  LoaderPosition position_of(std::int64_t batch) const noexcept;

  const std::shared_ptr<const BatchMaker> maker_;
  const std::int64_t depth_;
  std::vector<std::thread> threads_;

  std::mutex mutex_;  // of all that follows
  std::condition_variable work_, ready_;
  bool stop_ = false;
  std::uint64_t run_ = 0;  // one more at each restart: a batch of an older run is thrown away
  std::optional<LoaderPosition> start_;
  // Batches of the run, counted from start_: in all, begun, and taken. At most depth_ are between.
  std::int64_t batches_ = 0, begun_ = 0, taken_ = 0;
  std::vector<std::optional<MadeBatch>> slots_;  // batch b in slot b % depth_
};

}  // namespace firn::data
