// Provides a loader's batches: its threads or the caller make them, and they are put on its device.
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
  /// Returns the batch at `position`, which is not the end of an epoch, with its fields on the
  /// device.
  MadeBatch take(LoaderPosition position);
  /// Begins to copy the batch at `next` to the device, if it is ready.
  void begin(LoaderPosition next) noexcept;
  /// Ends the threads.
  void close() noexcept;

 private:
  struct Ahead {
    LoaderPosition position;
    MadeBatch batch;
    std::optional<Stream> stream;  ///< current stream when the copy began, if it has
  };
  MadeBatch make(LoaderPosition position);
  void send(Ahead& ahead);
  /// Drops the threads and their locked objects in a child of fork(), where they are the parent's.
  void forget_parent() noexcept;

  const std::shared_ptr<const BatchMaker> maker_;
  std::unique_ptr<Prefetcher> threads_;
  std::unique_ptr<Staging> staging_;  ///< null if the device is the CPU
  std::optional<Ahead> ahead_;
  pid_t process_ = 0;  ///< process that made threads and staging
};

}  // namespace firn::data
