#include "firn/dist/mesh.h"

#include <cstdint>

#include "base/check.h"
#include "dist/transport.h"

namespace firn::dist {
namespace {

constexpr const char* kOp = "Mesh";

/// Throws Error if ranks disagree: they would wait for each other in groups that do not fit.
void require_alike(const Group& all, const MeshSizes& s) {
  const Group hosts = all.host();
  Tensor mine, given;
  on_every_rank(*GroupAccess::transport(hosts), kOp, [&] {
    mine = empty({3}, DType::i64, Device::cpu());
    given = empty({3 * all.size()}, DType::i64, Device::cpu());
  });
  auto* const own = mine.mutable_view().as<std::int64_t>();
  own[0] = s.dp;
  own[1] = s.tp;
  own[2] = s.pp;
  hosts.all_gather(mine, given);
  const auto* of = given.view().as<std::int64_t>();
  for (int r = 1; r < all.size(); ++r, of += 3)
    FIRN_CHECK(of[0] == of[3] && of[1] == of[4] && of[2] == of[5], kOp,
               "give the same sizes on every rank",
               "rank {} gave dp = {}, tp = {}, pp = {}, and rank {} gave {}, {}, {}", r - 1, of[0],
               of[1], of[2], r, of[3], of[4], of[5]);
}

}  // namespace

Mesh::Mesh(const Group& all, const MeshSizes& sizes) : sizes_(sizes), all_(all) {
  require_alike(all, sizes);
  FIRN_CHECK(sizes.dp >= 1 && sizes.tp >= 1 && sizes.pp >= 1, kOp, "1 is the default",
             "dp = {}, tp = {} and pp = {} must be positive", sizes.dp, sizes.tp, sizes.pp);
  const double product = 1.0 * sizes.dp * sizes.tp * sizes.pp;  // cannot overflow
  FIRN_CHECK(product == all.size(), kOp, "the product of the sizes is the number of ranks",
             "dp = {} times tp = {} times pp = {} is {}, and the group has {} ranks", sizes.dp,
             sizes.tp, sizes.pp, product, all.size());
  const int part = all.rank() % sizes.tp, copy = all.rank() / sizes.tp % sizes.dp,
            stage = all.rank() / sizes.tp / sizes.dp;
  tp_ = all.split(stage * sizes.dp + copy, part);
  dp_ = all.split(stage * sizes.tp + part, copy);
  pp_ = all.split(copy * sizes.tp + part, stage);
  copy_ = all.split(copy, stage * sizes.tp + part);
}

}  // namespace firn::dist
