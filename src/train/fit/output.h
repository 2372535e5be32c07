// Output of a training: its table, and the records of its log.
#pragma once

#include <string>

#include "firn/train/fit.h"

namespace firn::train {

/// Prints a row per epoch on stdout, and the head before the first row. It shows at most the first
/// three metrics.
class Table {
 public:
  void print(const EpochReport& report);

 private:
  std::size_t columns_ = 0;  ///< metrics in the head that was printed
  bool headed_ = false;
};

Record run_record(const Parts& parts, std::int64_t epoch_samples, const dist::Group& group,
                  const FitOptions& options);
/// `optimizer` is empty if there is only one.
Record step_record(const optim::StepReport& report, const std::string& optimizer,
                   std::int64_t epoch, std::int64_t samples, double seconds);
Record epoch_record(const EpochReport& report);
/// `value` is the name of the value in FitReport::best.
Record end_record(const FitReport& report, const std::string& value, double saving_seconds);

}  // namespace firn::train
