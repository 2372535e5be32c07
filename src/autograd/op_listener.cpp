// The listeners of each thread. A listener and its thread's list share a place, which outlives
// whichever of them ends first.
#include <memory>
#include <mutex>
#include <vector>

#include "autograd/op_mode.h"
#include "base/check.h"
#include "base/thread/inherited.h"
#include "base/thread/of_thread.h"
#include "firn/thread_context.h"

namespace firn::autograd {

struct OpListener::Place {
  /// Held while the listener is notified, because it may end in another thread. The listener may
  /// run ops, and is then notified of these as well.
  std::recursive_mutex mutex;
  OpListener* listener = nullptr;  ///< null once it has ended

  bool ended() {
    const std::lock_guard lock(mutex);
    return listener == nullptr;
  }
};

/// A thread's list, which only that thread touches.
struct ListenerList {
  ~ListenerList() { thread_context.op_mode.listeners = thread_context.op_mode.first = 0; }
  std::vector<std::shared_ptr<OpListener::Place>> places;
};

namespace {

ListenerList& list() { return of_thread<ListenerList, &ThreadContext::listeners>(); }

/// A thread that does a part of this one's work notifies this one's listeners.
const Inherited inherited_listeners{[]() -> Inherited::Set {
  return [places = thread_context.listeners ? thread_context.listeners->places
                                            : std::vector<std::shared_ptr<OpListener::Place>>()] {
    if (!places.empty()) list().places = places;
  };
}};

/// Removes ended listeners from the end of this thread's list. An ended one stays, silent, while a
/// listener after it lives.
void prune() noexcept {
  while (thread_context.op_mode.listeners > thread_context.op_mode.first &&
         thread_context.listeners->places.back()->ended()) {
    thread_context.listeners->places.pop_back();
    --thread_context.op_mode.listeners;
  }
}

}  // namespace

OpListener::OpListener() try {
  place_ = std::make_shared<Place>();
  place_->listener = this;
  list().places.push_back(place_);
  ++thread_context.op_mode.listeners;
}
FIRN_OUT_OF_MEMORY("a listener")

OpListener::~OpListener() { stop(); }

void OpListener::stop() noexcept {
  if (!place_) return;
  {
    const std::lock_guard lock(place_->mutex);
    place_->listener = nullptr;
  }
  place_.reset();
  prune();
}

void notify_listeners(const char* op, std::span<const Tensor* const> operands,
                      const Tensor& output) try {
  for (int i = thread_context.op_mode.listeners; i-- > thread_context.op_mode.first;) {
    OpListener::Place& place = *thread_context.listeners->places[static_cast<std::size_t>(i)];
    const std::lock_guard lock(place.mutex);
    if (place.listener) place.listener->ran(op, operands, output);
  }
  prune();
}
FIRN_OUT_OF_MEMORY(op)

}  // namespace firn::autograd
