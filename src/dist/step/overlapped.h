// Sums of gradients that ranks exchange while the last backward pass of a cycle goes on. The arenas
// are cut into pieces. A piece is exchanged when the pass has added all to it and the pieces before
// it have begun, so the order is the same on every rank, whatever its graph.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "autograd/node.h"
#include "autograd/peers.h"
#include "dist/step/replicated.h"
#include "optim/store/param_store.h"

namespace firn::optim {

class OverlappedSums final : public autograd::Collector {
 public:
  OverlappedSums(ParamStore& store, const autograd::Peers& peers);
  OverlappedSums(const OverlappedSums&) = delete;
  OverlappedSums& operator=(const OverlappedSums&) = delete;

  /// A pass from `output` (undefined: none) begins. What is collected so far, and will be, is to be
  /// multiplied by `factor`. A call of all ranks.
  void begin_pass(const Tensor& output, double factor);
  /// It has ended here, or failed: the ranks exchange what is left. Throws what an exchange has
  /// met.
  void end_pass();

  void begin(autograd::Leaf& leaf) override;
  void finish(autograd::Leaf& leaf) override;

 private:
  void exchange_next();

  ParamStore& store_;
  const autograd::Peers& peers_;
  const std::vector<ParamStore::Bucket> pieces_;
  std::unordered_map<const autograd::Leaf*, std::size_t> piece_of_;
  // The pass under way:
  std::vector<std::int64_t> open_;  ///< leaves of each piece that are awaited
  std::size_t next_ = 0;            ///< to be exchanged
  double factor_ = 1;
};

/// Ranks that exchange so in the last micro-step of a run_batch().
class OverlappedStep final : public ReplicatedStep {
 public:
  OverlappedStep(OptimizerImpl& of, std::shared_ptr<const autograd::Peers> peers,
                 std::int64_t number)
      : ReplicatedStep(of, std::move(peers), number), sums_(of.store, this->peers()) {}

  void run_pass(const Pass& pass) override;

 protected:
  void add_gradients(double unit, double of_all) override;

 private:
  OverlappedSums sums_;
};

}  // namespace firn::optim
