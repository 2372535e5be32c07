#include "autograd/reading.h"

#include <algorithm>

namespace firn::autograd {

void add_scope_listener(const std::shared_ptr<ScopeListener*>& self) {
  static thread_local Reading of_thread;
  std::erase_if(of_thread.listeners, [](const auto& listener) { return listener.expired(); });
  of_thread.listeners.push_back(self);
  thread_context.reading = &of_thread;
}

}  // namespace firn::autograd
