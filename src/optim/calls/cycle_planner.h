// Which sizes of micro-batches fit into a budget of memory: run_batch() and optim::plan_within()
// ask.
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

/// A whole cycle in micro-batches of `size` samples, the last one of what is left. With several
/// ranks, this one's part of it; in exact mode, in quanta.
StepReport run_in_parts(Optimizer& optimizer, std::int64_t samples, std::int64_t size,
                        const LossOf& loss, const std::function<void(std::int64_t)>& between = {});

/// Why a layer's micro-batches are not made smaller, and what to do.
std::string refusal_to_split(const std::string& layer);

/// Plans cycles of one batch. Sizes are those that cut it into equal parts but for the last.
class CyclePlanner {
 public:
  /// All must live as long as this.
  CyclePlanner(Optimizer& optimizer, std::int64_t samples, std::size_t budget,
               bool split_statistics, const LossOf& loss);

  /// What a cycle needs.
  struct Trial {
    std::int64_t size = 0;
    std::size_t peak = 0;
    std::string op;     ///< during which
    std::string layer;  ///< that normalises samples together; empty: none
  };

  /// The largest size of `least` or more that fits; 0 if there is none.
  std::int64_t largest(std::int64_t least = 1);
  /// What fits, after a largest() that found it.
  const Trial& fitting() const noexcept { return fitting_; }
  /// What was planned last. After a largest() that found nothing: the smallest size.
  const Trial& last() const noexcept { return last_; }
  /// The error's text, after a largest() that found nothing.
  std::string why_not() const;

 private:
  bool fits(std::int64_t parts);
  std::int64_t size_of(std::int64_t parts) const noexcept { return 1 + (samples_ - 1) / parts; }
  bool may_not_split() const noexcept { return !last_.layer.empty() && !split_statistics_; }

  Optimizer& optimizer_;
  const Device device_;
  const std::int64_t samples_;
  const std::int64_t quantum_;  ///< of exact mode, whose peak does not depend on the size; else 0
  const std::size_t budget_;
  const bool split_statistics_;
  const LossOf& loss_;
  Trial last_, fitting_;
};

}  // namespace firn::optim
