// The listeners of each thread. A listener and its thread's list share a place, which outlives
// whichever of them ends first.
#include <pthread.h>

#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "autograd/op_mode.h"
#include "base/check.h"
#include "base/inherited.h"

namespace firn::autograd {

struct OpListener::Place {
  /// Held while the listener is told, because it may end in another thread. What it calls may run
  /// ops, of which it is told as well.
  std::recursive_mutex mutex;
  OpListener* listener = nullptr;  ///< null once it has ended

  bool ended() {
    const std::lock_guard lock(mutex);
    return listener == nullptr;
  }
};

namespace {

/// Only its own thread touches it.
struct List {
  std::vector<std::shared_ptr<OpListener::Place>> places;
};
thread_local constinit List* own_list = nullptr;

/// Deletes the list of a thread that ends. A thread_local with a destructor would end the program
/// if the heap has no memory to register it.
struct ThreadEnd {
  pthread_key_t key = 0;
  bool made = pthread_key_create(&key, [](void* list) {
                delete static_cast<List*>(list);
                own_list = nullptr;
                op_mode.listeners = op_mode.first = 0;
              }) == 0;
};

List& list() {
  static const ThreadEnd end;
  if (own_list) return *own_list;
  auto made = std::make_unique<List>();
  if (!end.made || pthread_setspecific(end.key, made.get()) != 0) throw std::bad_alloc();
  return *(own_list = made.release());
}

/// A thread that does a part of this one's work has its modes, and tells its listeners.
const Inherited inherited_mode{[]() -> Inherited::Set {
  return [mode = op_mode, places = own_list ? own_list->places
                                            : std::vector<std::shared_ptr<OpListener::Place>>()] {
    if (!places.empty()) list().places = places;
    op_mode = mode;
  };
}};

/// Removes ended listeners from the end of this thread's list. One before a listener that lives
/// stays, silent, until that ends too.
void prune() noexcept {
  while (op_mode.listeners > op_mode.first && own_list->places.back()->ended()) {
    own_list->places.pop_back();
    --op_mode.listeners;
  }
}

}  // namespace

OpListener::OpListener() try {
  place_ = std::make_shared<Place>();
  place_->listener = this;
  list().places.push_back(place_);
  ++op_mode.listeners;
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

void tell_listeners(const char* op, std::span<const Tensor* const> operands,
                    const Tensor& output) try {
  for (int i = op_mode.listeners; i-- > op_mode.first;) {
    OpListener::Place& place = *own_list->places[static_cast<std::size_t>(i)];
    const std::lock_guard lock(place.mutex);
    if (place.listener) place.listener->ran(op, operands, output);
  }
  prune();
}
FIRN_OUT_OF_MEMORY(op)

}  // namespace firn::autograd
