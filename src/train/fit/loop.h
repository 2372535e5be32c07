// The loop of fit(), whatever trains in it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "firn/train/fit.h"
#include "firn/train/progress.h"
#include "optim/report/step_listener.h"
#include "train/fit/evaluation.h"
#include "train/fit/feed.h"
#include "train/fit/interrupts.h"
#include "train/fit/output.h"
#include "train/fit/saver.h"
#include "train/fit/step_memory.h"

namespace firn::train {

class FitLoop final : public Loop {
 public:
  /// Throws Error for options that contradict each other.
  FitLoop(const Parts& parts, Feed& feed, Objective objective, const FitOptions& options,
          const dist::Group& group);

  FitReport run();

  std::int64_t epoch() const override { return at_.epochs + 1; }
  std::int64_t epochs() const override { return options_.epochs; }
  std::int64_t samples() const override { return at_.samples; }
  std::int64_t epoch_samples() const override { return feed_.epoch_samples(); }
  double seconds() const override;
  void stop() override { asked_ = true; }
  void write(const Record& record) override;

 private:
  using Clock = std::chrono::steady_clock;

  void start();
  /// Opens the log, or goes on with it behind what the checkpoint knows of.
  void open_log();
  /// Trains what is left of an epoch; false if training ends within it.
  bool train(EpochReport& report);
  /// After a batch: whether training goes on.
  bool after_batch(std::int64_t samples);
  /// Saves a checkpoint, and counts the time.
  void save(std::int64_t applied, std::optional<double> value = std::nullopt);
  /// With records of steps: that of the memory of one.
  void note_memory();
  /// Writes and tells of the steps since the last call.
  void tell_steps();
  /// Why training is to end now; all ranks get the same answer.
  std::optional<Ended> reason_to_end() const;
  /// Sets what the optimizers know, and evaluates.
  void complete(EpochReport& report);
  void finish_epoch(EpochReport& report);
  /// What a user does to train on, if the run is saved.
  const char* how_to_go_on() const;
  /// Whether the epoch was the best so far, and better by enough.
  void note_value(const EpochReport& report);
  std::int64_t applied_steps() const;
  /// Cycles of the first optimizer. The host knows them without waiting for a device.
  std::int64_t ended_cycles() const;
  Device device() const;
  bool leads() const { return group_.rank() == 0; }

  const Parts& parts_;
  Feed& feed_;
  const Objective objective_;
  const FitOptions& options_;
  const dist::Group group_;
  const Clock::time_point begin_ = Clock::now();
  Interrupts interrupts_;
  Position at_;
  RunLog log_;
  Saver saver_;
  Table table_;
  std::optional<Progress> progress_;
  StepMemory step_memory_;
  /// Steps that were made and not told: number of the optimizer, report.
  std::vector<std::pair<std::size_t, optim::StepReport>> steps_;
  std::deque<optim::StepListener> listeners_;
  /// Seconds of checkpoints: since the last report, and within this epoch.
  double saving_ = 0, saving_within_ = 0;
  std::int64_t trained_ = 0;  ///< samples of this epoch in this process
  bool asked_ = false;
  FitReport result_;
};

}  // namespace firn::train
