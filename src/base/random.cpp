// The default random stream.
#include "firn/random.h"

namespace firn {

Generator& default_generator() noexcept {
  static Generator generator;
  return generator;
}

void manual_seed(std::uint64_t seed) noexcept { default_generator().set({seed, 0}); }

}  // namespace firn
