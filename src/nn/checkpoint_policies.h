// Policies for the blocks of a model that nn::checkpoint_within() and optim::plan_within() try.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "firn/device.h"
#include "firn/nn/checkpoint.h"

namespace firn::nn::detail {

/// Policies from the one that computes least to the one that keeps least.
inline constexpr std::array kFromFastest{
    BlockCheckpoints{0, Keep::inputs},   BlockCheckpoints{4, Keep::products},
    BlockCheckpoints{2, Keep::products}, BlockCheckpoints{1, Keep::products},
    BlockCheckpoints{4, Keep::inputs},   BlockCheckpoints{2, Keep::inputs},
    BlockCheckpoints{1, Keep::inputs}};

/// Returns the blocks of a model. Throws Error if there are none.
std::vector<Module*> blocks_of(Module& m);
/// Returns the number of checkpointed blocks.
std::int64_t set_blocks(const std::vector<Module*>& blocks, const BlockCheckpoints& policy);

/// Settings of a model's blocks, which the destructor puts back unless keep() was called.
class BlockSettings {
 public:
  /// Throws Error if `m` has no blocks.
  explicit BlockSettings(Module& m);
  ~BlockSettings();
  BlockSettings(const BlockSettings&) = delete;
  BlockSettings& operator=(const BlockSettings&) = delete;

  void set(const BlockCheckpoints& policy) { set_blocks(blocks_, policy); }
  /// Makes the settings stay.
  void keep() noexcept { kept_ = true; }
  /// Device of the model's parameters.
  Device device() const noexcept { return device_; }

 private:
  std::vector<Module*> blocks_;
  std::vector<std::optional<CheckpointOptions>> before_;
  Device device_;
  bool kept_ = false;
};

}  // namespace firn::nn::detail
