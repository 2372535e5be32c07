// A thread takes over scopes from the thread whose work it does a part of: ThreadScopes
// (firn/thread_context.h), and what cannot be copied with them, which is registered here.
#pragma once

#include <functional>
#include <vector>

#include "firn/thread_context.h"

namespace firn {

/// Static objects only.
class Inherited {
 public:
  using Set = std::function<void()>;
  /// `capture` reads the variable of the calling thread, and returns what sets it in another one.
  using Capture = Set (*)();
  explicit Inherited(Capture capture) noexcept : capture_(capture), next_(first) { first = this; }
  Inherited(const Inherited&) = delete;
  Inherited& operator=(const Inherited&) = delete;

  /// Captures the calling thread. Run all of the result in a thread that has done nothing else,
  /// while this one waits.
  static std::vector<Set> of_this_thread() {
    std::vector<Set> out;
    out.push_back([scopes = static_cast<const ThreadScopes&>(thread_context)] {
      static_cast<ThreadScopes&>(thread_context) = scopes;
    });
    for (const Inherited* i = first; i; i = i->next_) out.push_back(i->capture_());
    return out;
  }

 private:
  Capture capture_;
  const Inherited* next_;
  static inline constinit const Inherited* first = nullptr;
};

}  // namespace firn
