// A run as its log describes it. Every reader of the log starts from it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tools/report/log/records.h"
#include "tools/report/log/series.h"

namespace firn::report {

/// A skipped step.
struct Skip {
  double step = kNoNumber, epoch = kNoNumber, samples = kNoNumber;
  double loss = kNoNumber, loss_scale = kNoNumber;
  std::string cause, parameter;
};

/// The records `step` of one optimizer. A loss that is not finite is left out of the series.
struct Steps {
  std::string optimizer;  ///< empty if the run has only one
  std::int64_t records = 0, skipped = 0;
  Series loss, norm, lr, loss_scale;
  std::vector<Skip> first_skips;  ///< at most kSkips
  std::deque<Skip> last_skips;    ///< at most kSkips of the later ones
  Places skips;                   ///< places of all of them
  /// The first record's samples of the epoch, and the cycles that they took.
  double first_samples = kNoNumber, first_cycles = kNoNumber;
  double micro_steps = kNoNumber;  ///< micro-steps in the first record
  double last_step = kNoNumber;
  double seconds = kNoNumber;  ///< seconds in the last record

  static constexpr std::size_t kSkips = 150;
};

/// A record `epoch`. NaN means that the record lacks the member.
struct Epoch {
  double epoch = kNoNumber, samples = kNoNumber;
  double train_loss = kNoNumber, validation_loss = kNoNumber;
  double applied_steps = kNoNumber, skipped_steps = kNoNumber;
  double seconds = kNoNumber, validation_seconds = kNoNumber, samples_per_second = kNoNumber;
  double data_seconds = kNoNumber, saving_seconds = kNoNumber;
  double peak_bytes = kNoNumber, training_peak_bytes = kNoNumber, peak_rss_bytes = kNoNumber;
  std::vector<NamedNumber> train_losses, metrics, bytes_at_peak;
};

/// A record `memory`, which describes a moment of one cycle.
struct Moment {
  double point = kNoNumber, event = kNoNumber, bytes = kNoNumber;
  std::vector<NamedNumber> by_owner;
};

/// A confusion matrix. Rows are true classes; columns are predicted classes.
struct Confusion {
  double epoch = kNoNumber;
  std::vector<std::vector<double>> rows;
  std::vector<std::string> classes;  ///< empty, or one name for each row
};

/// A picture with its true and its predicted class.
struct ShownMistake {
  double target = kNoNumber, predicted = kNoNumber, probability = kNoNumber;
  std::string image;  ///< a data URI that is safe in an attribute
};

/// The mistakes of one epoch.
struct Mistakes {
  double epoch = kNoNumber;
  std::vector<ShownMistake> list;
  std::vector<std::string> classes;
};

struct End {
  std::string ended, best_of;
  double epochs = kNoNumber, applied_steps = kNoNumber, best = kNoNumber, best_epoch = kNoNumber;
};

struct Run {
  static constexpr std::size_t kMoments = 200;
  LogPart log;  ///< from the run's first record on
  std::string label;
  Json head = Json::object();   ///< the record `run`
  std::vector<Steps> steps;     ///< by optimizer
  std::vector<Moment> moments;  ///< at most kMoments
  std::vector<Epoch> epochs;
  std::optional<Confusion> confusion;  ///< the last record's
  std::optional<Mistakes> mistakes;    ///< the last record's
  std::optional<End> end;
  std::vector<std::string> notes;  ///< remarks about the file for its readers
};

/// Reads a run. Memory grows with the number of epochs and not with that of steps. If the file
/// holds several runs, one after the other, the last one is read. Throws IoError if it holds none.
Run read_run(const std::string& path);

/// Sets labels that are short, and differ: the names of the files, or their paths.
void name_runs(std::vector<Run>& runs);

}  // namespace firn::report
