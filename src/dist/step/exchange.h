// Records that ranks exchange about their cycles: the point that each has reached, and the
// scalars of its sums. If ranks are at different points, all of them throw.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/peers.h"
#include "kernels/math/optim/cycle_sums.h"
#include "optim/store/flat.h"
#include "optim/store/param_store.h"

namespace firn::optim {

using math::CycleSums;

/// Points of a cycle at which ranks exchange records.
enum class CyclePlace : std::int64_t {
  end,
  micro_step,
  save,
  weights,
  weights_ahead,  ///< gathers weights before they are needed
  bucket,
  micro_step_end
};

/// The record that a rank sends to the others at the end of a cycle, before its gradients. Ranks
/// also send one when a run is saved and, with sharded gradients, in each micro-step.
struct RankRecord {
  CyclePlace place = CyclePlace::end;
  std::int64_t optimizer = 0;  ///< number of the optimizer, equal on all ranks
  std::int64_t cycles = 0;     ///< cycles that have ended
  std::int64_t calls = 0;      ///< calls of step() in this cycle
  std::int64_t dropped = 0;    ///< cycles dropped since the last one that ended
  std::int64_t batch = 0;      ///< samples of run_batch() on all ranks; 0: not in that call
  std::int64_t members = 0;
  std::int64_t what = 0;     ///< number of the bucket, at a place that has one; after a failure
                             ///< 1 if this rank had begun the cycle, else 0
  std::int64_t planned = 0;  ///< micro-steps that this rank will make; 0: not known
  autograd::Outcome outcome = autograd::Outcome::done;
  double rate = 0, scale = 1;          ///< learning rate and loss scale of the step
  std::uint64_t seed = 0, offset = 0;  ///< in exact mode: the cycle's random numbers
  CycleSums sums = {};
};

class RankExchange {
 public:
  /// Allocates the memory that the end of a cycle needs.
  RankExchange(std::shared_ptr<const autograd::Peers> peers, const ParamStore& store);

  const autograd::Peers& peers() const noexcept { return *peers_; }
  const std::shared_ptr<const autograd::Peers>& share_peers() const noexcept { return peers_; }
  bool alone() const noexcept { return peers_->size() == 1; }

  /// Sends this rank's record to the others, with a flag for each parameter that has received a
  /// gradient; no flags at all stand for zeros, and none are returned. Allocates nothing. Returns
  /// all records in the order of the ranks; `received` becomes 1 where any rank has one. Throws
  /// Error on every rank if the ranks are at different points. If another rank reports a failure,
  /// throws what Peers::agree() throws.
  std::span<const RankRecord> exchange_records(const std::string& op, const RankRecord& record,
                                               std::span<std::uint8_t> received);
  /// Returns true if any rank had begun a cycle at the last exchange of records.
  bool any_begun() const noexcept;
  /// Returns true if any rank reported a failure at that exchange.
  bool any_failed() const noexcept;
  /// Returns the summary of all ranks' gradients. `mine` is the summary of this rank's shards.
  math::GradientSummary exchange_summary(const math::GradientSummary& mine) const;

 private:
  std::shared_ptr<const autograd::Peers> peers_;
  Tensor mine_, all_;           ///< u8: record and flags, of this rank and of all ranks
  Tensor summary_, summaries_;  ///< u8: math::GradientSummary, of this rank and of all ranks
  std::vector<RankRecord> records_;
};

/// Returns the sums of all ranks' cycles, and allocates nothing. They are in the smallest unit of
/// any rank whose cycle has a weight, so that no sum overflows f32 by the conversion.
CycleSums sum_of(std::span<const CycleSums> sums);
CycleSums sum_of(std::span<const RankRecord> records);

/// Adds the summary of other gradients. Keeps the smallest culprit, and leaves `any` as it is.
void add_summary(math::GradientSummary& to, const math::GradientSummary& from) noexcept;

}  // namespace firn::optim
