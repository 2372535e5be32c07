// Where a loader's batches come from: made by its threads or by the caller, and put on its device.
#pragma once

#include <unistd.h>

#include <memory>
#include <optional>

#include "data/loader/batch_maker.h"
#include "data/loader/prefetcher.h"
#include "data/loader/staging.h"

namespace firn::data {

class Feed {
 public:
  explicit Feed(std::shared_ptr<const BatchMaker> maker) : maker_(std::move(maker)) {}
  ~Feed() { close(); }
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  const BatchMaker& maker() const noexcept { return *maker_; }
  /// The batch at `position`, which is not the end of an epoch, with its fields on the device.
  MadeBatch take(LoaderPosition position);
  /// If the batch at `next` is ready, its copy to the device begins now.
  void begin(LoaderPosition next) noexcept;
  /// Ends the threads.
  void close() noexcept;

 private:
  struct Ahead {
    LoaderPosition position;
    MadeBatch batch;
    std::optional<Stream> stream;  ///< that the copy was ordered with, if it has begun
  };
  MadeBatch make(LoaderPosition position);
  void send(Ahead& ahead);
  /// In a child of fork() the threads and what they had locked are the parent's.
  void forget_parent() noexcept;

  const std::shared_ptr<const BatchMaker> maker_;
  std::unique_ptr<Prefetcher> threads_;
  std::unique_ptr<Staging> staging_;  ///< unless the device is the CPU
  std::optional<Ahead> ahead_;
  pid_t process_ = 0;  ///< that made threads and staging
};

}  // namespace firn::data
