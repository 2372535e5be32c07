// fit() is the training loop that people write by hand, with validation, metrics, a log,
// checkpoints and a clean end.
//
//   data::Loader loader(train_set, {.batch = 64, .shuffle = true, .seed = 1});
//   data::Loader test(test_set, {.batch = 256});
//   train::fit(net, opt, loader,
//              [](const Tensor& out, const Tensor& y) { return cross_entropy(out, y); },
//              {.epochs = 5, .validate = &test, .log = {.path = "run.jsonl"},
//               .checkpoint = {.folder = "run"}});
//
// It gives the same bits as the written loop: for each epoch, set_epoch(), then backward() and
// step() for each batch, then flush().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "firn/data/loader.h"
#include "firn/dist/group.h"
#include "firn/io/checkpoints.h"
#include "firn/memory.h"
#include "firn/metrics/metric.h"
#include "firn/optim/micro_batch.h"
#include "firn/optim/optimizer.h"
#include "firn/train/record.h"

namespace firn {
struct Loss;
}
namespace firn::data {
class ResidentBatches;
}
namespace firn::nn {
class Module;
}

namespace firn::train {

class Loop;

/// Results of an epoch.
struct EpochReport {
  std::int64_t epoch = 0;    ///< counted from 1
  std::int64_t samples = 0;  ///< samples trained on, over all ranks
  /// Mean loss of the first optimizer over the epoch's samples, as the weights changed. NaN if no
  /// loss counted, because none was finite or had a weight.
  double train_loss = 0;
  /// Training loss of each optimizer, by its name.
  std::vector<metrics::Value> train_losses;
  /// True if there is a validation loss.
  bool validated = false;
  /// Mean over the samples of FitOptions::validate, or the "loss" of FitOptions::evaluate. NaN if
  /// there is none, and if no sample has a weight.
  double validation_loss = 0;
  /// Values of FitOptions::metrics and FitOptions::evaluate, and values that callbacks have added.
  std::vector<metrics::Value> metrics;
  /// Members other than numbers that metrics and callbacks add to the record of the epoch, such as
  /// a confusion matrix.
  Record details;
  double lr = 0;                   ///< first optimizer's learning rate in the epoch's last step
  double loss_scale = 1;           ///< first optimizer's loss scale in the epoch's last step
  std::int64_t applied_steps = 0;  ///< steps that the first optimizer applied since it was made
  std::int64_t skipped_steps = 0;  ///< its cycles since then that did not change the weights
  /// Seconds that fit() has trained in this epoch, without checkpoints and evaluation. A resumed
  /// epoch counts only the part after the resume.
  double seconds = 0;
  double data_seconds = 0;        ///< part of `seconds` in the Loader; 0 with ResidentBatches
  double validation_seconds = 0;  ///< time of evaluation
  double saving_seconds = 0;      ///< time of checkpoints since the previous report
  double samples_per_second = 0;  ///< samples trained on in `seconds`, over all ranks
  MemoryStats training_memory;    ///< peaks since the epoch's start, without evaluation
  std::size_t peak_bytes = 0;     ///< peak since the epoch's start, with evaluation

  /// Returns the metric of this name; "loss" is validation_loss, or train_loss if not `validated`.
  /// If there is no such metric, throws Error, which names the existing ones.
  double value(const std::string& name) const;
};

/// Reason why fit() has returned.
enum class Ended : std::uint8_t { epochs, early_stop, limit, interrupted, asked };
/// Returns the reason as a word: "epochs", "early_stop", "limit", "interrupted" or "asked".
const char* to_string(Ended ended) noexcept;

/// Results of a call of fit().
struct FitReport {
  Ended ended = Ended::epochs;  ///< reason why it has returned
  std::int64_t epochs = 0;      ///< whole epochs, with those before a resume
  /// Report of the last whole epoch. If training has ended within an epoch, it covers that partial
  /// epoch, evaluated unless a signal has ended it. If nothing was left to train, it is the
  /// checkpoint's last whole epoch, without times, memory and details.
  EpochReport last;
  std::int64_t applied_steps = 0;      ///< steps that the first optimizer applied since it was made
  std::optional<double> best;          ///< best value that EarlyStop names
  std::int64_t best_epoch = 0;         ///< counted from 1; 0: none
  std::optional<std::string> resumed;  ///< checkpoint that the run continued from
};

/// Functions that fit() calls, on all ranks. A resume restores the random stream of each rank.
/// Callbacks must not call seed_thread() in a resumed run, since that restarts the stream: call it
/// before fit().
struct Callbacks {
  std::function<void(Loop&)> on_start = nullptr;  ///< after a resume, before the first batch
  /// Called at the start of an epoch, but not for the rest of an epoch with which a resumed run
  /// begins.
  std::function<void(Loop&)> on_epoch_start = nullptr;
  /// Called after each batch that was given to the step function.
  std::function<void(Loop&)> on_batch = nullptr;
  /// Called after each cycle that an optimizer has ended, applied or skipped. On a CUDA device the
  /// host then waits for each step. If a batch has several steps of one optimizer, it waits for the
  /// last one.
  std::function<void(Loop&, const std::string& optimizer, const optim::StepReport&)> on_step =
      nullptr;
  /// Called after evaluation, before the epoch is printed, logged and saved. It may add metrics and
  /// details, which must be equal on all ranks.
  std::function<void(Loop&, EpochReport&)> on_epoch_end = nullptr;
};

/// The running loop, which callbacks get.
class Loop {
 public:
  virtual ~Loop() = default;
  virtual std::int64_t epoch() const = 0;          ///< current epoch, counted from 1
  virtual std::int64_t epochs() const = 0;         ///< FitOptions::epochs
  virtual std::int64_t samples() const = 0;        ///< samples trained on in this epoch
  virtual std::int64_t epoch_samples() const = 0;  ///< samples of a whole epoch
  virtual double seconds() const = 0;              ///< time since fit() was called
  /// Ends training after the current batch, with a checkpoint. If that is the epoch's last batch,
  /// the epoch is finished. A call in on_epoch_end ends training with this epoch. A call in
  /// on_start ends it before the first batch, without a checkpoint; one in on_epoch_start, after
  /// the next batch. If one rank calls it, all ranks end.
  virtual void stop() = 0;
  /// Adds a record to the log, on rank 0; without LogOptions::path it writes nothing. Throws Error
  /// for a record without a kind, and for the kinds run, step, memory, epoch and end.
  virtual void write(const Record& record) = 0;
};

/// The log (record.h): a record "run" at the start, "epoch" after each epoch, "end" at the end.
struct LogOptions {
  /// File of the log; empty: no log. A fresh run empties an existing file; a resumed one cuts it
  /// back to its checkpoint.
  std::string path = {};
  /// Writes a record "step" for each n-th applied step, and for each skipped one, and records
  /// "memory" of one cycle; 0: none. On a CUDA device the host then waits for each step.
  std::int64_t every = 0;
  /// Additional members of "settings" in the record "run": the program's own options.
  Record settings = {};
};

/// Checkpoints of the run (io/checkpoints.h), which fit() saves after every epoch and at the end.
struct CheckpointPlan {
  std::string folder = {};  ///< empty: none
  std::int64_t every = 0;   ///< also saves every n applied steps of the first optimizer; 0: no
  int keep = 3;             ///< newest checkpoints to keep, besides the best epoch's (EarlyStop)
  bool async = false;       ///< true: a thread writes the files
  /// True: the run continues from the newest checkpoint, if there is one. False: checkpoints in the
  /// folder are an error.
  bool resume = true;
  std::vector<io::RunPart> parts = {};  ///< saved with modules, optimizers and data
};

/// Selects the value that ranks the epochs, and ends training when it no longer improves.
struct EarlyStop {
  std::string value = "loss";  ///< see EpochReport::value()
  bool highest = false;        ///< true: higher values are better
  /// Number of epochs in a row without a better value that ends the training; 0: never. A run that
  /// is resumed with the same patience ends at once again: give a larger one to train on.
  std::int64_t patience = 0;
  double least_gain = 0;  ///< for `patience`, a better value gains more than this
};

/// Ends training before its epochs are done. If the limit is reached at the last batch of an epoch,
/// the epoch is finished. A resumed run continues to count `steps`. Each call of fit() counts
/// `seconds` from 0.
struct Limit {
  /// Steps that the first optimizer has applied since it was made, also before this call of fit();
  /// 0: no limit.
  std::int64_t steps = 0;
  double seconds = 0;  ///< time since fit() was called; 0: no limit
};

struct FitOptions {
  std::int64_t epochs = 1;  ///< total, at least 1: a resumed run trains the remaining ones
  /// Data for validation. After each epoch, fit() computes its loss and the metrics, in evaluation
  /// mode and without recording. If the optimizers keep averages of the weights (StepOptions::ema),
  /// it uses these; the running statistics of a BatchNorm are the training's. If this loader has
  /// the group of the ranks, each rank evaluates its share. Sums are then added in the order of the
  /// ranks, in exact mode too. Without the group, each rank evaluates all samples.
  data::Loader* validate = nullptr;
  metrics::MetricList metrics = {};  ///< computed over `validate`: {metrics::Accuracy()}
  /// Called after each epoch, in the same mode, in place of `validate`. It returns the metrics of
  /// the epoch; the one named "loss" is the validation loss. All ranks call it, and it must return
  /// equal values on all.
  std::function<std::vector<metrics::Value>()> evaluate = nullptr;
  /// Calls the model on a batch; the default is net(batch.x()). The target is batch.y().
  std::function<Tensor(const data::LoaderBatch&)> forward = nullptr;
  /// Cuts each batch of the loader into micro-batches, and makes one step of it
  /// (Optimizer::run_batch()). Throws Error unless StepOptions::accumulate is 1. An optimizer with
  /// OverflowPolicy::retry needs it.
  std::optional<optim::MicroBatch> micro_batch = {};
  /// Treatment of a cycle that the end of an epoch cuts short.
  optim::Partial partial = optim::Partial::apply;
  Callbacks callbacks = {};        ///< functions that fit() calls
  LogOptions log = {};             ///< file of records, one JSON object a line
  CheckpointPlan checkpoint = {};  ///< place and times of the saved runs
  EarlyStop early_stop = {};       ///< ends the training if a value no longer improves
  Limit limit = {};                ///< ends the training at a number of steps or a time
  /// Prints a table on stdout, one row per epoch, and the progress of an epoch on stderr: a bar on
  /// a terminal, else a line every ten seconds. With ranks, rank 0 prints.
  bool progress = true;
  /// The first SIGINT or SIGTERM (Ctrl-C) ends the training after the batch under way, with a
  /// checkpoint, and fit() returns. A second one acts as it would have without fit().
  bool handle_interrupts = true;
  /// Ranks that train together; the default is the loader's. If your step cuts whole batches by
  /// run_batch(), give the group here.
  std::optional<dist::Group> group = {};
};

/// Computes the loss of a batch from the model's output and the target.
using LossFunction = std::function<Loss(const Tensor& output, const Tensor& target)>;

/// Trains `net` by `optimizer` on the batches of `loader`. If `net` is in evaluation mode, train()
/// is called first. Otherwise its submodules keep their modes: a BatchNorm on which you have called
/// eval() stays frozen.
///
/// With ranks (dist::distribute()), the loader has the group, and each rank calls fit(). In exact
/// mode, set `micro_batch`, and give the loader the optimizer's `chunk`. With sharded weights
/// (stage 3) each rank needs samples of each batch.
///
/// A run continues only from a checkpoint. Without one, a second call trains all `epochs` again. If
/// seek() of the loader went into epoch 0, that epoch has only its remaining samples. The same
/// holds if ResidentBatches are within it.
///
/// Throws Error for options that contradict each other, before anything is trained. Passes on
/// exceptions of the loss, the loader, the optimizer, the log, a checkpoint or a callback, with
/// OutOfMemory in place of std::bad_alloc. The log then ends with the last finished record, and the
/// newest checkpoint is complete. Folder and log are locked against other runs meanwhile. An error
/// on one rank throws on all ranks, on the others as RankError. If the loss throws, all ranks have
/// dropped the cycle and can continue together. If a rank stops between two batches, by its loader
/// or a callback, the group may be broken.
FitReport fit(nn::Module& net,  // FitOptions{...} names a wrong field; ema: in StepOptions
              optim::Optimizer& optimizer, data::Loader& loader, const LossFunction& loss,
              const FitOptions& options = {});
/// Refuses, at compile time, a loss that returns a tensor; the error says what to return.
template <detail::GivesTensor<const Tensor&, const Tensor&> Fn>
FitReport fit(nn::Module&, optim::Optimizer&, data::Loader&, const Fn&, const FitOptions& = {}) {
  detail::refuse_tensor_as_loss<Fn>();
}

/// An object with the name that log and checkpoints give it.
template <class T>
struct Named {
  std::string name;                  ///< name of the object in log and checkpoints
  std::reference_wrapper<T> object;  ///< must outlive the call
};

/// Modules and optimizers that a custom step trains. Their names appear in the log and in
/// checkpoints. With one module and one optimizer, the names may be empty.
struct Parts {
  std::vector<Named<nn::Module>> modules = {};           ///< in log and checkpoints, in this order
  std::vector<Named<optim::Optimizer>> optimizers = {};  ///< in log and checkpoints, in this order
};

/// Trains with a custom step, which calls backward() and step() of the optimizers as it needs. Use
/// it for several optimizers (a GAN), several losses, or data of several kinds.
///
///   train::fit({.modules = {{"generator", g}, {"critic", c}},
///               .optimizers = {{"generator", opt_g}, {"critic", opt_c}}},
///              loader, [&](const data::LoaderBatch& batch) { ... }, {.epochs = 20});
///
/// After the last batch of an epoch, fit() calls flush() of every optimizer whose cycle has begun.
/// With ranks, a rank's share of a batch may be empty (size() 0): the step then calls no_samples().
/// Throws Error for `validate`, `metrics`, `forward` and `micro_batch`, which need a model and a
/// loss; use `evaluate` instead.
FitReport fit(const Parts& parts, data::Loader& loader,
              const std::function<void(const data::LoaderBatch&)>& step,
              const FitOptions& options = {});
/// Trains with a custom step that takes its batches from images on the device. The step calls
/// batches.next() itself, and can be a graph::Step.
FitReport fit(const Parts& parts, data::ResidentBatches& batches, const std::function<void()>& step,
              const FitOptions& options = {});

}  // namespace firn::train
