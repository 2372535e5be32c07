// Gradients of a backward pass on their way to the ranks that keep them (ZeRO stage 2). They are
// collected in buckets. A bucket is exchanged when the pass has added all to it and all buckets
// before it have gone, so the order is the same on every rank, whatever its graph.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "autograd/node.h"
#include "optim/store/param_store.h"

namespace firn::optim {

class GradientBuckets final : public autograd::Collector {
 public:
  /// From now on the parameters' leaves borrow their memory here.
  explicit GradientBuckets(ParamStore& store);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// For each parameter whether a backward pass from `output` may add to it (undefined: to none).
  std::vector<std::uint8_t> expect(const Tensor& output);

  /// Takes the gradients of a bucket, which are zeros for what this rank's pass has not reached. If
  /// no rank's pass may reach any of it, `memory` is undefined. A call of all ranks.
  using Take = std::function<void(const ParamStore::Bucket& bucket, const Tensor& memory)>;
  /// A pass begins, on all ranks. `expected` are the parameters that may get gradients on any rank.
  void begin_pass(std::span<const std::uint8_t> expected, Take take);
  /// It has ended here, or failed: exchanges what is left, after a failure zeros. If an exchange
  /// has thrown before, does nothing but release memory.
  void end_pass(bool failed);

  /// Nothing more of the pass is exchanged: all ranks know that one has failed.
  void abandon() noexcept { lost_ = true; }
  /// Whether an exchange of the last pass has thrown: others are at another place.
  bool lost() const noexcept { return lost_; }

  void begin(autograd::Leaf& leaf) override;
  void finish(autograd::Leaf& leaf) override;

 private:
  void exchange_next();
  /// The bucket's leaves have no memory from now on.
  void take_back(std::size_t bucket) noexcept;

  ParamStore& store_;
  std::unordered_map<const autograd::Leaf*, std::size_t> parameters_;
  std::vector<std::size_t> bucket_of_;  ///< of each parameter
  // The pass under way:
  bool running_ = false, lost_ = false;
  Take take_;
  std::vector<Tensor> memory_;      ///< of each bucket; undefined: no gradient yet, or no more
  std::vector<std::int64_t> open_;  ///< leaves of each bucket that are awaited
  std::vector<std::uint8_t> any_;   ///< whether a rank's pass may reach the bucket
  std::size_t next_ = 0;            ///< to be exchanged
};

}  // namespace firn::optim
