// What the works of firn_bench_gpu share: how a figure is printed, and the clocks. The programs in
// peer/ print the same lines, and bench/gpu/run puts them side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "firn/firn.h"

namespace bench {

/// How long to measure. `smoke`: tiny sizes and one call each, to see that everything runs.
struct Settings {
  bool smoke = false;
  int windows = 7;        ///< each is one value of a figure
  double window_ms = 20;  ///< least length of a window
};
Settings& settings();

inline const firn::Device kDevice = firn::Device::cuda();

/// `full`, or `tiny` in a smoke run.
template <class T>
T sized(T full, T tiny) {
  return settings().smoke ? tiny : full;
}

/// One figure. Names are those of the peer: the table pairs by work and dtype.
struct Figure {
  std::string work;
  std::string mode;
  std::string dtype;
  std::vector<double> values;
  const char* unit = "us";
  std::int64_t nodes = 0;  ///< kernels and copies in one call; 0: not counted
  double bytes = 0;        ///< least that one call must move through memory; 0: not said
  double flop = 0;         ///< of one call; 0: not said
};

/// Prints `{"who": "firn", "work": .., "mode": .., "dtype": .., "median": .., "min": .., "max": ..,
/// "unit": .., "nodes": .., "bytes": .., "flop": ..}` on one line.
void report(const Figure& figure);

/// Microseconds a call takes on the device, one value a window: events around as many calls as fill
/// the window, after a warm-up. The host must be faster than the device, or it is the host's time.
std::vector<double> device_us(const std::function<void()>& call);

/// Microseconds of the part between two marks, added up over a window's calls: for what comes
/// between work that does not count. The call gets the functions that make the marks.
std::vector<double> marked_us(const std::function<void(const std::function<void()>& begin,
                                                       const std::function<void()>& end)>& call);

/// Nanoseconds that the host spends in a call which only queues work: short bursts, each on an idle
/// device, so that no full queue is waited for.
std::vector<double> host_ns(const std::function<void()>& call);

/// Random numbers in [-1, 1) on the device, the same in every run. Zeros would be faster than real
/// data.
firn::Tensor random(const firn::Shape& shape, firn::DType dtype);

/// Where work goes now: another stream while a graph is being recorded.
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
