// Intrusive reference counting: one word in the object, no control block.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace firn {

/// Base of objects held by Ref<T>. The last release calls T::destroy(T*), which T provides (it may
/// delete, or hand the memory back to a pool).
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  /// Counts one more reference.
  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  /// Drops one reference. Returns true if it was the last.
  bool release() const noexcept { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  /// Returns the number of references.
  std::uint32_t use_count() const noexcept { return count_.load(std::memory_order_acquire); }

 protected:
  ~RefCounted() = default;

 private:
  mutable std::atomic<std::uint32_t> count_{0};
};

/// Shared owner of a RefCounted object.
template <class T>
class Ref {
 public:
  constexpr Ref() noexcept = default;
  constexpr Ref(std::nullptr_t) noexcept {}
  explicit Ref(T* p) noexcept : p_(p) {
    if (p_) p_->retain();
  }
  Ref(const Ref& o) noexcept : p_(o.p_) {
    if (p_) p_->retain();
  }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() { reset(); }

  /// Releases the object; the Ref is null after that.
  void reset() noexcept {
    if (T* p = std::exchange(p_, nullptr); p && p->release()) T::destroy(p);
  }
  /// Returns the object, or null if it refers to nothing.
  T* get() const noexcept { return p_; }
  T* operator->() const noexcept { return p_; }
  T& operator*() const noexcept { return *p_; }
  explicit operator bool() const noexcept { return p_ != nullptr; }
  bool operator==(const Ref& o) const noexcept { return p_ == o.p_; }

 private:
  T* p_ = nullptr;
};

}  // namespace firn
