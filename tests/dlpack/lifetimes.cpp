// Memory lives until the last of both libraries has let go of it, and deleters are called once.
#include <vector>

#include "dlpack/foreign.h"
#include "runtime/memory/fail_allocation.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using io::delete_dlpack;
using io::from_dlpack;
using io::to_dlpack;

TEST_CASE("dlpack: what was given away lives until its deleter is called") {
  const std::size_t before = memory_stats().total.current;
  std::vector<DLManagedTensorVersioned*> given;
  {
    const Tensor x = arange(1000, f64);
    given = {to_dlpack(x), to_dlpack(x.slice(0, 10, 20))};
  }
  CHECK(memory_stats().total.current > before);
  delete_dlpack(given[0]);
  CHECK(memory_stats().total.current > before);
  {  // still there
    const Tensor part = from_dlpack(given[1]);
    CHECK(part.sum().item() == 145);
  }
  CHECK(memory_stats().total.current == before);
}

TEST_CASE("dlpack: the last view of what came in calls the deleter, once") {
  Foreign foreign(arange(12, f32));
  Tensor part;
  {
    const Tensor t = from_dlpack(foreign.give());
    const Tensor again = t;
    part = t.reshape({3, 4})[1].slice(0, 1, 3);
  }
  CHECK(foreign.deleted() == 0);
  CHECK(values_of(part) == std::vector<double>{5, 6});
  part = part + 1;  // other memory
  CHECK(foreign.deleted() == 1);
}

TEST_CASE("dlpack: a graph holds what its backward pass reads") {
  Foreign foreign(ones({3}) * 2);
  Tensor loss;
  const Tensor w = ones({3}).set_requires_grad();
  {
    const Tensor t = from_dlpack(foreign.give());
    loss = (w * t).sum();
  }
  CHECK(foreign.deleted() == 0);
  loss.backward();
  CHECK(foreign.deleted() == 1);
  CHECK(values_of(w.grad()) == std::vector<double>{2, 2, 2});
}

TEST_CASE("dlpack: a deleter may be null") {
  Foreign foreign(ones({2}));
  foreign.give()->deleter = nullptr;
  CHECK(from_dlpack(foreign.give()).sum().item() == 2);
  delete_dlpack(foreign.give());
  delete_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr));
  delete_dlpack(static_cast<DLManagedTensor*>(nullptr));
  CHECK(foreign.deleted() == 0);
}

TEST_CASE("dlpack: if there is no memory for a copy, the caller keeps what it has") {
  Foreign foreign(arange(1000, f32), kDLPackReadOnly);
  {
    const FailAllocation fail(0);
    CHECK_THROWS_AS(from_dlpack(foreign.give()), OutOfMemory);
  }
  CHECK(foreign.deleted() == 0);
  CHECK(from_dlpack(foreign.give()).sum().item() == 499500);
  CHECK(foreign.deleted() == 1);

  // The same for what firn gave away itself.
  const Tensor x = ones({8});
  DLManagedTensorVersioned* const m = to_dlpack(x);
  m->flags = kDLPackReadOnly;
  {
    const FailAllocation fail(0);
    CHECK_THROWS_AS(from_dlpack(m), OutOfMemory);
  }
  CHECK(x.storage()->place_is_held());
  CHECK(from_dlpack(m).sum().item() == 8);
  CHECK_FALSE(x.storage()->place_is_held());
}

}  // namespace
}  // namespace firn::testing
