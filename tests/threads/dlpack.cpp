// Tensors that change hands between libraries, in several threads: the last reference to memory and
// the call of a deleter may be in any of them.
#include <atomic>
#include <thread>
#include <vector>

#include "dlpack/foreign.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using io::delete_dlpack;
using io::from_dlpack;
using io::to_dlpack;

TEST_CASE("dlpack: tensors and deleters end in any thread", "[host][threads]") {
  for (int round = 0; round < 50; ++round) {
    Foreign foreign(arange(64, f32));
    const Tensor x = arange(64, f32);
    std::atomic<int> right{0};
    {
      Tensor t = from_dlpack(foreign.give());
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&, i, view = t.slice(0, i, i + 8), given = to_dlpack(x)]() mutable {
          right += view.sum().item() == 8 * i + 28;
          view = Tensor();
          right += from_dlpack(to_dlpack(x)).sum().item() == 2016;
          delete_dlpack(given);
        });
      }
      t = Tensor();
      for (std::thread& thread : threads) thread.join();
    }
    CHECK(right == 8);
    CHECK(foreign.deleted() == 1);
    CHECK(x.storage()->use_count() == 1);
    CHECK_FALSE(x.storage()->place_is_held());
  }
}

}  // namespace
}  // namespace firn::testing
