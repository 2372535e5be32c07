// The arenas of a store after their state is sharded over ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "optim/store/param_store.h"

namespace firn::optim {

struct ParamStore::Sharding {
  std::vector<Arena> arenas;
  Ref<Storage> partials;
  std::vector<kernels::OptimizerArena> views;
  std::vector<Bucket> buckets;
  bool weights = false;                    ///< true if weights are sharded too
  std::vector<Ref<Storage>> norm_tables;   ///< tables for the norm over the whole arenas
  std::vector<Ref<Storage>> chunk_orders;  ///< chunk orders of the views, with sharded gradients
  NonElementwiseUpdates non_elementwise;
};

/// Returns the elements `part` of a flat tensor.
inline Tensor part_of(const Tensor& flat, const Share& part) {
  return flat.as_strided({part.size()}, {1}, part.first);
}

/// Returns the view with its address shifted back, so that kernels that count from `first` find its
/// first element there.
inline View counted_from(View v, std::int64_t first) {
  const auto address = reinterpret_cast<std::uintptr_t>(v.data) -
                       static_cast<std::uintptr_t>(first) * size_of(v.dtype);
  v.data = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  return v;
}

/// Clamps bounds between ranks to `range`, and counts them from its beginning.
inline std::vector<std::int64_t> from_begin(const std::vector<std::int64_t>& bounds,
                                            const Share& range) {
  std::vector<std::int64_t> out;
  for (const std::int64_t b : bounds)
    out.push_back(std::clamp(b, range.first, range.last) - range.first);
  return out;
}

/// Returns the length of the ranks' shards if they are equal and begin at 0, apart from a rest that
/// the last rank has; else 0.
inline std::int64_t equal_part(const std::vector<std::int64_t>& bounds) noexcept {
  const std::int64_t part = bounds[1];
  const auto ranks = static_cast<std::int64_t>(bounds.size()) - 1;
  if (ranks * part > bounds.back()) return 0;
  for (std::int64_t r = 0; r < ranks; ++r)
    if (bounds[static_cast<std::size_t>(r)] != r * part) return 0;
  return part;
}

}  // namespace firn::optim
