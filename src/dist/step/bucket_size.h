// The size of the buckets in which sharded gradients are exchanged.
#pragma once

#include <atomic>
#include <cstdint>

namespace firn::optim {

/// Bytes of a bucket, except for a bucket with a single parameter. At 100 Gbit/s 4 MiB take 0.3 ms,
/// about sixty times the latency of a message. They are small compared with a sharded model.
inline std::atomic<std::int64_t>& bucket_bytes() noexcept {
  static std::atomic<std::int64_t> bytes{4 << 20};
  return bytes;
}

}  // namespace firn::optim
