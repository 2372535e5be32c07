// Gradients of a backward pass under ZeRO stage 2, which are collected in buckets and then sharded.
// A bucket is exchanged when it is complete and all buckets before it have been exchanged. So the
// order is the same on every rank, whatever the rank's graph.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "autograd/node.h"
#include "dist/step/bucket_layout.h"

namespace firn::optim {

class GradientBuckets final : public autograd::Collector {
 public:
  /// From now on the parameters' leaves get their gradient memory from this object.
  explicit GradientBuckets(const BucketLayout& layout);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// Returns for each parameter 1 if a backward pass from `output` (undefined: none) may add to it,
  /// else 0.
  std::vector<std::uint8_t> expect(const Tensor& output);

  /// Takes the gradients of a bucket, which are zeros where this rank's pass has added nothing.
  /// `memory` is undefined if no rank's pass may reach the bucket. All ranks make this call. Before
  /// it, `prepare` allocates what it needs.
  using Take = std::function<void(const Bucket& bucket, const Tensor& memory)>;
  /// Begins a pass on all ranks. `expected` marks the parameters that may get gradients on any
  /// rank.
  void begin_pass(std::span<const std::uint8_t> expected, Take prepare, Take take);
  /// Ends the pass and exchanges the remaining buckets; after a failure these are zeros. If memory
  /// runs out between two exchanges, frees what it can, goes on with zeros and then throws. If an
  /// exchange has thrown before, only releases memory.
  void end_pass(bool failed);

  /// Stops the exchanges of this pass, because all ranks know that one has failed.
  void abandon() noexcept { lost_ = true; }
  /// Returns true if an exchange of the last pass has thrown. The other ranks are then at another
  /// point.
  bool lost() const noexcept { return lost_; }

  void begin(autograd::Leaf& leaf) override;
  void finish(autograd::Leaf& leaf) override;

 private:
  void exchange_next();
  /// Takes the memory away from the bucket's leaves.
  void take_back(std::size_t bucket) noexcept;

  const BucketLayout& layout_;
  const ParamStore& store_;
  std::unordered_map<const autograd::Leaf*, std::size_t> parameters_;
  std::vector<std::size_t> bucket_of_;  ///< bucket of each parameter
  // State of the pass under way:
  bool running_ = false, lost_ = false;
  Take prepare_, take_;
  std::vector<Tensor> memory_;  ///< memory of each bucket; undefined: no gradient yet, or exchanged
  std::vector<std::int64_t> open_;  ///< leaves of each bucket that still expect gradients
  std::vector<std::uint8_t> any_;   ///< 1 for each bucket that any rank's pass may reach
  std::size_t next_ = 0;            ///< next bucket to exchange
};

}  // namespace firn::optim
