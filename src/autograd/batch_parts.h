// Parts of one batch that are computed side by side. Each part runs up to a layer that needs
// numbers of the whole batch, and waits there for the other parts, forward and backward. Exact mode
// implements this interface (src/optim/exact). An operation that needs the whole batch calls it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "firn/autograd.h"
#include "firn/thread_context.h"

namespace firn::autograd {

class BatchParts {
 public:
  using Numbers = std::vector<double>;
  /// Combines the vectors of all parts, which come in the order of the batch, into one.
  using Combine = std::function<Numbers(std::span<const Numbers> parts)>;

  /// The point at which parts wait for each other.
  struct Place {
    std::shared_ptr<const std::string> layer = {};  ///< name of the layer; one object per layer
    bool backward = false;
    std::int64_t first = 0;  ///< exchanges() before this one, or before that of its forward pass
  };

  virtual ~BatchParts() = default;
  /// Waits until all parts of the batch, on all ranks, have reached this place. Returns what
  /// combine() makes of their numbers; in a dry run returns `numbers`. All parts give equally many
  /// numbers. Throws Error if parts reach places in another order, or if the part has changed state
  /// that the others share (BatchPartScope).
  virtual std::shared_ptr<const Numbers> exchange(const Place& place, Numbers numbers,
                                                  const Combine& combine) = 0;
  /// Number of exchange() calls that all parts have completed.
  virtual std::int64_t exchanges() const noexcept = 0;
  /// Power of two that the gradients of the running part are multiplied by.
  virtual double unit() const noexcept = 0;
  /// Returns true if the running part is the first one of this rank.
  virtual bool is_first() const noexcept = 0;
};

/// While alive, this thread computes a part. Parts are interrupted in the middle of the user's
/// function, so the others must not see temporary changes that it makes.
class BatchPartScope {
 public:
  explicit BatchPartScope(BatchParts& parts) noexcept
      : before_(std::exchange(thread_context.batch_parts, &parts)),
        outer_(std::exchange(thread_context.batch_part, this)) {}
  ~BatchPartScope();
  BatchPartScope(const BatchPartScope&) = delete;
  BatchPartScope& operator=(const BatchPartScope&) = delete;

  /// Notes a Freeze scope that the part opens or closes. While the part waits, it freezes nothing.
  void begin(Freeze& scope) { frozen_.push_back(&scope); }
  void end(const Freeze& scope) noexcept { std::erase(frozen_, &scope); }
  /// Notes that the part has set a flag of `object`.
  void changed(const void* object, bool before, bool after);

  /// While alive, the part waits. Throws Error, naming `op`, if a flag differs from its first
  /// value.
  class Away {
   public:
    explicit Away(const char* op);
    ~Away();
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;
  };

 private:
  /// Applies the part's Freeze scopes, or suspends them.
  void freeze(bool on) const noexcept;

  BatchParts* before_;
  BatchPartScope* outer_;
  std::vector<Freeze*> frozen_;
  std::unordered_map<const void*, bool> flags_;  ///< first values of the changed flags
};

/// Held by a layer that needs the whole batch. Without such a layer, parts are computed one after
/// another.
class NeedsWholeBatch {
 public:
  NeedsWholeBatch() noexcept { count.fetch_add(1, std::memory_order_relaxed); }
  ~NeedsWholeBatch() { count.fetch_sub(1, std::memory_order_relaxed); }
  NeedsWholeBatch(const NeedsWholeBatch&) = delete;
  NeedsWholeBatch& operator=(const NeedsWholeBatch&) = delete;

  /// Number of layers in the program that need it.
  static inline constinit std::atomic<std::int64_t> count = 0;
};

}  // namespace firn::autograd
