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
#include "firn/tensor.h"

namespace firn::io {
struct RunAccess;
}

namespace firn::data {

/// How a loader treats a sample that throws. fail: the loader throws when the batch's turn comes.
/// skip: it leaves the sample out, and warns of the first one. Only exceptions count: a sample of
/// another shape still fails its batch.
enum class BadSample : std::uint8_t { fail, skip };

struct LoaderOptions {
  std::int64_t batch = 64;  ///< samples in a batch
  bool shuffle = false;     ///< Permutation(n, ..., epoch), else the set's own order
  std::uint64_t seed = 0;   ///< seed of the order and of random numbers of samples
  /// Weights for sampling with replacement; needs shuffle. Each position draws sample i with the
  /// probability weights[i] / (sum of the weights). An epoch still has size() samples. A sample
  /// that comes twice in an epoch is the same both times, also if augmented. Empty: each sample
  /// once.
  std::vector<double> weights = {};
  /// The length of each sample, such as its number of tokens. Batches get samples of similar
  /// length, to save padding. The order is cut into windows of `window` batches. The samples of a
  /// window are sorted by length; its batches come in random order with shuffle, else by length.
  /// Empty: lengths are not used.
  std::vector<std::int64_t> lengths = {};
  std::int64_t window = 64;  ///< batches that are sorted by length together; with `lengths`
  /// Leaves out the samples of an epoch that do not fill a batch. A seek() between two batches does
  /// not change which samples are left out: the last batch of that epoch is then short.
  bool drop_last = false;
  int workers = 0;  ///< threads beside the caller; 0: the caller makes each batch when it asks
  /// Batches that are ready or in work before the caller asks; fewer than `workers` leave threads
  /// idle. 0: twice the workers.
  int prefetch = 0;
  BadSample bad_sample = BadSample::fail;  ///< how a sample that throws is treated
  bool pad = false;                        ///< collate_padded() instead of collate()
  /// Makes a batch of samples in place of both; several threads call it at once. Its tensors must
  /// be on the CPU.
  std::function<Sample(std::span<const Sample>)> collate = nullptr;
  /// Ranks that train together. A batch then has `batch` samples over all ranks, and each rank gets
  /// its share of it, as Optimizer::run_batch() divides batches (dist/distribute.h). Order,
  /// positions and random numbers of samples are those of one rank. A share may be empty: it has no
  /// fields either, and the rank calls Optimizer::no_samples() or run_batch().
  dist::Group group = {};
  /// Ranks receive multiples of this many samples. Set it to StepOptions::exact.quantum.
  std::int64_t quantum = 1;
  /// Device of the batches. On a CUDA device they come through pinned memory, by copies on a
  /// stream of the loader's own. While the loop computes with a batch, the copy of the next one
  /// runs, if `workers` have made it. Batches on the device count as Owner::data.
  Device device = default_device();
};

/// A position in the sequence of a loader's batches: `sample` samples of epoch `epoch` have been
/// taken. It is the whole state of a loader.
struct LoaderPosition {
  std::int64_t epoch = 0;   ///< from 0
  std::int64_t sample = 0;  ///< samples of the epoch that were taken

  bool operator==(const LoaderPosition&) const noexcept = default;
};

/// A batch of a Loader: the collated fields of some samples.
struct LoaderBatch {
  Sample fields;            ///< each [n, ...], on the loader's device
  Tensor ids;               ///< i64 [n] on the CPU: the numbers of the samples in the set
  LoaderPosition position;  ///< position after this batch: seek() to it continues with the next one
  std::int64_t first = 0;   ///< index of the first sample in the batch of all ranks
  std::int64_t total = 0;   ///< samples in the batch of all ranks

  std::int64_t size() const { return ids.defined() ? ids.numel() : 0; }  ///< n; 0 if default-made
  /// Returns field i; x() is field 0 and y() is field 1. All throw Error if there is no such field.
  const Tensor& operator[](std::size_t i) const;
  const Tensor& x() const { return (*this)[0]; }
  const Tensor& y() const { return (*this)[1]; }
  /// Returns samples [first, last) of the batch of all ranks, as views, for the function that
  /// run_batch() calls. Throws Error unless this rank has all of them. It lacks some if the loader
  /// and the optimizer divide batches differently, or if BadSample::skip has left one out.
  LoaderBatch part(std::int64_t first, std::int64_t last) const;
};

/// Counters and times of a loader.
struct LoaderStats {
  std::int64_t samples = 0;  ///< samples delivered
  std::int64_t batches = 0;  ///< batches delivered
  std::int64_t bytes = 0;    ///< bytes of their fields
  std::int64_t skipped = 0;  ///< samples left out by BadSample::skip
  double waited = 0;         ///< seconds that the caller spent in the loader
  double seconds = 0;        ///< from the first batch asked for to the last one delivered

  /// Samples divided by `seconds`; 0 before the first batch.
  double samples_per_second() const noexcept {
    return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
  }
};

/// Delivers a data set in batches, epoch after epoch:
///
///   data::Loader loader(set, {.batch = 128, .shuffle = true, .seed = 1, .workers = 2});
///   for (int epoch = 0; epoch < 5; ++epoch)
///     for (auto& batch : loader.epoch(epoch)) train(batch.x(), batch.y());
///
/// A loop starts its epoch from the beginning, even if an earlier loop over it was left. Only the
/// first loop after seek(), io::load_run() or a resume starts at that position instead. So
/// seek(position()) continues where a loop was left. A loop that runs during a seek() cannot
/// continue: its next step throws Error, so leave it by `break`.
///
/// The order is a function of (seed, epoch, position). The random numbers of a sample are a
/// function of (seed, epoch, id). Threads, prefetching and restarts change no bit. Each epoch has
/// its own order, and each batch has consecutive positions. A batch that cannot be made throws when
/// its turn comes: SampleError if a sample is to blame, whose index() names it, else Error. The
/// position then stays before that batch; seek() past it to continue. A RollbackPoint restores a
/// loader, and with it the loop that was running at that time. A loop cannot be part of a captured
/// graph.
///
/// One thread at a time uses a loader. The loader runs its own threads from the first batch on;
/// each computes on one CPU thread. A child of fork() starts threads of its own.
class Loader {
 public:
  /// Throws Error unless batch >= 1, workers and prefetch are 0 to 1024, window >= 1, and at most
  /// one of `pad` and `collate` is given. Throws Error if there are weights or lengths, but not one
  /// for each sample; if a weight is negative or not finite, or their sum is not positive; and if
  /// there are weights without shuffle.
  explicit Loader(Dataset set, LoaderOptions options = {});
  /// Waits until its threads have finished the batches that they are making.
  ~Loader();
  Loader(Loader&& other) noexcept;
  Loader& operator=(Loader&& other) noexcept;

  // After a move from this object each function throws Error.

  /// batches() and samples() per epoch: all of the set, less a dropped last batch. A seek() does
  /// not change which samples are dropped.
  std::int64_t batches() const;
  std::int64_t samples() const;
  /// The options that the loader was made with.
  const LoaderOptions& options() const;
  /// The set whose samples the loader delivers.
  const Dataset& dataset() const;
  /// Returns a text of everything that the order of the samples depends on. If two loaders have
  /// equal texts, a position means the same in both. The text leaves out batch size and threads;
  /// with `lengths` it has the batch size, since batches are then made with the order.
  std::string order_description() const;

  /// Returns the position after the last batch delivered; in the body of a loop that is the current
  /// batch. After the last batch of epoch e it is {e, samples()}, unless a seek() went between two
  /// batches. The end of the loop moves it to {e + 1, 0}.
  LoaderPosition position() const;
  /// Goes to a position, which may be between two batches of this loader. The next batch begins
  /// there. The time does not depend on the size of the set. Throws Error unless epoch >= 0 and
  /// 0 <= sample <= set.size().
  void seek(LoaderPosition position);

  class Iterator;
  class Epoch;
  /// Returns all batches of epoch `number`. If the last call that moved the loader was a seek() or
  /// io::load_run() into that epoch, returns the rest from there. The first epoch without any batch
  /// gives a warning. Throws Error if number < 0.
  Epoch epoch(std::int64_t number);
  /// Begins the epoch after that of the last loop, even if `break` left that loop. The first loop
  /// has epoch 0. After seek() or io::load_run(), begins the rest of the epoch that they went to.
  /// That rest is empty if the run was saved in the body of the epoch's last batch.
  Iterator begin();
  std::default_sentinel_t end() const noexcept { return {}; }

  /// Counters and times since the loader was made.
  LoaderStats stats() const;

 private:
  friend struct io::RunAccess;
  /// Does the part of seek() that may throw or allocate. The returned function does the rest.
  std::function<void()> prepare_seek(LoaderPosition position) const;
  /// Returns the position before the current batch; without one, position().
  LoaderPosition before_batch() const;

  struct State;
  State& state() const;
  std::shared_ptr<State> state_;
};

/// A range of batches for one pass.
class Loader::Epoch {
 public:
  /// Goes to the epoch's start, or stays where seek() went within it, and makes the first batch.
  Iterator begin() const;
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  friend class Loader;
  Epoch(std::shared_ptr<State> state, std::int64_t number);
  std::shared_ptr<State> state_;
  std::int64_t number_;
};

/// Input iterator on the loader's current batch. It is at its end when the epoch is, and once
/// seek(), io::load_run(), another loop or a RollbackPoint has moved the loader away from this
/// loop. * and ++ then throw Error; so does ++ if the loader was destroyed.
class Loader::Iterator {
 public:
  using iterator_concept = std::input_iterator_tag;
  using value_type = LoaderBatch;
  using difference_type = std::ptrdiff_t;

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
  std::uint64_t loop_ = 0;  // the number of this loop among the loader's
};

}  // namespace firn::data
