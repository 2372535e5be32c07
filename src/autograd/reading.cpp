#include "autograd/reading.h"

#include <algorithm>

namespace firn::autograd {

void add_lender(const std::shared_ptr<Lender*>& self) {
  static thread_local Reading of_thread;
  std::erase_if(of_thread.lenders, [](const auto& lender) { return lender.expired(); });
  of_thread.lenders.push_back(self);
  thread_context.reading = &of_thread;
}

}  // namespace firn::autograd
