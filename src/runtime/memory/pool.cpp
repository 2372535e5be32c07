#include "runtime/memory/pool.h"

#include <new>

namespace firn::memory {
namespace {

constexpr std::size_t kStep = 64;
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kLimit = 0;  // every object from the heap, so that the sanitizer sees its end
#else
constexpr std::size_t kLimit = 1024;
#endif
constexpr int kKeep = 4096;  // per size; more than that goes back to the heap

struct FreeObject {
  FreeObject* next;
};

struct Pool {
  FreeObject* free[kLimit / kStep + 1] = {};
  int count[kLimit / kStep + 1] = {};
  bool closed = false;

  ~Pool() {
    closed = true;
    for (auto& head : free) {
      while (FreeObject* object = head) {
        head = object->next;
        ::operator delete(object);
      }
    }
  }
};

thread_local Pool pool;

}  // namespace

void* pool_allocate(std::size_t bytes) {
  if (bytes > kLimit) return ::operator new(bytes);
  const std::size_t i = (bytes + kStep - 1) / kStep;
  if (FreeObject* object = pool.free[i]) {
    pool.free[i] = object->next;
    --pool.count[i];
    return object;
  }
  return ::operator new(i* kStep);
}

void pool_release(void* p, std::size_t bytes) noexcept {
  const std::size_t i = (bytes + kStep - 1) / kStep;
  if (bytes > kLimit || pool.closed || pool.count[i] >= kKeep) {
    ::operator delete(p);
    return;
  }
  auto* object = static_cast<FreeObject*>(p);
  object->next = pool.free[i];
  pool.free[i] = object;
  ++pool.count[i];
}

}  // namespace firn::memory
