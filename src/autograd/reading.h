// Scopes in which a program reads weights: a module call, and the backward function of a node. ZeRO
// stage 3 gathers a weight when it is first read, and frees it at the end of the scope that read
// it. The scope's operations have ended by then, so no address is in use.
#pragma once

#include <memory>
#include <vector>

#include "firn/thread_context.h"

namespace firn::autograd {

class ScopeListener {
 public:
  /// Called when the scopes of this depth and deeper ones end. Depth 0 is outside of all scopes,
  /// and ends when the next outermost scope begins.
  virtual void end_of_scope(int depth) noexcept = 0;

 protected:
  ~ScopeListener() = default;
};

struct Reading {
  int depth = 0;
  std::vector<std::weak_ptr<ScopeListener*>>
      listeners;  ///< listeners of this thread; some may be gone

  void notify_end() noexcept {
    for (const auto& listener : listeners)
      if (const auto alive = listener.lock()) (*alive)->end_of_scope(depth);
  }
  void begin() noexcept {
    if (depth == 0) notify_end();
    ++depth;
  }
  void end() noexcept {
    notify_end();
    --depth;
  }
};

/// Notifies the listener of the scopes of this thread as long as `self` lives.
void add_scope_listener(const std::shared_ptr<ScopeListener*>& self);

class ReadingScope {
 public:
  ReadingScope() noexcept : reading_(thread_context.reading) {
    if (reading_) [[unlikely]]
      reading_->begin();
  }
  ~ReadingScope() {
    if (reading_) [[unlikely]]
      reading_->end();
  }
  ReadingScope(const ReadingScope&) = delete;
  ReadingScope& operator=(const ReadingScope&) = delete;

 private:
  Reading* reading_;  ///< null if no listener was added before this scope began
};

}  // namespace firn::autograd
