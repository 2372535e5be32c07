// Saves the run of a training, and resumes from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "firn/train/fit.h"
#include "io/file/locked_folder.h"

namespace firn::train {

/// State of fit() itself that a resumed run needs.
struct Position {
  std::int64_t epochs = 0;     ///< whole epochs
  std::int64_t samples = 0;    ///< samples of the current epoch
  std::int64_t log_bytes = 0;  ///< bytes of the log that the checkpoint covers
  double best = 0;
  std::int64_t best_epoch = 0;  ///< counted from 1; 0: there is no best value yet
  /// The last value that was better than the one before by EarlyStop::least_gain.
  double gained = 0;
  std::int64_t gained_epoch = 0;
  /// Loss and weight of each optimizer before the current epoch.
  std::vector<optim::LossTotals> before;
  Tensor last;  ///< see kept_report.h
};

/// The checkpoints of a plan; does nothing without a plan. All ranks make its calls.
class Saver {
 public:
  /// Throws Error for a plan that contradicts itself.
  Saver(const FitOptions& options, const Parts& parts, io::RunPart data, Position& position,
        const RunLog& log, bool leads);

  /// Resumes from the newest checkpoint, and returns its path, or nullopt if there is none.
  std::optional<std::string> resume();
  /// Returns true if CheckpointPlan::every steps were applied since the last checkpoint.
  bool due(std::int64_t applied) const noexcept {
    return checkpoints_ && plan_.every > 0 && applied - saved_ >= plan_.every;
  }
  void save(std::int64_t applied, std::optional<double> metric = {});
  /// Waits until the writing thread has finished.
  void wait();
  bool on() const noexcept { return checkpoints_.has_value(); }

 private:
  const CheckpointPlan& plan_;
  Position& position_;
  const RunLog& log_;
  std::int64_t saved_ = 0;  ///< applied steps at the last checkpoint
  std::optional<io::Checkpoints> checkpoints_;
  std::optional<io::LockedFolder> lock_;  ///< excludes other runs from this folder
  std::vector<io::RunPart> parts_;
};

}  // namespace firn::train
