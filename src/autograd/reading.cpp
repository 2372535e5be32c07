#include "autograd/reading.h"

#include <algorithm>

#include "base/thread/of_thread.h"

namespace firn::autograd {

void add_scope_listener(const std::shared_ptr<ScopeListener*>& self) {
  auto& listeners = of_thread<Reading, &ThreadContext::reading>().listeners;
  std::erase_if(listeners, [](const auto& listener) { return listener.expired(); });
  listeners.push_back(self);
}

}  // namespace firn::autograd
