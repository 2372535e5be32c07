#include "runtime/memory/pool.h"

#include <pthread.h>

#include <new>

#include "base/check.h"

namespace firn::memory {
namespace {

constexpr std::size_t kStep = 64;
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kLimit = 0;  // all from the heap, so that the sanitizer sees every release
#else
constexpr std::size_t kLimit = 1024;
#endif
constexpr int kKeep = 4096;  // per size; further objects go back to the heap

struct FreeObject {
  FreeObject* next;
};

struct Pool {
  FreeObject* free[kLimit / kStep + 1];
  int count[kLimit / kStep + 1];
  bool open;    // the pool is emptied when the thread ends
  bool closed;  // not used: the thread has ended, or the pool would not be emptied
};

// It has no destructor, so that a thread's first use allocates nothing. A pthread key empties it.
thread_local constinit Pool pool{};

void empty_pool(void*) noexcept {
  pool.closed = true;
  for (auto& head : pool.free) {
    while (FreeObject* object = head) {
      head = object->next;
      ::operator delete(object);
    }
  }
}

/// Arranges that this thread's pool is emptied when the thread ends.
bool open_pool() noexcept {
  static const struct Key {
    pthread_key_t key = 0;
    bool made = pthread_key_create(&key, empty_pool) == 0;
  } key{};
  pool.open = key.made && pthread_setspecific(key.key, &pool) == 0;
  pool.closed = !pool.open;
  return pool.open;
}

void* from_heap(std::size_t bytes) {
  if (void* p = ::operator new(bytes, std::nothrow)) [[likely]]
    return p;
  detail::out_of_memory("a tensor's header or a node of the tape");
}

}  // namespace

void* pool_allocate(std::size_t bytes) {
  if (bytes > kLimit) return from_heap(bytes);
  const std::size_t i = (bytes + kStep - 1) / kStep;
  if (FreeObject* object = pool.free[i]) {
    pool.free[i] = object->next;
    --pool.count[i];
    return object;
  }
  return from_heap(i * kStep);
}

void pool_release(void* p, std::size_t bytes) noexcept {
  const std::size_t i = (bytes + kStep - 1) / kStep;
  if (bytes > kLimit || pool.closed || pool.count[i] >= kKeep || (!pool.open && !open_pool())) {
    ::operator delete(p);
    return;
  }
  auto* object = static_cast<FreeObject*>(p);
  object->next = pool.free[i];
  pool.free[i] = object;
  ++pool.count[i];
}

}  // namespace firn::memory
