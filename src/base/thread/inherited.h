// Scopes that a thread takes over from the thread whose work it does a part of: ThreadScopes
// (firn/thread_context.h), and variables that cannot be copied with them, which register here.
#pragma once

#include <functional>
#include <vector>

#include "firn/thread_context.h"

namespace firn {

/// A registered variable. All such objects are static.
class Inherited {
 public:
  using Set = std::function<void()>;
  /// `capture` reads the variable of the calling thread. It returns a function that sets another's.
  using Capture = Set (*)();
  explicit Inherited(Capture capture) noexcept : capture_(capture), next_(first) { first = this; }
  Inherited(const Inherited&) = delete;
  Inherited& operator=(const Inherited&) = delete;

  /// Captures the calling thread's variables. Run all of the result in a thread that has done
  /// nothing else, while this one waits.
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
