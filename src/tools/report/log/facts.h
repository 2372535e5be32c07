// What the readers of a log conclude from it: how the run ended, how long it took, what its batches
// are, and what other micro-batches would need.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tools/report/log/run.h"

namespace firn::report {

/// How the run ended, in a word or two and in a phrase: "finished", "all epochs done".
struct Ending {
  std::string word, phrase;
};
Ending ending_of(const Run& run);
/// "Net, 12,345 parameters"; several modules: by name.
std::string model_text(const Run& run);
/// "2024-05-01 12:30 UTC"; empty if the log does not say.
std::string start_time(const Run& run);
/// Seconds of training and validation: the sum over the epochs, else that of the last step record.
double seconds_of(const Run& run);
/// Its number of optimizer steps.
double applied_steps(const Run& run);
double skipped_steps(const Run& run);

/// A value of the run with the epoch that it is of.
struct Value {
  std::string name;
  double value = kNoNumber;
  double epoch = kNoNumber;
};
/// What the record `end` calls the best, by the name of the epoch's value that equals it. Else the
/// lowest validation loss, or the lowest training loss.
Value best_of(const Run& run);
/// The same value of the last epoch.
Value last_of(const Run& run, const std::string& name);
/// `train loss`, `validation loss` or a metric of an epoch; NaN if it has none.
double value_of(const Epoch& epoch, const std::string& name);
inline constexpr const char* kTrainLoss = "training loss";
inline constexpr const char* kValidationLoss = "validation loss";
/// Names of all metrics, in the order in which the epochs name them.
std::vector<std::string> metric_names(const std::vector<Epoch>& epochs);
/// Owners of memory, in the same way.
std::vector<std::string> owner_names(const std::vector<Epoch>& epochs);
double find(const std::vector<NamedNumber>& list, const std::string& name);

/// The settings as (name, text): "settings.lr" for nested ones. Without summaries and times.
std::vector<std::pair<std::string, std::string>> settings_of(const Run& run);

/// The batches of a step of the first optimizer; NaN: the log does not say.
struct Batches {
  double effective = kNoNumber;    ///< samples of a step, over all ranks
  double micro_steps = kNoNumber;  ///< backward passes of a step
  double micro = kNoNumber;        ///< samples of a micro-batch on one rank
  double ranks = 1;
  double steps_per_epoch = kNoNumber;
};
Batches batches_of(const Run& run);

/// The epoch with the highest peak of training; null if there is none.
const Epoch* heaviest(const Run& run);
/// Bytes at the peak that grow with the micro-batch: activations, also those computed again.
double scaling_bytes(const Epoch& epoch);
/// Estimate of the peak with `pieces` micro-steps a step in place of `measured_pieces`:
///   peak - scaling + scaling * measured_pieces / pieces
double estimated_peak(const Epoch& epoch, double measured_pieces, double pieces);

}  // namespace firn::report
