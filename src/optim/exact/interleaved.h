// Quanta of a batch that need each other: a layer normalises the whole batch
// (nn::BatchNormMode::whole_batch). Each quantum is a coroutine. It stops at every such layer,
// forward and backward, until those of all ranks are there. Without such a layer, one ends before
// the next begins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/batch_parts.h"
#include "autograd/peers.h"
#include "base/coroutine.h"
#include "kernels/math/seed.h"
#include "optim/impl.h"
#include "optim/store/gradient_ledger.h"

namespace firn::optim {

class InterleavedQuanta final : public autograd::BatchParts {
 public:
  /// So many quanta are this rank's. All ranks of the optimizer make one. `why_alone`: why quanta
  /// cannot meet in this batch, or null.
  /// `in_quantum` says whether the backward pass of the running quantum is under way.
  InterleavedQuanta(OptimizerImpl& impl, bool& in_quantum, std::int64_t quanta,
                    const char* why_alone);
  InterleavedQuanta(const InterleavedQuanta&) = delete;
  InterleavedQuanta& operator=(const InterleavedQuanta&) = delete;

  /// Calls compute(i) for each quantum of this rank, and ended(i) after one that has met no other.
  /// A call of all ranks. If one of them fails, all throw.
  void run(const std::function<void(std::int64_t i)>& compute,
           const std::function<void(std::int64_t i)>& ended);
  /// Whether quanta have met. Then all of them are under way.
  bool met() const noexcept { return met_; }
  /// The gradients of quantum i are collected in these arenas, until they are empty again.
  void collect_into(std::int64_t i, std::vector<Tensor> place);

  std::shared_ptr<const Numbers> meet(const Place& place, Numbers numbers,
                                      const Combine& combine) override;
  std::int64_t meetings() const noexcept override { return serial_; }
  double unit() const noexcept override;
  bool is_first() const noexcept override { return turn_ == 0; }

 private:
  /// A quantum, and what the optimizer knows of its backward pass while it waits.
  struct Quantum {
    std::unique_ptr<Coroutine> coroutine;
    bool waits = false;
    Phase phase = Phase::collecting;
    bool in_quantum = false;
    math::SeedSums sums = {};
    GradientLedger::Place ledger = {};
    std::vector<Tensor> place;
    // What it waits for.
    Place at = {};
    Numbers numbers;
    const Combine* combine = nullptr;
  };
  /// What a rank tells the others before they meet.
  struct Word {
    std::int64_t state, first, layer, backward, numbers, quanta;
  };

  /// Each quantum goes on until it waits or ends. Returns whether they wait. Throws Error if some
  /// wait and others do not, or for something else.
  bool go_on(const std::function<void(std::int64_t i)>& compute,
             const std::function<void(std::int64_t i)>& ended);
  void begin_turn(Quantum& quantum);
  void end_turn(Quantum& quantum);
  void require_same_place() const;
  /// Whether any rank's quanta wait, and if so, the numbers of all. Throws on every rank if one has
  /// failed, or is elsewhere.
  bool exchange(bool waits, bool failed, std::vector<Numbers>& all);
  const std::string& op() const noexcept;
  const autograd::Peers* peers() const noexcept;

  OptimizerImpl& impl_;
  bool& in_quantum_;
  const char* why_alone_;
  std::vector<Quantum> quanta_;
  std::int64_t turn_ = 0;
  std::int64_t serial_ = 0;  ///< meetings so far
  bool met_ = false;
  std::shared_ptr<const Numbers> result_;
  std::vector<const void*> layers_;  ///< in the order in which they were met
};

}  // namespace firn::optim
