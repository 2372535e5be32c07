// Settings of the simulator for a part of a test, in builds that have it (FIRN_HAS_CUSIM): the
// program links cusim.
#pragma once

#ifdef FIRN_HAS_CUSIM
#include "cusim.h"
#include "firn/runtime/stream.h"
#include "support/values.h"

namespace firn::testing {

/// While alive, work on streams waits until the host waits for it, and then runs in a random order
/// that streams and events allow: another one each time.
class LazyStreams {
 public:
  LazyStreams() : previous_(cusim::config().lazy_streams) { cusim::config().lazy_streams = true; }
  ~LazyStreams() {
    cudaDeviceSynchronize();
    cusim::config().lazy_streams = previous_;
  }
  LazyStreams(const LazyStreams&) = delete;
  LazyStreams& operator=(const LazyStreams&) = delete;

 private:
  bool previous_;
};

/// While alive, the k-th call of the runtime from now on fails, once (0 is the next one).
class FailCall {
 public:
  explicit FailCall(std::uint64_t k) : at_(cusim::stats().api_calls + k) {
    cusim::config().fail_api = static_cast<std::int64_t>(at_);
  }
  ~FailCall() { cusim::config().fail_api = -1; }
  FailCall(const FailCall&) = delete;
  FailCall& operator=(const FailCall&) = delete;

  /// Whether that call has been made.
  bool happened() const { return cusim::stats().api_calls > at_; }

 private:
  std::uint64_t at_;
};

/// Requires that run() gives the same bits with threads and blocks in their order, in the reverse
/// one, and in two random ones.
template <class Run>
void expect_same_in_every_order(Run&& run) {
  const cusim::Config before = cusim::config();
  const std::vector<double> want = run();
  for (const std::uint64_t seed : {0, 1, 2}) {
    cusim::config().threads = cusim::config().blocks =
        seed == 0 ? cusim::Order::reversed : cusim::Order::random;
    cusim::config().seed = seed;
    expect_same("order " + std::to_string(seed), run(), want);
  }
  cusim::config() = before;
}

/// While alive, devices have `bytes` bytes of memory.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) : previous_(cusim::config().device_bytes) {
    cusim::config().device_bytes = bytes;
  }
  ~DeviceMemory() { cusim::config().device_bytes = previous_; }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

 private:
  std::size_t previous_;
};

}  // namespace firn::testing
#endif
