// Handles of CUDA's libraries with the plans made for them: one context for each thread and device.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace firn::kernels::cuda {

/// Hash of a plan's key, a list of numbers.
struct KeyHash {
  template <std::size_t N>
  std::size_t operator()(const std::array<std::int64_t, N>& key) const noexcept {
    std::uint64_t h = 0x9e3779b97f4a7c15u;
    for (const std::int64_t v : key) {
      h = (h ^ static_cast<std::uint64_t>(v)) * 0xff51afd7ed558ccdu;
      h ^= h >> 32;
    }
    return h;
  }
};

/// A context with this number of plans drops them, so that ever-changing shapes do not fill the
/// memory.
inline constexpr std::size_t kMaxPlans = 4096;

/// Contexts that no thread uses at the moment. A thread that ends leaves its contexts and their
/// plans here for the next one. Contexts are never destroyed, because CUDA may be gone before a
/// process's last objects.
template <class Context>
struct IdleContexts {
  std::mutex mutex;
  std::vector<std::unique_ptr<Context>> contexts;

  static IdleContexts& all() {
    static auto* const idle = new IdleContexts;
    return *idle;
  }
};

template <class Context>
class ThreadContexts {
 public:
  ThreadContexts() = default;
  ~ThreadContexts() {
    auto& idle = IdleContexts<Context>::all();
    const std::lock_guard lock(idle.mutex);
    for (auto& c : mine_) idle.contexts.push_back(std::move(c));
  }
  ThreadContexts(const ThreadContexts&) = delete;
  ThreadContexts& operator=(const ThreadContexts&) = delete;

  template <class Make>
  Context& of(int device, Make&& make) {
    for (const auto& c : mine_)
      if (c->device == device) return *c;
    auto& idle = IdleContexts<Context>::all();
    {
      const std::lock_guard lock(idle.mutex);
      const auto free = std::find_if(idle.contexts.begin(), idle.contexts.end(),
                                     [&](const auto& c) { return c->device == device; });
      if (free != idle.contexts.end()) {
        mine_.push_back(std::move(*free));
        idle.contexts.erase(free);
        return *mine_.back();
      }
    }
    mine_.push_back(make());
    return *mine_.back();
  }

 private:
  std::vector<std::unique_ptr<Context>> mine_;
};

/// Returns this thread's contexts of one type. A static in thread_context() would exist once more
/// for each type of `make`.
template <class Context>
ThreadContexts<Context>& thread_contexts() {
  static thread_local ThreadContexts<Context> contexts;
  return contexts;
}

/// Returns this thread's context of the current device, which is `device`; make() returns a new one
/// as a unique_ptr. A Context has a member `device`.
template <class Context, class Make>
Context& thread_context(int device, Make&& make) {
  return thread_contexts<Context>().of(device, std::forward<Make>(make));
}

}  // namespace firn::kernels::cuda
