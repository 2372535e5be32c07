#include "kernels/cpu/device/reserve.h"

#include <sys/mman.h>

#include <cstdlib>

#include "firn/error.h"
#include "kernels/cpu/device/thread_state.h"

namespace firn::kernels::cpu {
Reserve::Reserve(std::size_t bytes, std::size_t code) : outer_(thread_state.reserved) {
  // volatile keeps the compiler from removing the pair.
  void* volatile block = std::malloc(bytes);
  void* const pages = code == 0 ? nullptr
                                : mmap(nullptr, code, PROT_READ | PROT_WRITE | PROT_EXEC,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages && pages != MAP_FAILED) munmap(pages, code);
  std::free(block);
  if (!block) throw OutOfMemory("no memory left for a call of oneDNN", bytes);
  if (pages == MAP_FAILED)
    throw OutOfMemory(
        "no address space left for the code that oneDNN generates (a limit of `ulimit -v`, or a "
        "system that allows no memory that is both writable and executable)",
        code);
  thread_state.reserved = bytes;
}
Reserve::~Reserve() { thread_state.reserved = outer_; }

bool Reserve::covers(std::size_t bytes) noexcept {
  if (bytes > thread_state.reserved) return false;
  thread_state.reserved -= bytes;
  return true;
}

}  // namespace firn::kernels::cpu
