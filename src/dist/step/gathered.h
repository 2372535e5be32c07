// Weights that ranks divide (ZeRO stage 3). A parameter has memory while somebody reads it: the
// ranks then bring the parts of its bucket together. When the scope ends in which it was asked for,
// the parameter has none again. The bucket's memory waits for the next one that is needed, or is
// released for it, so that modules of one bucket do not bring it together twice. If the ranks
// exchange beside what they compute (Peers::overlaps()), the next bucket comes ahead of time.
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
#include "firn/runtime/storage.h"
#include "optim/store/param_store.h"

namespace firn::optim {

class GatheredWeights final : public StorageLender, public autograd::Lender {
 public:
  /// Called before the ranks bring a bucket together: they tell each other which one.
  using Meet = std::function<void(std::size_t bucket)>;
  /// Called in place of that by a rank which has no memory for the bucket: the others throw, too.
  using Fail = std::function<void(const std::exception_ptr& failure)>;
  /// From now on the weights are lent here. Told of scopes of this thread.
  GatheredWeights(const ParamStore& store, std::shared_ptr<const autograd::Peers> peers, Meet meet,
                  Fail fail);
  /// The weights have no values from now on.
  ~GatheredWeights();
  GatheredWeights(const GatheredWeights&) = delete;
  GatheredWeights& operator=(const GatheredWeights&) = delete;

  /// A call of all ranks, as reading is.
  void fetch(Storage& storage) override;
  void end_of_scope(int depth) noexcept override;
  /// What was written to weights reaches the parts that are kept.
  void keep_writes();
  /// Whether a hold() is alive.
  bool held() const noexcept { return holds_ > 0; }
  /// All memory is released; what was written since keep_writes() is lost.
  void drop() noexcept;
  /// The next step will need weights in the order of this one.
  void end_step() noexcept;
  /// After a failure ranks may have other weights in memory: now none has any, but for hold().
  void release();

  /// All weights are here while one of these is alive. Made by all ranks.
  std::shared_ptr<void> hold();

 private:
  struct Loan {
    Tensor memory;                        ///< of the bucket; undefined: none
    bool here = false;                    ///< the parameters have it
    int depth = 0;                        ///< of the scope in which it was asked for
    std::vector<std::uint32_t> versions;  ///< of the parameters, when their values were last kept
  };
  /// The buckets follow each other as they did in the step before. `ahead` is the one that comes to
  /// `memory` while others are computed with.
  struct Foresight {
    std::vector<std::size_t> before, now;
    std::size_t place = 0;  ///< in `before`, of what is expected
    std::optional<std::size_t> ahead = {};
    Tensor memory = {};
  };
  void bring(std::size_t bucket);
  /// New memory with this rank's part, for which all ranks have met.
  Tensor prepare(std::size_t bucket);
  /// Waits for what is on its way. Undefined if that is no or another bucket.
  Tensor take_ahead(std::size_t bucket);
  /// Begins to bring the bucket that is expected after this one.
  void look_ahead(std::size_t bucket);
  void give(std::size_t bucket) noexcept;
  void take_back(std::size_t bucket) noexcept;
  /// Throws OutOfMemory; then what was written is kept by the next call.
  void keep_writes(std::size_t bucket);
  /// A plan of a step leaves all as it is.
  void keep_if_planned();

  const ParamStore& store_;
  std::shared_ptr<const autograd::Peers> peers_;
  Meet meet_;
  Fail fail_;
  std::unordered_map<const Storage*, std::size_t> bucket_of_;
  std::vector<Loan> loans_;
  Foresight foresight_;
  int holds_ = 0;
  std::shared_ptr<autograd::Lender*> self_ = std::make_shared<autograd::Lender*>(this);
};

}  // namespace firn::optim
