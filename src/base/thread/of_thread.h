// Objects that each thread has one of, from its first use to its end.
#pragma once

#include <pthread.h>

#include <memory>
#include <new>

#include "firn/thread_context.h"

namespace firn {

/// Returns this thread's object, which `place` points to. The first call makes it, and may throw
/// std::bad_alloc. It is deleted when the thread ends. A thread_local with a destructor would end
/// the program if the heap has no memory to register it.
template <class T, T* ThreadContext::*place>
T& of_thread() {
  struct ThreadEnd {
    pthread_key_t key = 0;
    bool made = pthread_key_create(&key, [](void* object) {
                  delete static_cast<T*>(object);
                  thread_context.*place = nullptr;
                }) == 0;
  };
  static const ThreadEnd end;
  if (thread_context.*place) return *(thread_context.*place);
  auto made = std::make_unique<T>();
  if (!end.made || pthread_setspecific(end.key, made.get()) != 0) throw std::bad_alloc();
  return *(thread_context.*place = made.release());
}

}  // namespace firn
