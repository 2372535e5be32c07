// Sharded weights (ZeRO stage 3). When a parameter is first read, the ranks gather the bucket that
// it belongs to. At the end of the scope that read it (a module call or a backward function), the
// parameter loses its memory. The bucket's buffer stays until another bucket needs it, so
// modules of one bucket do not gather it twice. If exchanges overlap with computation
// (Peers::overlaps()), the next bucket is gathered ahead of time.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "autograd/peers.h"
#include "autograd/reading.h"
#include "dist/step/bucket_layout.h"
#include "firn/runtime/storage.h"

namespace firn::optim {

class WeightGatherer final : public StorageProvider, public autograd::ScopeListener {
 public:
  /// Called before a bucket is gathered, at once or `ahead` of time: the ranks compare that.
  using Agree = std::function<void(std::size_t bucket, bool ahead)>;
  /// Called instead by a rank that has no memory for the bucket. The other ranks then throw too.
  using Fail = std::function<void(const std::exception_ptr& failure)>;
  /// From now on this object is notified when scopes of this thread end.
  WeightGatherer(const BucketLayout& layout, std::shared_ptr<const autograd::Peers> peers,
                 Agree agree, Fail fail);
  /// From now on this object provides the weights' memory, which it takes away.
  void provide() noexcept;
  /// Takes the memory of all weights away, after provide().
  ~WeightGatherer();
  WeightGatherer(const WeightGatherer&) = delete;
  WeightGatherer& operator=(const WeightGatherer&) = delete;

  /// Gathers the bucket of `storage`. All ranks make this call, because all read the same weights.
  void fetch(Storage& storage) override;
  void end_of_scope(int depth) noexcept override;
  /// Copies what was written to gathered weights into this rank's shards.
  void keep_writes();
  /// Returns true while a hold() is alive.
  bool held() const noexcept { return holds_ > 0; }
  /// Releases all memory. Writes since the last keep_writes() are lost.
  void drop() noexcept;
  /// Forgets the order in which weights are gathered, because ranks may have different ones.
  void forget_order() noexcept;
  /// Notes that the next step will gather weights in the order of this one.
  void end_step() noexcept;
  /// Releases all gathered weights except under hold(). After a failure ranks may have gathered
  /// different ones.
  void release();

  /// Gathers all weights and keeps them while the result is alive. All ranks make this call.
  std::shared_ptr<void> hold();

 private:
  struct GatherState {
    Tensor memory;                        ///< buffer of the bucket; undefined: not gathered
    bool here = false;                    ///< true if the parameters use it
    int depth = 0;                        ///< depth of the scope that read the bucket
    std::vector<std::uint32_t> versions;  ///< versions of the parameters at the last keep_writes()
  };
  /// The order in which buckets were gathered in the step before, which predicts the next one. The
  /// bucket `ahead` is being gathered into `memory` meanwhile.
  struct Foresight {
    std::vector<std::size_t> before, now;
    std::size_t place = 0;  ///< index in `before` of the expected bucket
    std::optional<std::size_t> ahead = {};
    Tensor memory = {};
    std::optional<Gathering> gathering = {};
  };
  void bring(std::size_t bucket);
  struct Prepared {
    Tensor memory;  ///< buffer with this rank's shard
    Gathering gathering;
  };
  /// Allocates all that the bucket needs, then agrees with all ranks on it.
  Prepared prepare(std::size_t bucket, bool ahead);
  /// Waits for the bucket that is being gathered ahead, and returns its buffer. Undefined if there
  /// is none or it is another one.
  Tensor take_ahead(std::size_t bucket);
  /// Begins to gather the bucket that is expected after this one.
  void look_ahead(std::size_t bucket);
  void give(std::size_t bucket) noexcept;
  void take_back(std::size_t bucket) noexcept;
  /// May throw OutOfMemory. The next call then copies the writes.
  void keep_writes(std::size_t bucket);
  /// Makes a plan of a step restore everything at its end.
  void keep_if_planned();

  const BucketLayout& layout_;
  const ParamStore& store_;
  std::shared_ptr<const autograd::Peers> peers_;
  Agree agree_;
  Fail fail_;
  std::unordered_map<const Storage*, std::size_t> bucket_of_;
  std::vector<GatherState> states_;
  Foresight foresight_;
  int holds_ = 0;
  std::shared_ptr<autograd::ScopeListener*> self_ =
      std::make_shared<autograd::ScopeListener*>(this);
};

}  // namespace firn::optim
