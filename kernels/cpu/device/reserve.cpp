#include "kernels/cpu/device/reserve.h"

#include <sys/mman.h>

#include <cstdlib>

#include "firn/error.h"

namespace firn::kernels::cpu {
namespace {

thread_local constinit std::size_t left = 0;  // of the innermost reserve of this thread

}  // namespace

Reserve::Reserve(std::size_t bytes, std::size_t code) : outer_(left) {
  // volatile keeps the compiler from removing the pair.
  void* volatile block = std::malloc(bytes);
  void* const pages = code == 0 ? nullptr
                                : mmap(nullptr, code, PROT_READ | PROT_WRITE | PROT_EXEC,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages && pages != MAP_FAILED) munmap(pages, code);
  std::free(block);
  if (!block) throw OutOfMemory("no memory left for a call of oneDNN", bytes);
  if (pages == MAP_FAILED) throw OutOfMemory("no pages left for the code of oneDNN", code);
  left = bytes;
}
Reserve::~Reserve() { left = outer_; }

bool Reserve::covers(std::size_t bytes) noexcept {
  if (bytes > left) return false;
  left -= bytes;
  return true;
}

}  // namespace firn::kernels::cpu
