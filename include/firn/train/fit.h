// fit(): the training loop that people write by hand, with validation, metrics, a log, checkpoints
// and a clean end.
//
//   data::Loader loader(train_set, {.batch = 64, .shuffle = true, .seed = 1});
//   data::Loader test(test_set, {.batch = 256});
//   train::fit(net, opt, loader,
//              [](const Tensor& out, const Tensor& y) { return cross_entropy(out, y); },
//              {.epochs = 5, .validate = &test, .log = {.path = "run.jsonl"},
//               .checkpoint = {.folder = "run"}});
//
// It is the written loop, to the bit: for each epoch, set_epoch(), then backward() and step() for
// each batch, then flush().
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

/// What an epoch came to.
struct EpochReport {
  std::int64_t epoch = 0;    ///< counted from 1
  std::int64_t samples = 0;  ///< trained on, over all ranks
  /// Mean over the epoch's samples, while the weights were changing: of the first optimizer. NaN if
  /// no loss counted, because none was finite or had a weight.
  double train_loss = 0;
  /// The same of each optimizer, by its name.
  std::vector<metrics::Value> train_losses;
  /// Whether there is a validation loss.
  bool validated = false;
  /// Mean over the samples of FitOptions::validate, or the "loss" of FitOptions::evaluate. NaN if
  /// there is none, and if no sample has a weight.
  double validation_loss = 0;
  /// Values of FitOptions::metrics and evaluate, and those that callbacks have added.
  std::vector<metrics::Value> metrics;
  /// What metrics and callbacks add to the record of the epoch beside numbers, such as a confusion
  /// matrix.
  Record details;
  double lr = 0;                   ///< of the epoch's last step: of the first optimizer, as are
  double loss_scale = 1;           ///< this one, also of the last step,
  std::int64_t applied_steps = 0;  ///< and these, which count from the start of the run
  std::int64_t skipped_steps = 0;  ///< so many cycles ended without a change of the weights
  double seconds = 0;              ///< of training in this process, without checkpoints
  double data_seconds = 0;         ///< of these, in the Loader; 0 with ResidentBatches
  double validation_seconds = 0;   ///< of evaluation
  double saving_seconds = 0;       ///< of checkpoints since the report before this one
  double samples_per_second = 0;   ///< of training in this process, over all ranks
  MemoryStats training_memory;     ///< peaks since the epoch's start, without evaluation
  std::size_t peak_bytes = 0;      ///< the same with evaluation

  /// The metric of this name; "loss" is validation_loss, or train_loss if not `validated`.
  /// Throws Error, naming those there are, if there is none.
  double value(const std::string& name) const;
};

/// Why fit() has returned.
enum class Ended : std::uint8_t { epochs, early_stop, limit, interrupted, asked };
/// The word for it: "epochs", "early_stop", "limit", "interrupted" or "asked".
const char* to_string(Ended ended) noexcept;

/// What fit() has done.
struct FitReport {
  Ended ended = Ended::epochs;  ///< why it has returned
  std::int64_t epochs = 0;      ///< whole ones, those before a resume included
  /// The last whole epoch. If training has ended within one: what there is of it, evaluated unless
  /// a signal has ended it. If there was nothing left to train: the last whole epoch of the
  /// checkpoint, without times, memory and details.
  EpochReport last;
  std::int64_t applied_steps = 0;      ///< of the first optimizer
  std::optional<double> best;          ///< of the value that EarlyStop names
  std::int64_t best_epoch = 0;         ///< counted from 1; 0: none
  std::optional<std::string> resumed;  ///< the checkpoint that the run went on from
};

/// Functions that fit() calls. All ranks call theirs. A run of several ranks that is resumed has
/// rank 0's random stream on each: call seed_thread() in on_start, as a fresh run does.
struct Callbacks {
  std::function<void(Loop&)> on_start = nullptr;  ///< after a resume, before the first batch
  /// Not for the rest of an epoch, which a resumed run begins with.
  std::function<void(Loop&)> on_epoch_start = nullptr;
  /// After each batch that was given to the step function.
  std::function<void(Loop&)> on_batch = nullptr;
  /// After each cycle that an optimizer has ended, applied or skipped. On a CUDA device the host
  /// waits for each step then; if a batch has several steps of one optimizer, for the last.
  std::function<void(Loop&, const std::string& optimizer, const optim::StepReport&)> on_step =
      nullptr;
  /// After evaluation, before the epoch is printed, logged and saved. May add metrics and details,
  /// the same on all ranks.
  std::function<void(Loop&, EpochReport&)> on_epoch_end = nullptr;
};

/// The loop in which a callback is called.
class Loop {
 public:
  virtual ~Loop() = default;
  virtual std::int64_t epoch() const = 0;          ///< under way, counted from 1
  virtual std::int64_t epochs() const = 0;         ///< FitOptions::epochs
  virtual std::int64_t samples() const = 0;        ///< trained on in this epoch
  virtual std::int64_t epoch_samples() const = 0;  ///< that an epoch has
  virtual double seconds() const = 0;              ///< since fit() was called
  /// Training ends after the batch under way, or the next one if none is, with a checkpoint. If
  /// that is the epoch's last batch, the epoch is finished. With ranks: if one asks, all end.
  virtual void stop() = 0;
  /// Adds a record of your own to the log. Throws Error if it has no kind, or one of fit()'s own.
  virtual void write(const Record& record) = 0;
};

/// The log (record.h): a record "run" at the start, "epoch" after each epoch, "end" at the end.
struct LogOptions {
  std::string path = {};  ///< empty: none
  /// A record "step" for each n-th applied step, and for each skipped one; 0: none. On a CUDA
  /// device the host waits for each step then.
  std::int64_t every = 0;
  /// What the record "run" says in "settings", beside fit()'s own: your program's options.
  Record settings = {};
};

/// Checkpoints of the run (io/checkpoints.h), after every epoch and at the end.
struct CheckpointPlan {
  std::string folder = {};  ///< empty: none
  std::int64_t every = 0;   ///< also after so many applied steps of the first optimizer; 0: no
  int keep = 3;             ///< the newest so many stay, and that of the best epoch (EarlyStop)
  bool async = false;       ///< a thread writes the files
  /// The run goes on from the newest checkpoint, if there is one. Without it, checkpoints in the
  /// folder are an error.
  bool resume = true;
  std::vector<io::RunPart> parts = {};  ///< saved beside modules, optimizers and data
};

/// Which value of an epoch says how good it is, and when training ends because it gets no better.
struct EarlyStop {
  std::string value = "loss";  ///< see EpochReport::value()
  bool highest = false;        ///< the better the higher
  /// So many epochs in a row without a better value end the training; 0: never. A run that is
  /// resumed with the same patience ends at once again: give more to train on.
  std::int64_t patience = 0;
  double least_gain = 0;  ///< for `patience`, a value counts as better by more than this
};

/// When training ends before its epochs are done. An epoch whose last batch is reached is finished.
/// A resumed run counts on from where it was.
struct Limit {
  std::int64_t steps = 0;  ///< applied, of the first optimizer; 0: no limit
  double seconds = 0;      ///< in this process; 0: no limit
};

struct FitOptions {
  std::int64_t epochs = 1;  ///< at least 1, in all: a resumed run makes those that are left
  /// After each epoch, its loss and the metrics are computed, in evaluation mode, without
  /// recording, with averages of the weights if the optimizers keep them (StepOptions::ema);
  /// running statistics of a BatchNorm are those of the training's weights. With ranks: if this
  /// loader has the group, each evaluates its part, and sums are added in the order of the ranks,
  /// in exact mode too; without it, each evaluates all.
  data::Loader* validate = nullptr;
  metrics::MetricList metrics = {};  ///< collected over `validate`: {metrics::Accuracy()}
  /// After each epoch, in the same mode, in place of `validate`: what it returns are the metrics of
  /// the epoch; one that is called "loss" is the validation loss. With ranks, all call it, and it
  /// returns the same on all.
  std::function<std::vector<metrics::Value>()> evaluate = nullptr;
  /// What the model is given of a batch. Without it: net(batch.x()). The target is batch.y().
  std::function<Tensor(const data::LoaderBatch&)> forward = nullptr;
  /// Each batch of the loader is cut into micro-batches and makes one step: Optimizer::run_batch().
  std::optional<optim::MicroBatch> micro_batch = {};
  /// What becomes of a cycle that the end of an epoch cuts short.
  optim::Partial partial = optim::Partial::apply;
  Callbacks callbacks = {};        ///< functions that fit() calls
  LogOptions log = {};             ///< the file of records, one JSON object a line
  CheckpointPlan checkpoint = {};  ///< where and when the run is saved
  EarlyStop early_stop = {};       ///< ends the training if a value no longer improves
  Limit limit = {};                ///< ends the training at a number of steps or a time
  /// A table on stdout, a row per epoch, and the progress of an epoch on stderr: a bar on a
  /// terminal, else a line every ten seconds. With ranks, rank 0 prints.
  bool progress = true;
  /// The first SIGINT or SIGTERM (Ctrl-C) ends the training after the batch under way, with a
  /// checkpoint, and fit() returns. A second one acts as it would have without fit().
  bool handle_interrupts = true;
  /// Ranks that train together. Without it: those of the loader. A step of your own may cut whole
  /// batches by run_batch(), and give the group here.
  std::optional<dist::Group> group = {};
};

/// The loss of a batch, from what the model returned and what it should have returned.
using LossFunction = std::function<Loss(const Tensor& output, const Tensor& target)>;

/// Trains `net` by `optimizer` on the batches of `loader`. If `net` is in evaluation mode, train()
/// is called first. Else its parts keep their modes: a BatchNorm of which you have called eval()
/// stays frozen.
///
/// With ranks (dist::distribute()), the loader has the group, and each rank calls fit(). In exact
/// mode give `micro_batch`, and the loader the same `quantum`. With divided weights (stage 3) each
/// rank needs samples of each batch.
///
/// Only a checkpoint makes a run go on. Without one, a second call trains all `epochs` again. If
/// seek() of the loader went into epoch 0, that epoch has what is left of it, and so it has if
/// ResidentBatches were left there.
///
/// Throws Error for options that contradict each other, before anything is trained; and what the
/// loss, the loader, the optimizer, the log, a checkpoint or a callback throws, but OutOfMemory for
/// std::bad_alloc. The log then ends with the last finished record, and the newest checkpoint is
/// whole. Folder and log are locked against other runs meanwhile. What throws on one rank throws on
/// all, on the others RankError. If a loss does, all have dropped the cycle and can go on together.
/// If a rank stops between two batches, by its loader or a callback, the group may be broken.
FitReport fit(nn::Module& net,  // FitOptions{...} names a wrong field; ema: in StepOptions
              optim::Optimizer& optimizer, data::Loader& loader, const LossFunction& loss,
              const FitOptions& options = {});
/// The error of a function that returns a tensor says what to return.
template <detail::GivesTensor<const Tensor&, const Tensor&> Fn>
FitReport fit(nn::Module&, optim::Optimizer&, data::Loader&, const Fn&, const FitOptions& = {}) {
  detail::refuse_tensor_as_loss<Fn>();
}

/// An object with the name that log and checkpoints give it.
template <class T>
struct Named {
  std::string name;                  ///< of the object in log and checkpoints
  std::reference_wrapper<T> object;  ///< which must outlive the call
};

/// What a loop with a step of its own trains. Names appear in the log and in checkpoints. With one
/// module and one optimizer, they may be empty.
struct Parts {
  std::vector<Named<nn::Module>> modules = {};           ///< in log and checkpoints, in this order
  std::vector<Named<optim::Optimizer>> optimizers = {};  ///< in log and checkpoints, in this order
};

/// The same with a step of your own, which calls backward() and step() of the optimizers as it
/// likes: for several optimizers (a GAN), several losses, or data of several kinds.
///
///   train::fit({.modules = {{"generator", g}, {"critic", c}},
///               .optimizers = {{"generator", opt_g}, {"critic", opt_c}}},
///              loader, [&](const data::LoaderBatch& batch) { ... }, {.epochs = 20});
///
/// After the last batch of an epoch, flush() is called of every optimizer whose cycle is under way.
/// With ranks, a rank's part of a batch may be empty (size() 0): the step then calls no_samples().
/// Throws Error for `validate`, `metrics`, `forward` and `micro_batch`, which need a model and a
/// loss: give `evaluate`.
FitReport fit(const Parts& parts, data::Loader& loader,
              const std::function<void(const data::LoaderBatch&)>& step,
              const FitOptions& options = {});
/// The same with images on the device, of which the step takes the next batch by itself: it can be
/// a graph::Step.
FitReport fit(const Parts& parts, data::ResidentBatches& batches, const std::function<void()>& step,
              const FitOptions& options = {});

}  // namespace firn::train
