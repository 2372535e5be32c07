// Facts that follow from a log: how the run ended, how long it took, what its batches are, and what
// other micro-batches would need.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tools/report/log/run.h"

namespace firn::report {

/// The end of the run, in a word or two and in a phrase: "finished", "all epochs done".
struct Ending {
  std::string word, phrase;
};
Ending ending_of(const Run& run);
/// Returns "Net, 12,345 parameters"; several modules are listed by name.
std::string model_text(const Run& run);
/// Returns "2024-05-01 12:30 UTC"; empty if the log does not say.
std::string start_time(const Run& run);
/// Returns the seconds of training and validation: the sum over the epochs, else the last step
/// record's.
double seconds_of(const Run& run);
/// Return the numbers of applied and skipped optimizer steps.
double applied_steps(const Run& run);
double skipped_steps(const Run& run);

/// A value of the run, and its epoch.
struct Value {
  std::string name;
  double value = kNoNumber;
  double epoch = kNoNumber;
};
/// Returns the best value in the record `end`, with the name of the epoch's value that equals it.
/// Without such a record, returns the lowest validation loss, or the lowest training loss.
Value best_of(const Run& run);
/// Returns the value of this name in the last epoch.
Value last_of(const Run& run, const std::string& name);
/// Returns the training loss, the validation loss or a metric of an epoch; NaN if it has none.
double value_of(const Epoch& epoch, const std::string& name);
inline constexpr const char* kTrainLoss = "training loss";
inline constexpr const char* kValidationLoss = "validation loss";
/// Returns the names of all metrics, in the order in which the epochs name them.
std::vector<std::string> metric_names(const std::vector<Epoch>& epochs);
/// Returns the owners of memory, in the order in which the epochs name them.
std::vector<std::string> owner_names(const std::vector<Epoch>& epochs);
double find(const std::vector<NamedNumber>& list, const std::string& name);

/// Returns the settings as (name, text), with "settings.lr" for nested ones, and without summaries
/// and times.
std::vector<std::pair<std::string, std::string>> settings_of(const Run& run);

/// Sizes of the batches of the first optimizer's steps; NaN if the log does not say.
struct Batches {
  double effective = kNoNumber;    ///< samples in a step, over all ranks
  double micro_steps = kNoNumber;  ///< backward passes in a step
  double micro = kNoNumber;        ///< samples in a micro-batch on one rank
  double ranks = 1;
  double steps_per_epoch = kNoNumber;
};
Batches batches_of(const Run& run);

/// Returns the epoch with the highest peak of training; null if no epoch has one.
const Epoch* heaviest(const Run& run);
/// Returns the bytes at the peak that grow with the micro-batch: activations, with recomputed ones.
double scaling_bytes(const Epoch& epoch);
/// Returns an estimate of the peak with `pieces` micro-steps a step instead of `measured_pieces`:
///   peak - scaling + scaling * measured_pieces / pieces
double estimated_peak(const Epoch& epoch, double measured_pieces, double pieces);

}  // namespace firn::report
