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

/// What a loader does with a sample that throws: it fails in its turn, or leaves the sample out.
/// The first one that is left out is a warning. Only exceptions count, not samples of another
/// shape.
enum class BadSample : std::uint8_t { fail, skip };

struct LoaderOptions {
  std::int64_t batch = 64;  ///< samples in a batch
  bool shuffle = false;     ///< Permutation(n, ..., epoch), else the set's own order
  std::uint64_t seed = 0;   ///< of the order and of what is random about samples
  /// With shuffle: each position is a draw with replacement, of sample i with the probability
  /// weights[i] / (sum of the weights). An epoch still has size() samples. One that comes twice in
  /// an epoch is the same both times, also if it is augmented. Empty: each sample once.
  std::vector<double> weights = {};
  /// The length of each sample, such as its tokens: batches get samples of like length, so that
  /// little is padded. The order is cut into windows of `window` batches; the samples of each are
  /// sorted by length, and its batches come in a random order (with shuffle, else by length).
  /// Empty: lengths play no part.
  std::vector<std::int64_t> lengths = {};
  std::int64_t window = 64;  ///< batches that are sorted by length together; with `lengths`
  /// Leave out the samples of an epoch that do not fill a batch. A seek() between two batches moves
  /// no sample out: the last batch of that epoch is then short.
  bool drop_last = false;
  int workers = 0;  ///< threads beside the caller; 0: the caller makes a batch in its turn
  /// Batches that are ready or in work before they are asked for; fewer than `workers` leave
  /// threads idle. 0: twice the workers.
  int prefetch = 0;
  BadSample bad_sample = BadSample::fail;  ///< what becomes of a sample that throws
  bool pad = false;                        ///< collate_padded() instead of collate()
  /// Makes a batch of samples in place of both; several threads call it at once. Its tensors must
  /// be on the CPU.
  std::function<Sample(std::span<const Sample>)> collate = nullptr;
  /// Ranks that train together. A batch then has `batch` samples over all ranks, and each rank gets
  /// its part of it, divided as by Optimizer::run_batch() (dist/distribute.h). Order, positions and
  /// what is random about a sample are those of one rank. A part may have no samples: it has no
  /// fields either, and the rank calls Optimizer::no_samples() or run_batch().
  dist::Group group = {};
  /// Parts consist of runs of so many samples: the quantum of StepOptions::exact.
  std::int64_t quantum = 1;
  /// Where batches are put. On a CUDA device they come through pinned memory, by copies on a stream
  /// of the loader's own: while the loop computes with a batch, the next one is on its way if
  /// `workers` have made it. Batches on the device count as Owner::data.
  Device device = default_device();
};

/// A place in the sequence of a loader's batches. All that has to be saved of a loader.
using LoaderPosition = io::BatchPosition;

/// What a Loader delivers: the collated fields of some samples.
struct LoaderBatch {
  Sample fields;            ///< each [n, ...], on the loader's device
  Tensor ids;               ///< i64 [n] on the CPU: the numbers of the samples in the set
  LoaderPosition position;  ///< after this batch: seek() there to go on with the next one
  std::int64_t first = 0;   ///< place of the first sample in the batch of all ranks
  std::int64_t total = 0;   ///< samples of that batch

  std::int64_t size() const { return ids.defined() ? ids.numel() : 0; }  ///< n; 0 of LoaderBatch{}
  /// Field i. Throws Error if there is none, as x() and y() do: fields 0 and 1.
  const Tensor& operator[](std::size_t i) const;
  const Tensor& x() const { return (*this)[0]; }
  const Tensor& y() const { return (*this)[1]; }
  /// Samples [first, last) of the batch of all ranks, as views: what the function of run_batch() is
  /// asked for. Throws Error unless this rank has all of them: the loader and the optimizer then
  /// divide batches differently, or BadSample::skip has left one out. Throws Error for a field that
  /// does not have one row for each sample, which a `collate` of your own may return.
  LoaderBatch part(std::int64_t first, std::int64_t last) const;
};

/// What a loader has done so far.
struct LoaderStats {
  std::int64_t samples = 0;  ///< delivered
  std::int64_t batches = 0;  ///< delivered
  std::int64_t bytes = 0;    ///< of their fields
  std::int64_t skipped = 0;  ///< samples left out by BadSample::skip
  double waited = 0;         ///< seconds that the caller spent in the loader
  double seconds = 0;        ///< from the first batch asked for to the last one delivered

  /// Over `seconds`; 0 before the first batch.
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
/// A loop begins its epoch anew, also if somebody has looked at a batch or a loop was left before.
/// The first loop after seek(), io::load_run() or a resume begins where that went instead, within
/// its epoch: seek(position()) goes on where a loop was left. A loop that is under way meanwhile
/// does not go on: its next step throws Error, so leave it by `break`.
///
/// The order is a function of (seed, epoch, position), and what is random about a sample one of
/// (seed, epoch, id). Threads, prefetching and restarts change no bit. Each epoch has its own
/// order, and each batch is a row of consecutive positions. A batch that cannot be made throws when
/// its turn comes: SampleError if a sample is to blame, whose index() names it, else Error. The
/// position then stays before that batch; seek() past it to go on. A RollbackPoint puts a loader
/// back, and with it the loop that was under way at that time. A loop cannot be part of a captured
/// graph.
///
/// One thread at a time uses a loader, and its data set does not use it: such calls throw Error
/// while a batch is made. It runs its own threads from the first batch on; each
/// computes on one CPU thread. A child of fork() starts threads of its own.
class Loader : public io::Resumable {
 public:
  /// Throws Error unless batch >= 1, workers and prefetch are 0 to 1024, window >= 1, and at most
  /// one of `pad` and `collate` is given. Throws Error if there are weights or lengths, but not one
  /// for each sample; if a weight is negative or not finite, or their sum is not positive; and if
  /// there are weights without shuffle.
  explicit Loader(Dataset set, LoaderOptions options = {});
  /// Waits until its threads have made the batches that they are at.
  ~Loader() override;
  Loader(Loader&& other) noexcept;
  Loader& operator=(Loader&& other) noexcept;

  // After a move from this object each function throws Error.

  /// Batches per epoch, and samples: all of the set, less a dropped last batch. What is dropped is
  /// the same wherever a seek() goes.
  std::int64_t batches() const;
  std::int64_t samples() const;
  /// Those that it was made with.
  const LoaderOptions& options() const;
  /// The set whose samples it delivers.
  const Dataset& dataset() const;
  /// Describes all that the order of the samples depends on: positions of another loader mean the
  /// same here if the texts are equal. Batch size and threads are no part of it, unless `lengths`
  /// are given: batches are then made with the order.
  std::string order_description() const override;

  /// Behind the last batch that was delivered. In the body of a loop that is the batch in hand, and
  /// after the last batch of epoch e {e, samples()}, if batches are whole since then. The end of
  /// the loop moves it to {e + 1, 0}.
  LoaderPosition position() const override;
  /// Goes to a position, also to one between two batches of this loader; batches then follow from
  /// there. Takes no longer for a large set. Throws Error unless epoch >= 0 and 0 <= sample <=
  /// set.size().
  void seek(LoaderPosition position);

  class Iterator;
  class Epoch;
  /// The batches of epoch `number`: all of them. Only if seek() or io::load_run() was the last that
  /// moved the loader, and went into that epoch, it is the rest from there on. An epoch without any
  /// batch is a warning, once. Throws Error if number < 0.
  Epoch epoch(std::int64_t number);
  /// The batches of the next epoch: the one after that of the last loop, also if that was left by
  /// `break`. The first loop has epoch 0. After seek() or io::load_run() it is the rest of the
  /// epoch that these went to: none, if the run was saved in the body of the epoch's last batch.
  Iterator begin();
  std::default_sentinel_t end() const noexcept { return {}; }

  /// What it has done since it was made.
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
  /// Goes to the epoch's start, or stays where seek() went in it, and makes the first batch.
  Iterator begin() const;
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  friend class Loader;
  Epoch(std::shared_ptr<State> state, std::int64_t number);
  std::shared_ptr<State> state_;
  std::int64_t number_;
};

/// Input iterator on the batch that the loader has in hand. It is at its end when the epoch is, and
/// also once seek(), io::load_run(), another loop or a RollbackPoint has moved the loader away from
/// this loop. * and ++ then throw Error; so does ++ if the loader was destroyed.
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
