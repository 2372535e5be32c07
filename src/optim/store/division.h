// What becomes of a store's arenas when their state is divided over ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "optim/store/param_store.h"

namespace firn::optim {

struct ParamStore::Division {
  std::vector<Arena> arenas;
  Ref<Storage> partials;
  std::vector<kernels::OptimizerArena> views;
  std::vector<Bucket> buckets;
  bool weights = false;                    ///< are divided, too
  std::vector<Ref<Storage>> norm_tables;   ///< of the whole arenas, which the norm goes on to use
  std::vector<Ref<Storage>> chunk_orders;  ///< among these, if gradients are divided; or null
  WholeUpdates whole;
};

/// Elements of a flat tensor.
inline Tensor part_of(const Tensor& flat, const Share& part) {
  return flat.as_strided({part.size()}, {1}, part.first);
}

/// The view, whose first element is number `first` of what kernels count.
inline View counted_from(View v, std::int64_t first) {
  const auto address = reinterpret_cast<std::uintptr_t>(v.data) -
                       static_cast<std::uintptr_t>(first) * size_of(v.dtype);
  v.data = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  return v;
}

/// Bounds between ranks, counted from the begin of `range`, and within it.
inline std::vector<std::int64_t> from_begin(const std::vector<std::int64_t>& bounds,
                                            const Share& range) {
  std::vector<std::int64_t> out;
  for (const std::int64_t b : bounds)
    out.push_back(std::clamp(b, range.first, range.last) - range.first);
  return out;
}

/// The length of the ranks' parts if these are equal from 0 on, but for what the last rank has
/// more; else 0.
inline std::int64_t equal_part(const std::vector<std::int64_t>& bounds) noexcept {
  const std::int64_t part = bounds[1];
  const auto ranks = static_cast<std::int64_t>(bounds.size()) - 1;
  if (ranks * part > bounds.back()) return 0;
  for (std::int64_t r = 0; r < ranks; ++r)
    if (bounds[static_cast<std::size_t>(r)] != r * part) return 0;
  return part;
}

}  // namespace firn::optim
