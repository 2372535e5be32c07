// What the host does in a dry run: it reads zeros, and its copies are left out.
#include <vector>

#include "firn/runtime/storage.h"
#include "support/catch.h"
#include "support/dry_run.h"
#include "support/values.h"

namespace firn::testing {
namespace {

TEST_CASE("in a dry run the host reads 0 for every element") {
  const Tensor x = make({1, 2, 3, 4, 5, 6}, {2, 3}, f32);
  const Tensor truth = make({1}, {}, boolean), whole = make({7}, {1}, i64);
  {
    const DryRun dry;
    CHECK(x.to_vector<float>() == std::vector<float>(6));
    CHECK(transpose(x, 0, 1).to_vector<double>() == std::vector<double>(6));
    CHECK(sum(x).item() == 0);
    CHECK(truth.item() == 0);
    CHECK(whole.item() == 0);
  }
  CHECK(values_of(x) == std::vector<double>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("in a dry run nothing is copied or cleared") {
  const Tensor x = make({1, 2, 3}, {3}, f32), y = make({4, 5, 6}, {3}, f32);
  {
    const DryRun dry;
    copy_bytes(x.storage()->data(), x.device(), y.storage()->data(), y.device(), y.bytes());
    zero_bytes(x.storage()->data(), x.device(), x.bytes());
    const Ref<Storage> pinned = Storage::allocate(12, Device::cpu());
    copy_bytes(x.storage()->data(), x.device(), pinned->data(), Device::cpu(), 12);
  }
  CHECK(values_of(x) == std::vector<double>{1, 2, 3});
}

TEST_CASE("a dry run does not check what only the elements say") {
  const Tensor table = make({1, 2, 3, 4}, {2, 2}, f32), bad = make({0, 9}, {2}, i64);
  {
    const DryRun dry;
    CHECK(embedding(table, bad).shape() == Shape{2, 2});
    CHECK(cross_entropy(table, bad).sum.numel() == 1);
  }
  synchronize(default_device());  // a device would report an index now
}

}  // namespace
}  // namespace firn::testing
