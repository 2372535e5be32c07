// Parts that the works of firn_bench_gpu share: the printing of a figure, and the clocks. The
// programs in peer/ print lines of the same form, and bench/gpu/run compares them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "firn/firn.h"

namespace bench {

/// Duration of the measurements. `smoke` takes tiny sizes and one call each, to test that
/// everything runs.
struct Settings {
  bool smoke = false;
  int windows = 7;        ///< number of values of a figure
  double window_ms = 20;  ///< least length of a window
};
Settings& settings();

inline const firn::Device kDevice = firn::Device::cuda();

/// Returns `full`, or `tiny` in a smoke run.
template <class T>
T sized(T full, T tiny) {
  return settings().smoke ? tiny : full;
}

/// One figure. Its names equal the peer's, since the table pairs figures by work and dtype.
struct Figure {
  std::string work;
  std::string mode;
  std::string dtype;
  std::vector<double> values;
  const char* unit = "us";
  std::int64_t nodes = 0;  ///< kernels and copies in one call; 0: not counted
  double bytes = 0;        ///< least that one call must move through memory; 0: not given
  double flop = 0;         ///< operations of one call; 0: not given
};

/// Prints `{"who": "firn", "work": .., "mode": .., "dtype": .., "median": .., "min": .., "max": ..,
/// "unit": .., "nodes": .., "bytes": .., "flop": ..}` on one line.
void report(const Figure& figure);

/// Returns the microseconds that a call takes on the device, one value a window. Events surround
/// the calls that fill the window, after a warm-up. The host must be faster than the device, or the
/// value is the host's time.
std::vector<double> device_us(const std::function<void()>& call);

/// Returns the microseconds between two marks, added up over a window's calls, for a part within
/// other work. The call gets the functions that make the marks.
std::vector<double> marked_us(const std::function<void(const std::function<void()>& begin,
                                                       const std::function<void()>& end)>& call);

/// Returns the nanoseconds that the host spends in a call that only queues work. It measures short
/// bursts, each on an idle device, so that no call waits for a full queue.
std::vector<double> host_ns(const std::function<void()>& call);

/// Returns random numbers in [-1, 1) on the device, equal in every run. Zeros would be faster than
/// real data.
firn::Tensor random(const firn::Shape& shape, firn::DType dtype);

/// Returns the current stream, which is another one while a graph is recorded.
inline firn::Stream stream() { return firn::current_stream(kDevice); }

// ---- The works. Each prints its figures. ----
void ceilings();
void mlp();
void cnn();
void memory_bound();
void optim();
void gemm();
void overhead();

}  // namespace bench
