// Chunks of a batch that need each other, because a layer normalises the whole batch
// (nn::BatchNormMode::whole_batch). Each chunk runs as a coroutine. It stops at every such layer,
// forward and backward, until the chunks of all ranks have reached the layer. Without such a layer,
// each chunk ends before the next begins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/batch_parts.h"
#include "autograd/peers.h"
#include "base/thread/coroutine.h"
#include "kernels/math/loss_sums.h"
#include "optim/impl.h"
#include "optim/store/gradient_ledger.h"

namespace firn::optim {

class InterleavedChunks final : public autograd::BatchParts {
 public:
  /// `chunks` is the number of chunks that this rank computes. All ranks of the optimizer construct
  /// one of these objects. `why_alone` says why chunks cannot wait for each other in this batch, or
  /// is null. `in_chunk` is kept for each chunk: it is true while its backward pass runs.
  InterleavedChunks(OptimizerImpl& impl, bool& in_chunk, std::int64_t chunks,
                    const char* why_alone);
  InterleavedChunks(const InterleavedChunks&) = delete;
  InterleavedChunks& operator=(const InterleavedChunks&) = delete;

  /// Calls compute(i) for each chunk of this rank, and ended(i) after a chunk that has waited for
  /// no other. All ranks make this call. If one of them fails, all throw.
  void run(const std::function<void(std::int64_t i)>& compute,
           const std::function<void(std::int64_t i)>& ended);
  /// Returns true if a chunk has waited for the others. Then all chunks of this rank are under way.
  bool exchanged() const noexcept { return exchanged_; }
  /// Makes the gradients of chunk i go to these arenas, until the call with none.
  void collect_into(std::int64_t i, std::vector<Tensor> place);

  std::shared_ptr<const Numbers> exchange(const Place& place, Numbers numbers,
                                          const Combine& combine) override;
  std::int64_t exchanges() const noexcept override { return serial_; }
  double unit() const noexcept override;
  bool is_first() const noexcept override { return current_ == 0; }

 private:
  /// A chunk, and the optimizer's state of its backward pass while it waits.
  struct Chunk {
    std::unique_ptr<Coroutine> coroutine;
    bool waits = false;
    Phase phase = Phase::collecting;
    bool in_chunk = false;
    math::LossSums sums = {};
    GradientLedger::Place ledger = {};
    std::vector<Tensor> place;
    // Layer that it waits at.
    Place at = {};
    Numbers numbers;
    const Combine* combine = nullptr;
  };
  /// The record that a rank sends to the others when its chunks wait or have ended.
  struct Word {
    std::int64_t state, first, layer, backward, numbers, chunks;
  };

  /// Resumes each chunk until it waits or ends. Returns true if they wait. Throws Error unless all
  /// of them wait at the same layer, or all have ended.
  bool go_on(const std::function<void(std::int64_t i)>& compute,
             const std::function<void(std::int64_t i)>& ended);
  void resume_chunk(Chunk& chunk);
  void suspend_chunk(Chunk& chunk);
  void require_same_place() const;
  /// Exchanges the numbers of all ranks' chunks. Returns true if chunks of any rank wait. Throws on
  /// every rank if one has failed, or waits at another layer.
  bool exchange(bool waits, bool failed, std::vector<Numbers>& all);
  const std::string& op() const noexcept;
  const autograd::Peers* peers() const noexcept;

  OptimizerImpl& impl_;
  bool& in_chunk_;
  const char* why_alone_;
  std::vector<Chunk> chunks_;
  std::int64_t current_ = 0;
  std::int64_t serial_ = 0;  ///< exchanges so far
  bool exchanged_ = false;
  std::shared_ptr<const Numbers> result_;
  std::vector<const void*> layers_;  ///< in the order of first use, so ranks agree on the numbers
};

}  // namespace firn::optim
