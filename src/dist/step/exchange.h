// Records that ranks exchange about their cycles: where each one is, and the scalars of its sums.
// Ranks that are not at the same place throw, on every rank.
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

/// Where in a cycle ranks tell each other something.
enum class CyclePlace : std::int64_t { end, micro_step, save, weights, bucket, turn_end };

/// What a rank tells the others at the end of a cycle, before its gradients; in each micro-step, if
/// gradients are divided; and when a run is saved.
struct RankRecord {
  CyclePlace place = CyclePlace::end;
  std::int64_t optimizer = 0;  ///< its number
  std::int64_t cycles = 0;     ///< ended so far
  std::int64_t calls = 0;      ///< of step() in the cycle
  std::int64_t dropped = 0;    ///< cycles, since the last one that has ended
  std::int64_t batch = 0;      ///< samples of all ranks, if run_batch() was told
  std::int64_t members = 0;
  std::int64_t what = 0;   ///< the bucket that comes next, of a place that has one; of a rank that
                           ///< has failed whether it had begun the cycle
  std::int64_t turns = 0;  ///< micro-steps that this rank will make; 0: it is not known
  autograd::Outcome outcome = autograd::Outcome::done;
  double rate = 0, scale = 1;          ///< learning rate and loss scale of the step
  std::uint64_t seed = 0, offset = 0;  ///< in exact mode: where the cycle's random numbers begin
  CycleSums sums = {};
};

class RankExchange {
 public:
  /// Allocates what the end of a cycle needs.
  RankExchange(std::shared_ptr<const autograd::Peers> peers, const ParamStore& store);

  const autograd::Peers& peers() const noexcept { return *peers_; }
  const std::shared_ptr<const autograd::Peers>& share_peers() const noexcept { return peers_; }
  bool alone() const noexcept { return peers_->size() == 1; }

  /// Tells the others of this rank's cycle, and for each parameter whether it has received a
  /// gradient. Returns what all have told, in the order of ranks; `received` becomes 1 where any
  /// rank has one. Throws Error, on every rank, if the ranks are not at the same place. Throws what
  /// Peers::agree() does if another rank tells that it has failed.
  std::span<const RankRecord> tell(const std::string& op, const RankRecord& record,
                                   std::span<std::uint8_t> received);
  /// Whether a rank had begun a cycle when they told each other of the last one.
  bool any_begun() const noexcept;
  /// What the gradients of all ranks come to together, each having found out of its part `mine`.
  math::GradientSummary tell_summary(const math::GradientSummary& mine) const;

 private:
  std::shared_ptr<const autograd::Peers> peers_;
  Tensor mine_, all_;           ///< u8: a record and flags; those of all ranks
  Tensor summary_, summaries_;  ///< u8: the same of a math::GradientSummary
  std::vector<RankRecord> records_;
};

/// What the cycles of all ranks are together, in the smallest unit of those that have a weight: no
/// sum can leave the range of f32 by it.
CycleSums sum_of(std::span<const CycleSums> sums);
CycleSums sum_of(std::span<const RankRecord> records);

/// Adds what other gradients come to. The first culprit stays, and `any`.
void add_summary(math::GradientSummary& to, const math::GradientSummary& from) noexcept;

}  // namespace firn::optim
