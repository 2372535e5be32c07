// What nn::checkpoint_within() and optim::plan_within() try: policies for the blocks of a model.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "firn/device.h"
#include "firn/nn/checkpoint.h"

namespace firn::nn::detail {

/// From the policy that computes least to the one that keeps least.
inline constexpr std::array kFromFastest{
    BlockCheckpoints{0, Keep::inputs},   BlockCheckpoints{4, Keep::products},
    BlockCheckpoints{2, Keep::products}, BlockCheckpoints{1, Keep::products},
    BlockCheckpoints{4, Keep::inputs},   BlockCheckpoints{2, Keep::inputs},
    BlockCheckpoints{1, Keep::inputs}};

/// Throws Error if there are none.
std::vector<Module*> blocks_of(Module& m);
/// Returns how many are checkpointed.
std::int64_t set_blocks(const std::vector<Module*>& blocks, const BlockCheckpoints& policy);

/// Settings of a model's blocks that are put back, unless they are to stay.
class BlockSettings {
 public:
  /// Throws Error if `m` has no blocks.
  explicit BlockSettings(Module& m);
  ~BlockSettings();
  BlockSettings(const BlockSettings&) = delete;
  BlockSettings& operator=(const BlockSettings&) = delete;

  void set(const BlockCheckpoints& policy) { set_blocks(blocks_, policy); }
  /// From now on the settings stay.
  void keep() noexcept { kept_ = true; }
  /// That of the parameters.
  Device device() const noexcept { return device_; }

 private:
  std::vector<Module*> blocks_;
  std::vector<std::optional<CheckpointOptions>> before_;
  Device device_;
  bool kept_ = false;
};

}  // namespace firn::nn::detail
