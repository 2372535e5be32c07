// Batches of images that are stored on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "firn/data/images.h"
#include "firn/data/loader.h"

namespace firn::data {

/// Images and their labels, as ResidentBatches::next() makes them.
struct Batch {
  Tensor x;  ///< [n, pixels] if flattened, else [n, ...] with the images' shape
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
/// A new object is at the start of epoch 0. Positions are those of the Loader: a run that was saved
/// with one continues with the other, in this loop at the exact batch.
class ResidentBatches : public io::Resumable {
 public:
  /// Reads each image of the set once. If the underlying set is random itself, such as a Map with a
  /// Generator, every epoch has the images of epoch 0, unlike a Loader's. Throws Error as Loader
  /// does, and unless samples are {image, integer label []}. Throws Error for the options of a
  /// loader that have no meaning here: workers, prefetch, BadSample::skip, pad, collate, group,
  /// chunk.
  explicit ResidentBatches(const ImageDataset& set, const LoaderOptions& options = {});

  // After an object is moved from, each of its functions throws Error.

  /// Number of batches per epoch.
  std::int64_t batches() const;
  /// Number of samples per epoch: the whole set, less a dropped last batch.
  std::int64_t samples() const;
  /// Number of samples of the set.
  std::int64_t set_size() const override;
  /// Options that it was made with.
  const LoaderOptions& options() const;

  /// Goes to the start of an epoch (counted from 0) and copies its order to the device. Must not be
  /// called while a graph is captured.
  void begin_epoch(std::int64_t number);
  /// Number of samples of this epoch that are left, without those that drop_last leaves out.
  std::int64_t remaining() const;
  /// Number of samples of the next batch: options().batch, fewer at the end of an epoch, 0 after
  /// it.
  std::int64_t next_size() const;
  /// Returns the next `next_size()` or `count` samples. Throws Error if fewer remain. The replay of
  /// a graph throws it too, before anything is launched.
  Batch next();
  Batch next(std::int64_t count);

  /// The epoch, and the number of its samples that have been taken.
  LoaderPosition position() const override;
  /// Goes to a position, which may be between two batches; the batches then follow from there.
  /// Throws Error unless epoch >= 0 and 0 <= sample <= set_size(). Must not be called while a graph
  /// is captured.
  void seek(LoaderPosition position);
  /// Returns Loader::order_description() of a loader with these options.
  std::string order_description() const override;

 private:
  LoaderPosition before_batch() const override;
  std::function<void()> prepare_seek(LoaderPosition position) const override;

  struct State;
  State& state() const;
  std::shared_ptr<State> state_;
};

}  // namespace firn::data
