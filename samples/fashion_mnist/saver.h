// When the sample saves its run, and how it goes on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "firn/io/checkpoints.h"
#include "firn/optim/optimizer.h"
#include "options.h"
#include "output/report.h"
#include "training.h"

namespace sample {

/// The checkpoints of --checkpoint; does nothing without it. Refers to the others, which must
/// outlive it.
class Saver {
 public:
  /// If it does not lead, as ranks but the first, it says nothing.
  Saver(const Options& options, Trainer& trainer, firn::optim::Optimizer& optimizer, RunLog& log,
        bool leads);

  /// With --resume: puts the run back as its newest checkpoint has it, and says so. Returns whether
  /// there was one. Throws IoError without --resume if the folder has checkpoints.
  bool resume();
  /// Epochs that have been reported, counted from the run's start.
  int epochs_done() const noexcept { return static_cast<int>(epochs_done_); }
  /// Bytes of the log that belong to the checkpoint.
  std::int64_t log_bytes() const noexcept { return log_bytes_; }

  /// Saves if --checkpoint-every steps were applied since the last checkpoint.
  void after_batch();
  void after_epoch(double test_loss);
  /// Saves at once and returns a sentence about it; nothing without --checkpoint.
  std::optional<std::string> interrupted();

 private:
  void save(std::int64_t step, std::optional<double> metric = {});

  const Options& options_;
  firn::optim::Optimizer& optimizer_;
  RunLog& log_;
  bool leads_;
  std::int64_t epochs_done_ = 0, log_bytes_ = 0;
  std::int64_t saved_ = 0;   ///< applied steps at the last checkpoint
  std::int64_t cycles_ = 0;  ///< ends of cycles before the applied steps are looked at
  std::optional<firn::io::Checkpoints> checkpoints_;
  std::vector<firn::io::RunPart> parts_;
};

}  // namespace sample
