// How large the pieces are in which divided gradients are exchanged.
#pragma once

#include <atomic>
#include <cstdint>

namespace firn::optim {

/// Bytes of a bucket, but for one that has a single parameter. At 100 Gbit/s 4 MiB take 0.3 ms,
/// some sixty times the latency of a message, and are little beside a model that is divided.
inline std::atomic<std::int64_t>& bucket_bytes() noexcept {
  static std::atomic<std::int64_t> bytes{4 << 20};
  return bytes;
}

}  // namespace firn::optim
