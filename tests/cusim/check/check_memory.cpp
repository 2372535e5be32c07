// Clang copies and fills objects in kernels by calling memcpy(), memmove() and memset(). The linker
// sends those calls here (--wrap), so that check mode sees these accesses too.
#include <cstddef>

#include "check.h"
#include "engine/engine.h"

using cusim::check::on_access;

#define CALLER __builtin_return_address(0)

extern "C" {

void* __real_memcpy(void*, const void*, std::size_t);
void* __real_memmove(void*, const void*, std::size_t);
void* __real_memset(void*, int, std::size_t);

/// Neither the compiler nor AddressSanitizer makes a call of this.
static void copy_bytes(void* to, const void* from, std::size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

static void note_copy(void* to, const void* from, std::size_t bytes, const void* pc) {
  on_access({static_cast<char*>(const_cast<void*>(from)), bytes, false, false, pc, false});
  on_access({static_cast<char*>(to), bytes, true, false, pc, false});
}

void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  if (!cusim::kernel_code) return __real_memcpy(to, from, bytes);
  note_copy(to, from, bytes, CALLER);
  copy_bytes(to, from, bytes);
  return to;
}
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  if (cusim::kernel_code) note_copy(to, from, bytes, CALLER);
  return __real_memmove(to, from, bytes);
}
void* __wrap_memset(void* to, int value, std::size_t bytes) {
  if (cusim::kernel_code) {
    on_access({static_cast<char*>(to), bytes, true, false, CALLER, false});
  }
  return __real_memset(to, value, bytes);
}

// Later versions of Clang call these.
void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
  note_copy(to, from, bytes, CALLER);
  return __real_memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
  note_copy(to, from, bytes, CALLER);
  return __real_memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
  on_access({static_cast<char*>(to), bytes, true, false, CALLER, false});
  return __real_memset(to, value, bytes);
}

}  // extern "C"
