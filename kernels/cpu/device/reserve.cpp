#include "kernels/cpu/device/reserve.h"

#include <cstdlib>

#include "firn/error.h"

namespace firn::kernels::cpu {
namespace {

thread_local constinit std::size_t left = 0;  // of the innermost reserve of this thread

}  // namespace

Reserve::Reserve(std::size_t bytes) : outer_(left) {
  // volatile keeps the compiler from removing the pair.
  void* volatile block = std::malloc(bytes);
  if (!block) throw OutOfMemory("no memory left for a call of oneDNN", bytes);
  std::free(block);
  left = bytes;
}
Reserve::~Reserve() { left = outer_; }

bool Reserve::covers(std::size_t bytes) noexcept {
  if (bytes > left) return false;
  left -= bytes;
  return true;
}

}  // namespace firn::kernels::cpu
