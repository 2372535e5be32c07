// The loop of fit(), common to all its forms.
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
  /// Opens the log; a resumed run continues it after the part that the checkpoint covers.
  void open_log();
  /// Trains the rest of an epoch; returns false if training ends within it.
  bool train(EpochReport& report);
  /// Called after a batch; returns true if training continues.
  bool after_batch(std::int64_t samples);
  /// Saves a checkpoint, and adds up the time.
  void save(std::int64_t applied, std::optional<double> value = std::nullopt);
  /// If steps are recorded, adds the record of the memory of one step.
  void note_memory();
  /// Logs the steps since the last call, and calls on_step for them.
  void report_steps();
  /// Returns the reason to end training now, or nullopt; all ranks get the same answer.
  std::optional<Ended> reason_to_end() const;
  /// Sets the report's values of the optimizers, and evaluates.
  void complete(EpochReport& report);
  void finish_epoch(EpochReport& report);
  /// Returns a text on how to continue the training, if the run is saved.
  const char* how_to_go_on() const;
  /// Notes whether the epoch was the best so far, and better by enough.
  void note_value(const EpochReport& report);
  std::int64_t applied_steps() const;
  /// Number of cycles of the first optimizer. The host knows it without waiting for a device.
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
  /// Steps that are not yet logged: number of the optimizer, report.
  std::vector<std::pair<std::size_t, optim::StepReport>> steps_;
  std::deque<optim::StepListener> listeners_;
  /// Seconds spent saving since the last report, and in this epoch.
  double saving_ = 0, saving_within_ = 0;
  std::int64_t trained_ = 0;  ///< samples of this epoch trained in this process
  bool asked_ = false;
  FitReport result_;
};

}  // namespace firn::train
