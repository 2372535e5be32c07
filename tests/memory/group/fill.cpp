// Fills the control group that it is started in: its heap first, then tensors until there is an
// error. Prints how many MiB of tensors that were. The argument is the heap, in MiB.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "firn/firn.h"

int main(int argc, char** argv) {
  using namespace firn;
  constexpr std::size_t kMiB = 1 << 20;
  std::vector<std::vector<char>> heap;
  for (long i = argc > 1 ? std::atol(argv[1]) : 0; i > 0; --i) heap.emplace_back(kMiB, 'x');
  std::vector<Tensor> blocks;
  try {
    for (;;) {
      blocks.push_back(ones({1 << 18}));
      // The heap grows meanwhile, as it does beside a training.
      if (blocks.size() % 8 == 0) heap.emplace_back(kMiB, 'x');
    }
  } catch (const OutOfMemory& e) {
    if (std::string(e.what()).find("the limit is reached") == std::string::npos) return 1;
    std::printf("%zu\n", blocks.size());
    return 0;
  }
}
