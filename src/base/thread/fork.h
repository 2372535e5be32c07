// Locks that a child of fork() can use.
//
// A child has one thread. A lock that another thread held during fork() would stay locked in the
// child. So fork() first takes every lock that is registered here, and both sides release them.
#pragma once

#include <pthread.h>

#include <mutex>
#include <new>

namespace firn {

/// Registers the mutex that `get` returns; call it once. Register mutexes that a thread locks while
/// it holds this one first: fork() locks in the reverse order of these calls. Throws
/// std::bad_alloc. Nothing after it may fail and cause a second call: fork() would lock the mutex
/// twice.
template <std::mutex& (*get)()>
void hold_during_fork() {
  if (pthread_atfork([] { get().lock(); }, [] { get().unlock(); }, [] { get().unlock(); }) != 0)
    throw std::bad_alloc();
}

}  // namespace firn
