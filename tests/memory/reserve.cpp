// Memory that is set aside for repeated work.
#include "firn/memory/reserve.h"

#include <optional>

#include "firn/firn.h"
#include "firn/memory/plan.h"
#include "runtime/memory/fail_allocation.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::values_of;

namespace {

/// Temporaries that come and go, of different sizes; y is computed from them.
void work(const Tensor& x, const Tensor& y) {
  const NoGrad guard;
  Tensor sum;
  {
    const Tensor square = x * x, wide = cast(square, f64);
    sum = cast(wide + wide, f32);
  }
  copy_(y, matmul(sum, sum.transpose(0, 1)));
}

std::size_t in_use() { return memory_stats().total.current; }

}  // namespace

TEST_CASE("MemoryReserve serves repeated work without the allocator", "[memory]") {
  const Tensor x = randn({48, 20}), y = zeros({48, 48}), expected = zeros({48, 48});
  work(x, expected);
  const std::size_t before = in_use(), optimizer = memory_stats().of(Owner::optimizer).current;
  {
    const MemoryReserve reserve([&] { work(x, y); }, default_device(), Owner::optimizer);
    CHECK(values_of(y) == std::vector<double>(48 * 48, 0));  // the first run was dry
    CHECK(reserve.bytes() >= 48 * 20 * (4 + 8 + 8));
    CHECK(in_use() - before >= reserve.bytes());
    CHECK(memory_stats().of(Owner::optimizer).current - optimizer == in_use() - before);
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t allocations = memory_stats().allocations;
      const FailAllocation fail(0, true);
      const MemoryReserve::Use use(reserve);
      zero_(y);
      work(x, y);
      CHECK(memory_stats().allocations == allocations);
    }
    CHECK(values_of(y) == values_of(expected));
    // By shapes alone it comes from the reserve too: a plan finds nothing more.
    const MemoryPlan plan = plan_memory([&] {
      const MemoryReserve::Use use(reserve);
      work(x, y);
    });
    CHECK(plan.peak == in_use());
  }
  CHECK(in_use() == before);
}

TEST_CASE("MemoryReserve: what does not fit comes from the allocator", "[memory]") {
  const Tensor x = randn({48, 20}), y = zeros({48, 48});
  const MemoryReserve reserve([&] { work(x, y); }, default_device(), Owner::optimizer);
  const std::size_t before = in_use();
  std::vector<Tensor> kept;
  {
    const MemoryReserve::Use use(reserve);
    for (int i = 0; i < 40; ++i) kept.push_back(full({48, 20}, i));
    CHECK(in_use() > before);
  }
  for (int i = 0; i < 40; ++i) CHECK(values_of(kept[static_cast<std::size_t>(i)])[7] == i);
  // Outside of the scope nothing comes from the reserve.
  const std::uint64_t allocations = memory_stats().allocations;
  const Tensor other = zeros({4});
  CHECK(memory_stats().allocations == allocations + 1);
}

TEST_CASE("MemoryReserve: a tensor may outlive the reserve", "[memory]") {
  const std::size_t before = in_use();
  Tensor kept;
  {
    const auto make = [] { return full({300}, 5); };
    const MemoryReserve reserve([&] { make(); }, default_device(), Owner::workspace);
    const MemoryReserve::Use use(reserve);
    kept = make();
  }
  CHECK(in_use() > before);
  CHECK(values_of(kept) == std::vector<double>(300, 5));
  kept = Tensor();
  CHECK(in_use() == before);
}

TEST_CASE("MemoryReserve: work that allocates nothing reserves nothing, and errors pass",
          "[memory]") {
  const MemoryReserve none([] {}, default_device(), Owner::workspace);
  CHECK(none.bytes() == 0);
  const MemoryReserve::Use use(none);
  CHECK(values_of(full({2}, 3)) == std::vector<double>{3, 3});
  const std::size_t before = in_use();
  CHECK_THROWS_AS(MemoryReserve([] { throw 7; }, default_device(), Owner::workspace), int);
  const FailAllocation fail(0, true);
  CHECK_THROWS_AS(MemoryReserve([] { zeros({4}); }, default_device(), Owner::workspace),
                  OutOfMemory);
  CHECK(in_use() == before);
}
