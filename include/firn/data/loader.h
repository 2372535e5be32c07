// The Loader: batches of a data set, made by threads ahead of the training, in an order that
// depends on the seed alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "firn/data/dataset.h"
#include "firn/device.h"
#include "firn/dist/group.h"
#include "firn/io/resumable.h"
#include "firn/tensor.h"

namespace firn::data {

/// Treatment of a sample that throws. `fail` throws when the turn of its batch comes. `skip` makes
/// the batch smaller by each such sample, and warns about the first one. A batch without good
/// samples is left out on one rank, and has no fields if there are several. Only exceptions count,
/// not samples of another shape.
enum class BadSample : std::uint8_t { fail, skip };

struct LoaderOptions {
  std::int64_t batch = 64;  ///< samples in a batch
  bool shuffle = false;     ///< Permutation(n, ..., epoch); else the set's own order
  std::uint64_t seed = 0;   ///< seed of the order and of the samples' random numbers
  /// With shuffle: each position draws a sample with replacement, sample i with the probability
  /// weights[i] / (sum of the weights). An epoch still has size() samples. If a sample comes twice
  /// in an epoch, both copies are equal, even if augmented. Empty: each sample comes once.
  std::vector<double> weights = {};
  /// Length of each sample, such as its number of tokens. Batches then have samples of similar
  /// length, so that little is padded. The order is cut into windows of `window` batches, and the
  /// samples of a window are sorted by length. With shuffle, the batches of a window come in a
  /// random order, else by length. Empty: lengths play no part.
  std::vector<std::int64_t> lengths = {};
  std::int64_t window = 64;  ///< number of batches sorted together; used with `lengths`
  /// Leaves out the samples of an epoch that do not fill a batch. A seek() into the middle of a
  /// batch leaves out the same samples. The epoch then ends with a short batch.
  bool drop_last = false;
  int workers = 0;  ///< number of worker threads; 0: the caller makes each batch
  /// Number of batches that the workers make ahead. With fewer than `workers`, some threads are
  /// idle. 0: twice the workers.
  int prefetch = 0;
  BadSample bad_sample = BadSample::fail;  ///< treatment of a sample that throws
  bool pad = false;                        ///< true: collate_padded() instead of collate()
  /// Makes a batch of samples in place of either. Several threads call it at once. Its tensors must
  /// be on the CPU.
  std::function<Sample(std::span<const Sample>)> collate = nullptr;
  /// Ranks that train together. A batch then has `batch` samples over all ranks, and each rank gets
  /// its share, divided as Optimizer::run_batch() divides it (dist/distribute.h). Order, positions
  /// and the random numbers of a sample do not depend on the number of ranks. A rank's share may
  /// have no samples and then no fields; the rank then calls Optimizer::no_samples() or
  /// run_batch().
  dist::Group group = {};
  /// Ranks receive multiples of this many samples. Set it to the chunk of StepOptions::exact.
  std::int64_t chunk = 1;
  /// Device of the batches. Batches for a CUDA device pass through pinned memory, and the loader's
  /// own stream copies them. The next batch is copied while the loop computes with this one, if
  /// `workers` have made it. Batches on the device count as Owner::data.
  Device device = default_device();
};

/// Position of a loader: `epoch`, from 0, and `sample`, the samples that all ranks together have
/// taken in it. It is all of a loader's state that has to be saved.
using LoaderPosition = io::BatchPosition;

/// A batch of a Loader: the collated fields of some samples.
struct LoaderBatch {
  Sample fields;            ///< each [n, ...], on the loader's device
  Tensor ids;               ///< i64 [n] on the CPU: the samples' numbers in the set
  LoaderPosition position;  ///< after this batch; seek() to it to continue
  std::int64_t first = 0;   ///< place of the first sample in the batch of all ranks
  std::int64_t total = 0;   ///< number of samples in that batch

  std::int64_t size() const { return ids.defined() ? ids.numel() : 0; }  ///< n; 0 for LoaderBatch{}
  /// Returns field i. Throws Error if it does not exist, as do x() and y(), which return fields 0
  /// and 1.
  const Tensor& operator[](std::size_t i) const;
  const Tensor& x() const { return (*this)[0]; }
  const Tensor& y() const { return (*this)[1]; }
  /// Returns the samples [first, last) of the batch of all ranks, as views, for the function of
  /// run_batch(). Throws Error unless this rank has all of them. If it lacks some, the loader and
  /// the optimizer divide batches differently, or BadSample::skip has left one out. It also throws
  /// Error for a field that does not have one row for each sample, which a `collate` may return.
  LoaderBatch part(std::int64_t first, std::int64_t last) const;
};

/// Counts and times of a loader since it was made. With ranks, they are of this rank's share.
struct LoaderStats {
  std::int64_t samples = 0;  ///< samples delivered
  std::int64_t batches = 0;  ///< batches delivered
  std::int64_t bytes = 0;    ///< bytes of their fields
  std::int64_t skipped = 0;  ///< samples left out by BadSample::skip
  double waited = 0;         ///< seconds that the caller spent in the loader
  double seconds = 0;        ///< from the first request to the last delivery

  /// Returns samples / seconds; 0 before the first batch.
  double samples_per_second() const noexcept {
    return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
  }
};

/// Delivers a data set in batches, epoch after epoch:
///
///   data::Loader loader(set, {.batch = 128, .shuffle = true, .seed = 1, .workers = 2});
///   for (int epoch = 0; epoch < 5; ++epoch)
///     for (auto& batch : loader.epoch(epoch)) train_on(batch.x(), batch.y());
///
/// A loop begins its epoch anew, even if an earlier loop was left early. The first loop after
/// seek(), io::load_run() or a resume instead begins at the position that these set, within its
/// epoch. So seek(position()) continues where a loop was left. A seek() ends the loop that is
/// running: its next step throws Error, so leave it by `break`.
///
/// The order depends on (seed, epoch, position) alone, and the random numbers of a sample on (seed,
/// epoch, id) alone. Threads, prefetching and restarts do not change a bit. Each epoch has its own
/// order, and a batch has consecutive positions. A batch that cannot be made throws when its turn
/// comes: SampleError if a sample is to blame, whose index() names it, else Error. The position
/// then stays before that batch; seek() past it to continue. A RollbackPoint restores a loader
/// together with the loop that was running at that time. A captured graph cannot contain a loop.
///
/// One thread at a time uses a loader, and its data set must not use it: such calls throw Error
/// while a batch is made. The loader starts its workers with the first batch; each computes on one
/// CPU thread. A child of fork() starts its own workers.
class Loader : public io::Resumable {
 public:
  /// Throws Error unless batch >= 1, workers and prefetch are 0 to 1024, window >= 1, and at most
  /// one of `pad` and `collate` is given. Throws Error if weights or lengths are given, but not one
  /// for each sample. Throws Error if a weight is negative or not finite, if their sum is not
  /// positive, or if weights are given without shuffle.
  explicit Loader(Dataset set, LoaderOptions options = {});
  /// Waits until its threads have finished the batches that they are making.
  ~Loader() override;
  Loader(Loader&& other) noexcept;
  Loader& operator=(Loader&& other) noexcept;

  // After an object is moved from, each of its functions throws Error.

  /// Return the numbers of batches and of samples in an epoch, over all ranks: the whole set, less
  /// a dropped last batch. A seek() does not change which samples are dropped.
  std::int64_t batches() const;
  std::int64_t samples() const;
  /// Options that the loader was made with.
  const LoaderOptions& options() const;
  /// The set whose samples the loader delivers.
  const Dataset& dataset() const;
  /// Describes everything that the order of the samples depends on. If two loaders have equal
  /// texts, a position means the same place in both. Batch size and threads are left out, unless
  /// `lengths` are given: the order then depends on the batch size.
  std::string order_description() const override;

  /// Returns the position after the last batch that was delivered. In the body of a loop that is
  /// the current batch. After the last batch of epoch e it is {e, samples()}. The end of the loop
  /// moves it to {e + 1, 0}.
  LoaderPosition position() const override;
  /// Moves the loader to any sample of an epoch. The next batch begins with that sample, also in
  /// the middle of an earlier batch. The time does not depend on the size of the set. Throws Error
  /// unless epoch >= 0 and 0 <= sample <= set.size().
  void seek(LoaderPosition position);

  class Iterator;
  class Epoch;
  /// Returns all batches of epoch `number`. If seek() or io::load_run() was the last to move the
  /// loader, and went into that epoch, returns the rest of it. Warns once about an epoch without
  /// batches. Throws Error if number < 0.
  Epoch epoch(std::int64_t number);
  /// Begins the epoch after that of the last loop, even if that loop was left by `break`. The first
  /// loop has epoch 0. After seek() or io::load_run() it is the rest of the epoch that these went
  /// to. Nothing is left if the run was saved in the body of the epoch's last batch.
  Iterator begin();
  std::default_sentinel_t end() const noexcept { return {}; }

  /// Returns the counts since the loader was made.
  LoaderStats stats() const;

 private:
  std::int64_t set_size() const override { return dataset().size(); }
  LoaderPosition before_batch() const override;
  std::function<void()> prepare_seek(LoaderPosition position) const override;

  struct State;
  State& state() const;
  std::shared_ptr<State> state_;
};

/// A range of batches for one pass.
class Loader::Epoch {
 public:
  /// Goes to the epoch's start, or to where seek() went in the epoch, and makes the first batch.
  Iterator begin() const;
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  friend class Loader;
  Epoch(std::shared_ptr<State> state, std::int64_t number);
  std::shared_ptr<State> state_;
  std::int64_t number_;
};

/// Input iterator on the loader's current batch. It is at its end when the epoch is. It is there
/// too once seek(), io::load_run(), another loop or a RollbackPoint has moved the loader away from
/// this loop. * and ++ then throw Error; ++ also throws if the loader was destroyed.
class Loader::Iterator {
 public:
  using iterator_concept = std::input_iterator_tag;
  using value_type = LoaderBatch;
  using difference_type = std::ptrdiff_t;

  /// Returns the loader's current batch. ++ overwrites it; tensors copied out of it stay valid.
  LoaderBatch& operator*() const;
  LoaderBatch* operator->() const { return &**this; }
  Iterator& operator++();
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const noexcept;

 private:
  friend class Loader;
  explicit Iterator(std::shared_ptr<State> state);
  void advance();
  std::shared_ptr<State> state_;
  std::uint64_t loop_ = 0;  // number of this loop among the loader's loops
};

}  // namespace firn::data
