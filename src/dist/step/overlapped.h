// Sums of gradients that are exchanged during the last backward pass of a cycle. The arenas are cut
// into pieces. A piece is exchanged when it is complete and all pieces before it have begun. So the
// order is the same on every rank, whatever the rank's graph.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "autograd/node.h"
#include "autograd/peers.h"
#include "dist/step/bucket_layout.h"
#include "dist/step/replicated.h"

namespace firn::optim {

class OverlappedSums final : public autograd::Collector {
 public:
  OverlappedSums(ParamStore& store, const autograd::Peers& peers);
  OverlappedSums(const OverlappedSums&) = delete;
  OverlappedSums& operator=(const OverlappedSums&) = delete;

  /// Begins a pass from `output` (undefined: none). The gradients, including those of earlier
  /// passes, are multiplied by `factor` before the exchange. All ranks make this call.
  void begin_pass(const Tensor& output, double factor);
  /// Exchanges the remaining pieces after the pass has ended or failed. Throws the first error of
  /// an exchange.
  void end_pass();

  void begin(autograd::Leaf& leaf) override;
  void finish(autograd::Leaf& leaf) override;

 private:
  void exchange_next();

  ParamStore& store_;
  const autograd::Peers& peers_;
  const std::vector<Bucket> pieces_;
  std::vector<Tensor> gradients_;  ///< gradient of each piece
  std::unordered_map<const autograd::Leaf*, std::size_t> piece_of_;
  // State of the pass under way:
  std::vector<std::int64_t> open_;  ///< leaves of each piece that still expect gradients
  std::size_t next_ = 0;            ///< next piece to exchange
  double factor_ = 1;
};

/// Ranks whose exchange overlaps with the last micro-step of a run_batch().
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
