// Ranks in three directions: copies of the model (dp), shards of its layers (tp), and stages of
// consecutive layers (pp).
//
//   const dist::Mesh mesh(group, {.dp = 2, .tp = 2});  // 4 ranks: two copies, each on two ranks
//   Net net(mesh.tp());                                // has layers of firn/dist/parallel
//   optim::AdamW opt(net.parameters(), {.lr = 1e-3}, {.clip_norm = 1});
//   dist::distribute(opt, mesh);
#pragma once

#include "firn/dist/group.h"

namespace firn::dist {

/// Number of ranks that a Mesh has along each axis; their product is the number of all ranks.
struct MeshSizes {
  int dp = 1;  ///< copies of the model, each with samples of its own (data parallel)
  int tp = 1;  ///< ranks that shard the layers among them (tensor parallel)
  int pp = 1;  ///< stages, each with some of the layers (pipeline parallel)
};

/// A group arranged in three directions. Rank (stage * dp + copy) * tp + shard of the group has
/// that shard of that stage of that copy. So the ranks of tp, which exchange most, are adjacent.
class Mesh {
 public:
  /// All ranks of `all` make the mesh, with the same sizes. Throws Error, on every rank, unless
  /// each size is at least 1, their product is all.size(), and all ranks gave the same. Throws what
  /// split() throws.
  explicit Mesh(const Group& all, const MeshSizes& sizes = {});

  /// The numbers of ranks that the mesh was made with.
  const MeshSizes& sizes() const noexcept { return sizes_; }
  /// The group of all ranks.
  const Group& all() const noexcept { return all_; }
  /// The ranks that have this rank's shard and stage, one for each copy, in the order of copies.
  const Group& dp() const noexcept { return dp_; }
  /// The ranks that have the shards of this rank's stage and copy.
  const Group& tp() const noexcept { return tp_; }
  /// The ranks that have this rank's shard and copy, one for each stage, in the order of stages.
  const Group& pp() const noexcept { return pp_; }
  /// The tp * pp ranks of this rank's copy: stage after stage, the shards of each in their order.
  const Group& copy() const noexcept { return copy_; }

 private:
  MeshSizes sizes_;
  Group all_, dp_, tp_, pp_, copy_;
};

}  // namespace firn::dist
