// Parts of one batch whose passes go on side by side: each is computed up to a layer that needs
// numbers of the whole batch, and waits there for the others, forward and backward. Who cuts the
// batch implements it (src/optim/exact). An operation that needs the whole batch asks here.
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
  /// Makes one vector of those of all parts, which come in the order of the batch.
  using Combine = std::function<Numbers(std::span<const Numbers> parts)>;

  /// Where parts meet.
  struct Place {
    std::shared_ptr<const std::string> layer = {};  ///< its name; one object for a layer
    bool backward = false;
    std::int64_t first = 0;  ///< meetings() in front of this one, or of its forward pass
  };

  virtual ~BatchParts() = default;
  /// Waits until all parts of the batch, on all ranks, have come to this place, and returns what
  /// combine() makes of their numbers. Each part gives as many. In a dry run: these numbers.
  /// All parts meet in the same order. Throws Error if they do not, or if the part has changed what
  /// others share (BatchPartScope).
  virtual std::shared_ptr<const Numbers> meet(const Place& place, Numbers numbers,
                                              const Combine& combine) = 0;
  /// How often the parts have met.
  virtual std::int64_t meetings() const noexcept = 0;
  /// Gradients of the part whose turn it is are multiplied by this power of two.
  virtual double unit() const noexcept = 0;
  /// Whether it is the first part of this rank.
  virtual bool is_first() const noexcept = 0;
};

/// While alive, this thread computes a part. Parts take turns in the middle of the user's function,
/// so what that changes for a while must not be seen by the others.
class BatchPartScope {
 public:
  explicit BatchPartScope(BatchParts& parts) noexcept
      : before_(std::exchange(thread_context.batch_parts, &parts)),
        outer_(std::exchange(thread_context.batch_part, this)) {}
  ~BatchPartScope();
  BatchPartScope(const BatchPartScope&) = delete;
  BatchPartScope& operator=(const BatchPartScope&) = delete;

  /// A scope of the part begins, or ends. While the part waits, it freezes nothing.
  void begin(Freeze& scope) { frozen_.push_back(&scope); }
  void end(const Freeze& scope) noexcept { std::erase(frozen_, &scope); }
  /// The part has set a flag of `object`.
  void changed(const void* object, bool before, bool after);

  /// While alive, the part waits. Throws Error, naming `op`, if a flag is not what it was.
  class Away {
   public:
    explicit Away(const char* op);
    ~Away();
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;
  };

 private:
  /// The scopes of the part do, or do not for a while.
  void freeze(bool on) const noexcept;

  BatchParts* before_;
  BatchPartScope* outer_;
  std::vector<Freeze*> frozen_;
  std::unordered_map<const void*, bool> flags_;  ///< of what was changed: what they were
};

/// Held by a layer that needs the whole batch. While there is none, parts are computed one after
/// another.
class NeedsWholeBatch {
 public:
  NeedsWholeBatch() noexcept { count.fetch_add(1, std::memory_order_relaxed); }
  ~NeedsWholeBatch() { count.fetch_sub(1, std::memory_order_relaxed); }
  NeedsWholeBatch(const NeedsWholeBatch&) = delete;
  NeedsWholeBatch& operator=(const NeedsWholeBatch&) = delete;

  /// How many layers of the program need it.
  static inline constinit std::atomic<std::int64_t> count = 0;
};

}  // namespace firn::autograd
