#include "alloc_sweep/failing.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "kernels/cpu/device/reserve.h"

namespace firn::testing {
namespace {

std::atomic<std::int64_t> left{-1};    // allocations before the failing one; negative: off
std::atomic<bool> stays_empty{false};  // all after the failing one fail too
std::atomic<bool> counts_covered{false};
std::atomic<bool> one_thread{false};  // only the thread below counts
thread_local bool is_counted = false;
std::atomic<bool> has_fired{false};
std::atomic<bool> limited{false};
std::atomic<std::int64_t> room{0}, used{0};

/// Returns true if a FailingHeap counts an allocation of `bytes` bytes in this thread.
bool counts(std::size_t bytes) noexcept {
  if (left.load(std::memory_order_relaxed) < 0) return false;
  if (one_thread && !is_counted) return false;
  return counts_covered || !kernels::cpu::Reserve::covers(bytes);
}

bool refused(std::size_t bytes) noexcept {
  if (limited.load(std::memory_order_relaxed)) {
    if (static_cast<std::int64_t>(bytes) > room.load()) {
      has_fired = true;
      return true;
    }
  }
  if (!counts(bytes) || left.fetch_sub(1) != 0) return false;
  if (stays_empty) left = 0;
  has_fired = true;
  return true;
}

}  // namespace

FailingHeap::FailingHeap(std::int64_t k, const HeapFailure& options) noexcept {
  stays_empty = options.sticky;
  counts_covered = options.covered_too;
  one_thread = options.this_thread;
  is_counted = true;
  left = k;
}
FailingHeap::~FailingHeap() {
  left = -1;
  is_counted = false;
}
bool FailingHeap::fired() noexcept { return has_fired; }
void FailingHeap::forget() noexcept { has_fired = false; }

LimitedHeap::LimitedHeap(std::int64_t bytes) noexcept {
  used = 0;
  room = bytes;
  limited = true;
}
LimitedHeap::~LimitedHeap() { limited = false; }
std::int64_t LimitedHeap::in_use() noexcept { return used; }

}  // namespace firn::testing

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace {
void* checked_new(std::size_t bytes, std::size_t alignment) noexcept {
  if (firn::testing::refused(bytes)) return nullptr;
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return std::malloc(bytes > 0 ? bytes : 1);
  void* p = nullptr;
  return posix_memalign(&p, alignment, bytes > 0 ? bytes : 1) == 0 ? p : nullptr;
}
void* or_throw(void* p) {
  if (!p) throw std::bad_alloc();
  return p;
}
}  // namespace

void* operator new(std::size_t n) { return or_throw(checked_new(n, 0)); }
void* operator new[](std::size_t n) { return or_throw(checked_new(n, 0)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return checked_new(n, 0); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return checked_new(n, 0); }
void* operator new(std::size_t n, std::align_val_t a) {
  return or_throw(checked_new(n, static_cast<std::size_t>(a)));
}
void* operator new[](std::size_t n, std::align_val_t a) {
  return or_throw(checked_new(n, static_cast<std::size_t>(a)));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

#else

// glibc's own names for what stands below: the program's malloc replaces that of every library.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {
/// Counts a block that the heap has given out.
void* given(void* p) noexcept {
  using namespace firn::testing;
  if (p && limited.load(std::memory_order_relaxed)) {
    const auto bytes = static_cast<std::int64_t>(malloc_usable_size(p));
    room -= bytes;
    used += bytes;
  }
  return p;
}
void* no_memory() noexcept {
  errno = ENOMEM;
  return nullptr;
}
}  // namespace

extern "C" {
void* malloc(std::size_t n) {
  return firn::testing::refused(n) ? no_memory() : given(__libc_malloc(n));
}
void* calloc(std::size_t n, std::size_t size) {
  return firn::testing::refused(n * size) ? no_memory() : given(__libc_calloc(n, size));
}
void* memalign(std::size_t alignment, std::size_t n) {
  return firn::testing::refused(n) ? no_memory() : given(__libc_memalign(alignment, n));
}
void* aligned_alloc(std::size_t alignment, std::size_t n) { return memalign(alignment, n); }
int posix_memalign(void** out, std::size_t alignment, std::size_t n) {
  void* p = memalign(alignment, n);
  if (!p) return ENOMEM;
  *out = p;
  return 0;
}
void free(void* p) {
  using namespace firn::testing;
  if (p && limited.load(std::memory_order_relaxed)) {
    const auto bytes = static_cast<std::int64_t>(malloc_usable_size(p));
    room += bytes;
    used -= bytes;
  }
  __libc_free(p);
}
void* realloc(void* p, std::size_t n) {
  if (firn::testing::refused(n)) return no_memory();
  using namespace firn::testing;
  const bool counts = limited.load(std::memory_order_relaxed);
  const auto before = counts && p ? static_cast<std::int64_t>(malloc_usable_size(p)) : 0;
  void* q = __libc_realloc(p, n);
  if (counts && (q || n == 0)) {
    room += before;
    used -= before;
  }
  return given(q);
}
}

#endif
