// Parts of one batch whose passes go on side by side: each is computed up to a layer that needs
// numbers of the whole batch, and waits there for the others, forward and backward. Who cuts the
// batch implements it (src/optim/ranks). An operation that needs the whole batch asks here.
//
// Folder law: floor 3. Includes floors 0 to 2 and kernel contracts.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace firn::autograd {

class BatchParts {
 public:
  using Numbers = std::vector<double>;
  /// Makes one vector of those of all parts, which come in the order of the batch.
  using Combine = std::function<Numbers(std::span<const Numbers> parts)>;

  virtual ~BatchParts() = default;
  /// Waits until all parts of the batch, on all ranks, have come to this place, and returns what
  /// combine() makes of their numbers. Each part gives as many. In a dry run: these numbers.
  /// `op` and `place` say which place it is; all parts meet in the same order. Throws Error if
  /// they do not.
  virtual std::shared_ptr<const Numbers> meet(const char* op, std::int64_t place, Numbers numbers,
                                              const Combine& combine) = 0;
  /// The number of this part's next meeting.
  virtual std::int64_t next_place() const noexcept = 0;
  /// Gradients of the part whose turn it is are multiplied by this power of two.
  virtual double unit() const noexcept = 0;
  /// Whether it is the first part of this rank.
  virtual bool is_first() const noexcept = 0;

  /// Those of which this thread computes one; null: none.
  static inline thread_local constinit BatchParts* current = nullptr;
};

/// While alive, this thread computes a part.
class BatchPartScope {
 public:
  explicit BatchPartScope(BatchParts& parts) noexcept
      : before_(std::exchange(BatchParts::current, &parts)) {}
  ~BatchPartScope() { BatchParts::current = before_; }
  BatchPartScope(const BatchPartScope&) = delete;
  BatchPartScope& operator=(const BatchPartScope&) = delete;

 private:
  BatchParts* before_;
};

/// Held by a layer that needs the whole batch. While there is none, parts are computed one after
/// another.
class NeedsWholeBatch {
 public:
  NeedsWholeBatch() noexcept { count.fetch_add(1, std::memory_order_relaxed); }
  ~NeedsWholeBatch() { count.fetch_sub(1, std::memory_order_relaxed); }
  NeedsWholeBatch(const NeedsWholeBatch&) = delete;
  NeedsWholeBatch& operator=(const NeedsWholeBatch&) = delete;

  /// Of the program.
  static inline constinit std::atomic<std::int64_t> count = 0;
};

}  // namespace firn::autograd
