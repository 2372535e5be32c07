#include <algorithm>
#include <atomic>
#include <utility>

#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/cuda.h"
#include "runtime/graph/captured_graph.h"
#include "runtime/memory/allocator.h"
#include "runtime/memory/graph_pool.h"

namespace firn::memory {
namespace {

using namespace cuda;

// While alive, this thread allocates and releases outside the graph's pool. This is for memory of
// the graph object itself.
class Pause {
 public:
  Pause() noexcept : paused_(std::exchange(thread_context.capture, nullptr)) {}
  ~Pause() { thread_context.capture = paused_; }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  CapturedGraph* paused_;
};

// Captures in progress, of all threads.
std::atomic<int> captures{0};
struct InProgress {
  InProgress() noexcept { ++captures; }
  ~InProgress() { --captures; }
  InProgress(const InProgress&) = delete;
  InProgress& operator=(const InProgress&) = delete;
};

// The number of launches in the ring, and the number of launches that share an event.
constexpr std::size_t kSlots = 1024;
constexpr std::size_t kSlotsPerEvent = 128;

}  // namespace

CapturedGraph* CapturedGraph::current() noexcept { return thread_context.capture; }
CapturedGraph* CapturedGraph::current(Device device) noexcept {
  CapturedGraph* r = thread_context.capture;
  return r && r->device_ == device ? r : nullptr;
}
bool CapturedGraph::any() noexcept { return captures > 0; }

CapturedGraph::CapturedGraph(Device device)
    : device_(device), home_(current_stream(device)), pool_(make_pool(home_)) {}

CapturedGraph::~CapturedGraph() {
  abandon(effects_.size());
  const RelaxedCapture relaxed;  // another graph may be in capture now
  if (executable_) succeeded(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_)));
  if (ring_) {  // the device may still read its slots
    count_host_wait();
    succeeded(cudaStreamSynchronize(native(home_)));
    for (void* event : ring_events_) destroy_event(event);
  }
  if (bases_) {
    const Pause pause;
    bases_memory_.release();
  }
  retire_pool(pool_);
}

std::unique_ptr<CapturedGraph> CapturedGraph::capture(Device device,
                                                      const std::function<void()>& work) {
  require_device("graph", device);
  FIRN_CHECK(!runtime::dry_run(), "graph", "plan the work itself, or a graph::Step",
             "nothing can be captured in a plan, which runs no kernel");
  FIRN_CHECK(!thread_context.capture, "graph", "end that capture first",
             "this thread is capturing a graph already, on {}", thread_context.capture->device_);
  std::unique_ptr<CapturedGraph> captured(new CapturedGraph(device));
  const SideStream stream(device);
  const InProgress in_progress;
  set_device(device.index, "graph");
  check_cuda(cudaStreamBeginCapture(native(stream.get()), cudaStreamCaptureModeThreadLocal),
             "graph", "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  const auto end = [&] {
    thread_context.capture = nullptr;
    const cudaError_t status = cudaStreamEndCapture(native(stream.get()), &graph);
    if (status != cudaSuccess && is_capturing(stream.get().handle)) {  // the capture must not go on
      cudaGraph_t dropped = nullptr;
      if (succeeded(cudaStreamEndCapture(native(stream.get()), &dropped)))
        succeeded(cudaGraphDestroy(dropped));
    }
    return status;
  };
  try {
    thread_context.capture = captured.get();
    const StreamScope scope(stream);
    work();
  } catch (...) {
    if (succeeded(end())) succeeded(cudaGraphDestroy(graph));
    throw;
  }
  if (const cudaError_t status = end(); status == cudaErrorStreamCaptureUnjoined) {
    cudaGetLastError();
    throw Error("graph",
                "work was given to a side stream that the captured stream does not wait for",
                "end with an Event on the side stream that blocks current_stream()");
  } else {
    check_cuda(status, "graph", "cudaStreamEndCapture");
  }
  try {
    captured->instantiate(graph);
  } catch (...) {
    succeeded(cudaGraphDestroy(graph));
    throw;
  }
  succeeded(cudaGraphDestroy(graph));
  return captured;
}

void CapturedGraph::instantiate(void* captured) {
  const auto graph = static_cast<cudaGraph_t>(captured);
  std::size_t count = 0;
  check_cuda(cudaGraphGetNodes(graph, nullptr, &count), "graph", "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count)
    check_cuda(cudaGraphGetNodes(graph, nodes.data(), &count), "graph", "cudaGraphGetNodes");
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    check_cuda(cudaGraphNodeGetType(node, &type), "graph", "cudaGraphNodeGetType");
    ++(type == cudaGraphNodeTypeKernel   ? nodes_.kernels
       : type == cudaGraphNodeTypeMemcpy ? nodes_.copies
       : type == cudaGraphNodeTypeMemset ? nodes_.fills
                                         : nodes_.others);
  }
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiate(&executable, graph, 0), "graph", "cudaGraphInstantiate");
  executable_ = executable;
}

void CapturedGraph::launch() {
  for (const Draws& d : draws_) runtime::about_to_draw(*d.generator);
  set_device(device_.index, "graph");
  const Stream here = current_stream(device_);
  FIRN_CHECK(order(device_.index, home_.handle, here.handle), "graph", "",
             "the graph's stream cannot be made to wait for the current one");
  write_bases();
  check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), native(home_)), "graph",
             "cudaGraphLaunch");
  pending_ = false;
  for (const Draws& d : draws_) d.generator->reserve(4 * d.blocks);
  FIRN_CHECK(order(device_.index, here.handle, home_.handle), "graph", "",
             "the current stream cannot be made to wait for the graph's");
}

void CapturedGraph::replay() {
  FIRN_CHECK(!thread_context.capture, "graph", "replay it after the capture",
             "a graph cannot be replayed inside a capture");
  if (runtime::dry_run()) return;  // it has its memory already
  pending_ = true;
  std::size_t done = 0;
  try {
    for (; done < effects_.size(); ++done) effects_[done]();
    launch();
  } catch (...) {
    abandon(done);
    throw;
  }
}

void CapturedGraph::abandon(std::size_t effects_done) noexcept {
  if (!std::exchange(pending_, false)) return;
  for (auto u = undos_.rbegin(); u != undos_.rend(); ++u) {
    if (u->effects <= effects_done) u->undo();
  }
}

RandomKey CapturedGraph::reserve(Generator& generator, std::uint64_t numbers) {
  make_bases();
  auto it = std::find_if(draws_.begin(), draws_.end(),
                         [&](const Draws& d) { return d.generator == &generator; });
  if (it == draws_.end()) {
    FIRN_CHECK(draws_.size() < kMaxGenerators, "graph", "let the work share generators",
               "the captured work draws from more than {} generators", kMaxGenerators);
    it = draws_.insert(draws_.end(), Draws{&generator, 0});
  }
  const RandomKey key{0, it->blocks, bases_ + 2 * (it - draws_.begin())};
  it->blocks += (numbers + 3) / 4;
  return key;
}

void CapturedGraph::make_bases() {
  if (bases_) return;
  // This memory is not from the graph's pool, because captured kernels may write to that.
  const Pause pause;
  const std::size_t bytes = kMaxGenerators * 2 * sizeof(*bases_);
  ring_ = std::make_unique<PinnedMemory>(kSlots * bytes);
  ring_events_.resize(kSlots / kSlotsPerEvent);
  bases_memory_.allocate(bytes, home_, Owner::workspace);
  bases_ = static_cast<std::uint64_t*>(bases_memory_.data());
}

void CapturedGraph::write_bases() {
  if (draws_.empty()) return;
  const std::size_t slot = ring_next_ % kSlots;
  void*& event = ring_events_[slot / kSlotsPerEvent];
  if (slot % kSlotsPerEvent == 0 && ring_next_ >= kSlots) {
    // The event is usually long over. Otherwise the host is about a thousand launches ahead.
    const auto e = static_cast<cudaEvent_t>(event);
    if (const cudaError_t status = cudaEventQuery(e); status == cudaErrorNotReady) {
      cudaGetLastError();
      count_host_wait();
      check_cuda(cudaEventSynchronize(e), "graph", "cudaEventSynchronize");
    } else {
      check_cuda(status, "graph", "cudaEventQuery");
    }
  }
  auto* place = static_cast<std::uint64_t*>(ring_->data()) + slot * 2 * kMaxGenerators;
  for (std::size_t i = 0; i < draws_.size(); ++i) {
    const RandomKey key = draws_[i].generator->get();
    place[2 * i] = key.seed;
    place[2 * i + 1] = key.offset;
  }
  check_cuda(cudaMemcpyAsync(bases_, place, 2 * sizeof(*place) * draws_.size(),
                             cudaMemcpyHostToDevice, native(home_)),
             "graph", "cudaMemcpyAsync");
  if (slot % kSlotsPerEvent == kSlotsPerEvent - 1) record_event(event, home_);
  ++ring_next_;
}

}  // namespace firn::memory
