// The functions that the compiler calls from kernels in check mode: in place of libtsan's before
// each load, store and atomic operation (-fsanitize=thread).
#include <cstdint>

#include "check.h"
#include "engine/engine.h"

using cusim::check::Access;
using cusim::check::on_access;

// The place in the kernel, for the report.
#define CALLER __builtin_return_address(0)

namespace {

template <class T>
void atomic_access(const volatile T* p, bool write, const void* pc) {
  on_access({reinterpret_cast<char*>(const_cast<T*>(p)), sizeof(T), write, true, pc});
}

void plain_access(void* p, std::size_t bytes, bool write, const void* pc, bool aligned = true) {
  on_access({static_cast<char*>(p), bytes, write, false, pc, aligned});
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// An unaligned one is of a type that asks for less, or the compiler has merged several.
#define CUSIM_ACCESS(bytes)                                                                    \
  void __tsan_read##bytes(void* p) { plain_access(p, bytes, false, CALLER); }                  \
  void __tsan_write##bytes(void* p) { plain_access(p, bytes, true, CALLER); }                  \
  void __tsan_unaligned_read##bytes(void* p) { plain_access(p, bytes, false, CALLER, false); } \
  void __tsan_unaligned_write##bytes(void* p) { plain_access(p, bytes, true, CALLER, false); }
CUSIM_ACCESS(1)
CUSIM_ACCESS(2)
CUSIM_ACCESS(4)
CUSIM_ACCESS(8)
CUSIM_ACCESS(16)
#undef CUSIM_ACCESS

void __tsan_read_range(void* p, std::size_t bytes) { plain_access(p, bytes, false, CALLER, false); }
void __tsan_write_range(void* p, std::size_t bytes) { plain_access(p, bytes, true, CALLER, false); }

#define CUSIM_ATOMIC_UPDATE(bits, T, name)                      \
  T __tsan_atomic##bits##_##name(volatile T* p, T value, int) { \
    atomic_access(p, true, CALLER);                             \
    return __atomic_##name(p, value, __ATOMIC_SEQ_CST);         \
  }
#define CUSIM_ATOMIC(bits, T)                                                                      \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                         \
    atomic_access(p, false, CALLER);                                                               \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile T* p, T value, int) {                                  \
    atomic_access(p, true, CALLER);                                                                \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                \
  T __tsan_atomic##bits##_exchange(volatile T* p, T value, int) {                                  \
    atomic_access(p, true, CALLER);                                                                \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                        \
  }                                                                                                \
  CUSIM_ATOMIC_UPDATE(bits, T, fetch_add)                                                          \
  CUSIM_ATOMIC_UPDATE(bits, T, fetch_sub)                                                          \
  CUSIM_ATOMIC_UPDATE(bits, T, fetch_and)                                                          \
  CUSIM_ATOMIC_UPDATE(bits, T, fetch_or)                                                           \
  CUSIM_ATOMIC_UPDATE(bits, T, fetch_xor)                                                          \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T value, int,      \
                                                    int) {                                         \
    atomic_access(p, true, CALLER);                                                                \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST,                \
                                       __ATOMIC_SEQ_CST);                                          \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T value, int, int) { \
    atomic_access(p, true, CALLER);                                                                \
    return __atomic_compare_exchange_n(p, expected, value, true, __ATOMIC_SEQ_CST,                 \
                                       __ATOMIC_SEQ_CST);                                          \
  }                                                                                                \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T value, int, int) {     \
    atomic_access(p, true, CALLER);                                                                \
    __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);   \
    return expected;                                                                               \
  }
CUSIM_ATOMIC(8, std::uint8_t)
CUSIM_ATOMIC(16, std::uint16_t)
CUSIM_ATOMIC(32, std::uint32_t)
CUSIM_ATOMIC(64, std::uint64_t)
#undef CUSIM_ATOMIC
#undef CUSIM_ATOMIC_UPDATE
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
