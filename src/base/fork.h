// Locks that a child of fork() can use.
//
// A child has one thread. A lock that another thread held at that moment stays locked in the child.
// So fork() waits until it holds every lock that is named here, and both sides let go of them.
#pragma once

#include <pthread.h>

#include <mutex>

namespace firn {

/// To be called once for the mutex that `get` returns, after the calls for all mutexes that a
/// thread locks while it holds this one: fork() locks in the reverse order of these calls.
template <std::mutex& (*get)()>
void hold_during_fork() noexcept {
  pthread_atfork([] { get().lock(); }, [] { get().unlock(); }, [] { get().unlock(); });
}

}  // namespace firn
