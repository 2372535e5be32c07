// Tiles of the gradient of attention's bias, and the tiles of pairs that each one adds.
#pragma once

#include "kernels/math/macros.h"

namespace firn::math {

/// A tile of the gradient adds the tiles of pairs that read it, its repeats, in their order. Axes
/// are batch, heads, queries and keys; along the last two a tile has several positions.
///
/// With few tiles the repeats of each are cut into parts: a part is a task, and parts are added in
/// their order. All this depends on shapes alone, so the number of threads does not change bits.
struct AttentionBiasTiles {
  std::int64_t own[4] = {};      ///< tiles of the gradient along an axis
  std::int64_t repeats[4] = {};  ///< tiles of pairs along the axis for each of them; 1 or more
  std::int64_t pair_tiles = 0;   ///< tiles of pairs that a tile adds: 0 if there are no pairs
  std::int64_t parts = 1;        ///< parts into which the repeats of a tile are cut

  AttentionBiasTiles() = default;
  /// Takes pairs [batch, heads, queries, keys], a gradient with 1 for repeated axes, and tiles of
  /// tile_queries and tile_keys. It makes at least `tasks` tasks if there are enough repeats.
  AttentionBiasTiles(const std::int64_t (&pairs)[4], const std::int64_t (&gradient)[4],
                     std::int64_t tile_queries, std::int64_t tile_keys, std::int64_t tasks) {
    const std::int64_t tile[4] = {1, 1, tile_queries, tile_keys};
    pair_tiles = 1;
    for (int i = 0; i < 4; ++i) {
      const std::int64_t tiles = ceil_div(pairs[i], tile[i]);
      own[i] = gradient[i] == 1 ? 1 : tiles;
      repeats[i] = gradient[i] == 1 && tiles > 0 ? tiles : 1;
      pair_tiles = tiles == 0 ? 0 : pair_tiles * repeats[i];
    }
    if (count() > 0 && count() < tasks) parts = ceil_div(tasks, count());
    if (parts > pair_tiles) parts = pair_tiles > 0 ? pair_tiles : 1;
  }

  FIRN_HD std::int64_t count() const { return own[0] * own[1] * own[2] * own[3]; }
  /// Part `part` adds the repeats from this one on, up to the first of the next part.
  FIRN_HD std::int64_t first_repeat(std::int64_t part) const {
    const std::int64_t rest = pair_tiles % parts;
    return pair_tiles / parts * part + (part < rest ? part : rest);
  }

  struct Place {
    std::int64_t batch, head, queries, keys;  ///< numbers of the last two count tiles
  };
  /// Returns the place of a tile in the gradient, or with a repeat the place of that tile of pairs.
  FIRN_HD Place place(std::int64_t tile, std::int64_t repeat = 0) const {
    std::int64_t at[4];
    for (int i = 3; i >= 0; --i) {
      at[i] = tile % own[i] + repeat % repeats[i];
      tile /= own[i];
      repeat /= repeats[i];
    }
    return {at[0], at[1], at[2], at[3]};
  }
};

}  // namespace firn::math
