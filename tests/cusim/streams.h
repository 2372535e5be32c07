// Streams, events and the capture of graphs.
//
// Eager (the default): work runs as it is queued. Lazy: it stays in its stream until the host waits
// for something, and then runs in a random order that streams and events allow.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cusim.h"

namespace cusim {

/// A piece of work for a device. `wait` and `record` are of events; they leave no node in a graph.
struct Work {
  cudaGraphNodeType type = cudaGraphNodeTypeKernel;
  std::function<void()> run;
  std::string text;  ///< for describe()
  cudaEvent_t wait = nullptr;
  std::uint64_t wait_for = 0;  ///< the record of it to wait for
};

/// Nodes that later work of a capturing stream depends on.
using Frontier = std::set<cudaGraphNode_t>;

struct Capture {
  cudaGraph_t graph = nullptr;
  cudaStreamCaptureMode mode{};
  cudaStream_t origin = nullptr;
  std::thread::id thread;
  std::uint64_t id = 0;
  bool invalid = false;
};

}  // namespace cusim

// The types that the runtime's handles point to.

struct CUgraphNode_st {
  cusim::Work work;
  std::vector<cudaGraphNode_t> after;  ///< what must have run before
};
struct CUgraph_st {
  std::vector<CUgraphNode_st*> nodes;  ///< in the order of recording: each after what it needs
  ~CUgraph_st();
};
struct CUgraphExec_st {
  std::vector<cusim::Work> work;
  std::vector<std::vector<std::size_t>> after;  ///< by index into work
};
struct CUevent_st {
  int device = 0;
  bool timing = true;
  std::uint64_t recorded = 0, completed = 0;  ///< numbers of its last record asked for and done
  double time = 0;                            ///< of the last done, in ms
  bool destroyed = false;                     ///< by the program, before its last record was done
  /// Of a library: it completes when other threads of the host have done their part.
  bool of_library = false;
  cusim::Capture* capture = nullptr;  ///< last recorded in this capture
  cusim::Frontier frontier;
};
struct CUstream_st {
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  std::deque<cusim::Work> queue;
  cusim::Capture* capture = nullptr;
  cusim::Frontier frontier;
};

namespace cusim {

/// The current device of this host thread.
int current_device();
/// The device's legacy stream stands for null.
cudaStream_t resolve(cudaStream_t stream);

/// Queues work, runs it at once, or records it. An error: the stream's capture is invalid.
cudaError_t push(cudaStream_t stream, Work work);
/// Runs queued work, in a random legal order, until `done()` or nothing is left.
void drain(const std::function<bool()>& done);
void drain_all();
void drain(cudaStream_t stream);
/// What a call does that waits: drains until `done()`. While nothing can run because a stream waits
/// for an event of a library, lets other threads of the host go on. The caller holds the runtime's
/// lock once.
void wait_until(const std::function<bool()>& done);
/// Whether nothing is queued on the device.
bool is_idle(int device);
/// Something has happened that a thread in wait_until() may wait for.
void notify_waiting() noexcept;
/// A stream of a library, and work for it that runs in the drain under way, or in the next.
cudaStream_t library_stream();
void append(cudaStream_t stream, std::function<void()> work);
/// A number below `n`, of the generator of the random orders.
std::uint64_t random_below(std::uint64_t n);
/// Unless calls that may disturb a capture are allowed to this thread now: the error, and the
/// captures that they disturb are invalid from now on.
cudaError_t refuse_while_capturing();
/// For calls that wait for `stream`: the same if it is being captured.
cudaError_t refuse_on_capturing(cudaStream_t stream);
void reset_streams();

}  // namespace cusim
