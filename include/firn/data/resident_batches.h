// Batches of images that are stored on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "firn/data/images.h"
#include "firn/data/loader.h"

namespace firn::io {
struct RunAccess;
}

namespace firn::data {

/// Images and their labels, made by next() of ResidentBatches.
struct Batch {
  Tensor x;  ///< [n, ...]: [n, pixels] if flattened, else like the images
  Tensor y;  ///< i64 [n], whatever the labels' integer dtype
};

/// Makes the batches of a Loader for the same set and options, in the same order and with the same
/// bits, from images stored on `options.device` as bytes. One kernel makes a batch and advances the
/// position in the epoch, which is kept in device memory. Each replay of a captured graph therefore
/// takes the next batch.
///
///   data::ResidentBatches batches(data::ImageDataset(images, {.dtype = f16}),
///                                 {.batch = 64, .shuffle = true, .seed = 1});
///   for (; batches.position().epoch < 5; batches.begin_epoch(batches.position().epoch + 1))
///     while (batches.remaining() > 0) { auto [x, y] = batches.next(); ... }
///
/// The first position is the start of epoch 0. Positions are those of the Loader: a run saved with
/// one continues with the other, in this loop at the same batch.
class ResidentBatches {
 public:
  /// Reads each image of the set once. If the underlying set is random itself, such as a Map with a
  /// Generator, every epoch has the images of epoch 0, unlike with a Loader.
  /// Throws Error as Loader does, and unless samples are {image, integer label []}. Also throws for
  /// options that only a Loader has: workers, prefetch, BadSample::skip, pad, collate, group,
  /// quantum.
  explicit ResidentBatches(const ImageDataset& set, const LoaderOptions& options = {});

  // After a move from this object each function throws Error.

  /// Batches per epoch.
  std::int64_t batches() const;
  /// Samples per epoch: all of the set, less a dropped last batch.
  std::int64_t samples() const;
  /// Samples of the set.
  std::int64_t set_size() const;
  /// The options that the object was made with.
  const LoaderOptions& options() const;

  /// Goes to the start of an epoch (counted from 0) and copies its order to the device. Must not be
  /// called while a graph is captured.
  void begin_epoch(std::int64_t number);
  /// Samples of this epoch that have not been taken yet, without those that drop_last leaves out.
  std::int64_t remaining() const;
  /// Samples of the next batch: options().batch, fewer at the end of an epoch, 0 after it.
  std::int64_t next_size() const;
  /// Returns the next `next_size()` or `count` samples. Throws Error if fewer remain; so does the
  /// replay of a graph, before it launches anything.
  Batch next();
  Batch next(std::int64_t count);

  /// The epoch, and how many of its samples have been taken.
  LoaderPosition position() const;
  /// Goes to a position, which may be between two batches. The next batch begins there. Throws
  /// Error unless epoch >= 0 and 0 <= sample <= set_size(), and while a graph is captured.
  void seek(LoaderPosition position);
  /// Loader::order_description() of a loader with these options.
  std::string order_description() const;

 private:
  friend struct io::RunAccess;
  /// Does the part of seek() that may throw or allocate. The returned function does the rest.
  std::function<void()> prepare_seek(LoaderPosition position) const;
  /// Returns the position before the batch that was taken last; without one, position().
  LoaderPosition before_batch() const;

  struct State;
  State& state() const;
  std::shared_ptr<State> state_;
};

}  // namespace firn::data
