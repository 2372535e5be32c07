// Finds the sizes of micro-batches that fit into a memory budget, for run_batch() and
// optim::plan_within().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "firn/device.h"
#include "firn/memory/plan.h"
#include "firn/optim/optimizer.h"

namespace firn::optim {

using LossOf = std::function<Loss(std::int64_t first, std::int64_t last)>;

/// Makes a whole cycle in micro-batches of `size` samples; the last one may be smaller. With
/// several ranks it computes this rank's share, and in exact mode the batch in chunks.
StepReport run_in_parts(Optimizer& optimizer, std::int64_t samples, std::int64_t size,
                        const LossOf& loss, const std::function<void(std::int64_t)>& between = {});

/// Hint of an error that a smaller batch does not help.
inline constexpr const char* kNoSmallerBatch =
    "let blocks compute again (optim::plan_within()), compute under Autocast, keep states in 8 "
    "bits, or shard them over ranks (DistributeOptions::zero)";

/// Explains why a layer's micro-batches are not made smaller, and how to allow it.
std::string refusal_to_split(const std::string& layer);

/// Plans cycles of one batch. It tries the sizes that cut the batch into equal parts, but for the
/// last part.
class CyclePlanner {
 public:
  /// The arguments must outlive this object.
  CyclePlanner(Optimizer& optimizer, std::int64_t samples, std::size_t budget,
               bool split_statistics, const LossOf& loss);

  /// Memory that a cycle needs.
  struct Trial {
    std::int64_t size = 0;
    std::size_t peak = 0;
    std::string op;     ///< operation that reached the peak
    std::string layer;  ///< layer that normalises samples together; empty: none
  };

  /// Returns the largest size from `least` on that fits, or 0 if none does.
  std::int64_t largest(std::int64_t least = 1);
  /// The trial that fits, after a largest() that found one.
  const Trial& fitting() const noexcept { return fitting_; }
  /// The last trial. After a largest() that found nothing, this is the smallest size.
  const Trial& last() const noexcept { return last_; }
  /// The text of the error, after a largest() that found nothing.
  std::string why_not() const;

 private:
  bool fits(std::int64_t parts);
  std::int64_t size_of(std::int64_t parts) const noexcept { return 1 + (samples_ - 1) / parts; }
  bool may_not_split() const noexcept { return !last_.layer.empty() && !split_statistics_; }

  Optimizer& optimizer_;
  const Device device_;
  const std::int64_t samples_;
  const std::int64_t chunk_;  ///< exact.chunk, which alone sets the peak; 0: not in exact mode
  const std::size_t budget_;
  const bool split_statistics_;
  const LossOf& loss_;
  Trial last_, fitting_;
};

}  // namespace firn::optim
