// Shares of n things for ranks, which optimizers and loaders use alike.
#pragma once

#include <algorithm>
#include <cstdint>

namespace firn {

/// The part [first, last) of a rank.
struct Share {
  std::int64_t first = 0, last = 0;
  std::int64_t size() const noexcept { return last - first; }
};

/// Returns a rank's share of `n` in chunks of `chunk`; only the last chunk may be smaller. The
/// first ranks have a chunk more if the shares cannot be equal.
inline Share share_of(std::int64_t n, int rank, int ranks, std::int64_t chunk = 1) noexcept {
  const std::int64_t runs = n / chunk + (n % chunk != 0 ? 1 : 0);
  const auto begin = [&](std::int64_t r) {
    return std::min(n, chunk * (r * (runs / ranks) + std::min(r, runs % ranks)));
  };
  return {begin(rank), begin(rank + 1)};
}

}  // namespace firn
