// Scopes in which a program reads weights: the call of a module, and the backward function of a
// node. Whoever lends weights (ZeRO stage 3) takes them back when the scope ends in which they were
// asked for. Operations of a scope have ended by then, so nobody holds an address.
#pragma once

#include <memory>
#include <vector>

#include "firn/thread_context.h"

namespace firn::autograd {

class Lender {
 public:
  /// Scopes of this depth and deeper ones have ended. Depth 0 is outside of all scopes, and ends
  /// when the next outermost one begins.
  virtual void end_of_scope(int depth) noexcept = 0;

 protected:
  ~Lender() = default;
};

struct Reading {
  int depth = 0;
  std::vector<std::weak_ptr<Lender*>> lenders;  ///< of this thread; some may be gone

  void tell_end() noexcept {
    for (const auto& lender : lenders)
      if (const auto alive = lender.lock()) (*alive)->end_of_scope(depth);
  }
  void begin() noexcept {
    if (depth == 0) tell_end();
    ++depth;
  }
  void end() noexcept {
    tell_end();
    --depth;
  }
};

/// Who lends something on this thread is told of its scopes as long as `self` lives.
void add_lender(const std::shared_ptr<Lender*>& self);

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
  Reading* reading_;  ///< one that came later knows nothing of this scope
};

}  // namespace firn::autograd
