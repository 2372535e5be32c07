// Batches of a labelled set of images that is stored on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "firn/data/batches.h"
#include "firn/data/loader.h"

namespace firn::io {
struct RunAccess;
}

namespace firn::data {

/// Makes the batches of Batches, in the same order and with the same bits, from a set stored on
/// `options.device` as bytes. One kernel makes a batch and advances the position in the epoch,
/// which is kept in device memory. Each replay of a captured graph therefore takes the next batch.
///
///   ResidentBatches batches(set.train, {.batch_size = 64, .seed = 1, .dtype = f16});
///   for (int epoch = 0; epoch < 5; ++epoch) {
///     batches.begin_epoch(epoch);
///     while (batches.remaining() > 0) { auto [x, y] = batches.next(); ... }
///   }
class ResidentBatches {
 public:
  /// Throws Error as Batches does. After a move from this object each function throws Error.
  explicit ResidentBatches(const LabelledImages& set, const BatchOptions& options = {});

  /// Batches per epoch.
  std::int64_t size() const;
  /// Samples per epoch: all of the set, less a dropped last batch.
  std::int64_t samples() const;
  /// Samples of the set.
  std::int64_t set_size() const;
  const BatchOptions& options() const;

  /// Goes to the start of an epoch (counted from 0) and copies its order to the device. Call it
  /// before the first next(), and not while a graph is captured.
  void begin_epoch(std::int64_t number);
  /// Samples of this epoch that have not been taken yet.
  std::int64_t remaining() const;
  /// Samples of the next batch: batch_size, fewer at the end of an epoch, 0 after it.
  std::int64_t next_size() const;
  /// The next `next_size()` or `count` samples. Throws Error if fewer remain; so does the replay
  /// of a graph, before anything is launched.
  Batch next();
  Batch next(std::int64_t count);

  /// The epoch, and how many of its samples have been taken: {e, samples()} at its end.
  LoaderPosition position() const;
  /// Goes to a position, also to one between two batches; batches then follow from there. Throws
  /// Error unless epoch >= 0 and 0 <= sample <= set_size(). Not while a graph is captured.
  void seek(LoaderPosition position);
  /// As Loader::order_description().
  std::string order_description() const;

 private:
  friend struct io::RunAccess;
  /// The part of seek() that may throw, or take memory. The result does the rest.
  std::function<void()> prepare_seek(LoaderPosition position) const;

  struct State;
  State& state() const;
  std::shared_ptr<State> state_;
};

}  // namespace firn::data
