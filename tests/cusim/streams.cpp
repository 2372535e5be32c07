#include "streams.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>

#include "engine/engine.h"
#include "runtime.h"

namespace cusim {
namespace {

// Never destroyed, like the simulator's other tables: objects of the program with static storage
// duration may use the runtime when they go.
std::vector<cudaStream_t>& streams = *new std::vector<cudaStream_t>;
std::vector<Capture*>& captures = *new std::vector<Capture*>;  // in progress
std::uint64_t last_record = 0, last_capture = 0;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

double milliseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

cudaStream_t new_stream(unsigned flags, int priority) {
  cudaStream_t stream = new CUstream_st;
  stream->device = current_device();
  stream->flags = flags;
  stream->priority = priority;
  streams.push_back(stream);
  return stream;
}

/// The legacy stream waits for all blocking streams of its device, and they for it.
std::vector<cudaStream_t>& legacy_streams() {
  static auto& all = *new std::vector<cudaStream_t>;
  return all;
}
bool is_legacy(cudaStream_t stream) {
  const auto& all = legacy_streams();
  return std::find(all.begin(), all.end(), stream) != all.end();
}
bool are_ordered(cudaStream_t a, cudaStream_t b) {
  if (a == b || a->device != b->device) return false;
  if (!is_legacy(a) && !is_legacy(b)) return false;
  return !((a->flags | b->flags) & cudaStreamNonBlocking);
}

bool can_run(cudaStream_t stream) {
  if (stream->queue.empty()) return false;
  const Work& next = stream->queue.front();
  return !next.wait || next.wait->completed >= next.wait_for;
}

void run_front(cudaStream_t stream) {
  const Work work = std::move(stream->queue.front());
  stream->queue.pop_front();
  if (work.run && sticky_error == cudaSuccess) work.run();
}

void add_node(cudaStream_t stream, Work work) {
  auto* node = new CUgraphNode_st{std::move(work), {}};
  node->after.assign(stream->frontier.begin(), stream->frontier.end());
  stream->capture->graph->nodes.push_back(node);
  stream->frontier = {node};
}

/// Of threads in wait_until().
std::condition_variable_any& news() {
  static auto& all = *new std::condition_variable_any;
  return all;
}

bool waits_for_library(cudaStream_t stream) {
  if (stream->queue.empty()) return false;
  const Work& next = stream->queue.front();
  return next.wait && next.wait->of_library && next.wait->completed < next.wait_for;
}

/// Waits for it that are still queued have what they want.
void dispose(cudaEvent_t event) {
  for (cudaStream_t s : streams) {
    for (Work& work : s->queue) {
      if (work.wait == event) work.wait = nullptr;
    }
  }
  delete event;
}

bool forbids(const Capture& capture) {
  const bool mine = capture.thread == std::this_thread::get_id();
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  if (mine && capture.mode != cudaStreamCaptureModeRelaxed) return true;
  return thread_mode == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

void end(Capture* capture) {
  for (cudaStream_t s : streams) {
    if (s->capture == capture) s->capture = nullptr, s->frontier.clear();
  }
  std::erase(captures, capture);
  delete capture;
}

/// Whether every node leads to the frontier: streams that forked have joined again.
bool all_joined(const Capture& capture, const Frontier& frontier) {
  Frontier reached = frontier;
  std::vector<cudaGraphNode_t> open(frontier.begin(), frontier.end());
  while (!open.empty()) {
    cudaGraphNode_t node = open.back();
    open.pop_back();
    for (cudaGraphNode_t before : node->after) {
      if (reached.insert(before).second) open.push_back(before);
    }
  }
  return reached.size() == capture.graph->nodes.size();
}

}  // namespace

// ---- Queues ----

cudaStream_t resolve(cudaStream_t stream) {
  if (stream && stream != cudaStreamLegacy && stream != cudaStreamPerThread) return stream;
  auto& legacy = legacy_streams();
  for (cudaStream_t s : legacy) {
    if (s->device == current_device()) return s;
  }
  return legacy.emplace_back(new_stream(cudaStreamDefault, 0));
}

cudaError_t push(cudaStream_t stream, Work work) {
  stream = resolve(stream);
  if (stream->capture) {
    if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    add_node(stream, std::move(work));
    return cudaSuccess;
  }
  if (is_legacy(stream)) {  // not while streams that would have to wait for it are recorded
    for (Capture* c : captures) {
      if (forbids(*c)) {
        c->invalid = true;
        return cudaErrorStreamCaptureImplicit;
      }
    }
  }
  for (cudaStream_t s : streams) {
    if (!s->capture && are_ordered(s, stream)) drain(s);
  }
  stream->queue.push_back(std::move(work));
  if (!config().lazy_streams) drain_all();
  notify_waiting();
  return cudaSuccess;
}

void drain(const std::function<bool()>& done) {
  while (!done()) {
    std::vector<cudaStream_t> ready;
    std::copy_if(streams.begin(), streams.end(), std::back_inserter(ready), can_run);
    if (ready.empty()) return;
    run_front(ready[ready.size() == 1 ? 0 : random_number() % ready.size()]);
  }
}
void drain(cudaStream_t stream) {
  drain([stream] { return stream->queue.empty(); });
}
void drain_all() {
  drain([] {
    return std::all_of(streams.begin(), streams.end(),
                       [](cudaStream_t s) { return s->queue.empty(); });
  });
}

void wait_until(const std::function<bool()>& done) {
  for (;;) {
    drain(done);
    if (done() || std::none_of(streams.begin(), streams.end(), waits_for_library)) return;
    news().wait_for(runtime_lock(), std::chrono::milliseconds(20));
  }
}
void notify_waiting() noexcept { news().notify_all(); }

cudaStream_t library_stream() { return new_stream(cudaStreamNonBlocking, 0); }
void append(cudaStream_t stream, std::function<void()> work) {
  stream->queue.push_back({cudaGraphNodeTypeKernel, std::move(work), "library"});
  notify_waiting();
}
std::uint64_t random_below(std::uint64_t n) { return random_number() % n; }

cudaError_t refuse_while_capturing() {
  bool refused = false;
  for (Capture* c : captures) {
    if (forbids(*c)) c->invalid = refused = true;
  }
  return refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t refuse_on_capturing(cudaStream_t stream) {
  if (!stream->capture) return cudaSuccess;
  stream->capture->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

bool is_idle(int device) {
  return std::all_of(streams.begin(), streams.end(),
                     [device](cudaStream_t s) { return s->device != device || s->queue.empty(); });
}

void reset_streams() {
  for (cudaStream_t s : streams) s->queue.clear();
  while (!captures.empty()) {
    delete captures.back()->graph;
    end(captures.back());
  }
  thread_mode = cudaStreamCaptureModeGlobal;
  seed_random(config().seed);
}

}  // namespace cusim

using namespace cusim;

extern "C" {

// ---- Streams ----

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return call("cudaStreamCreateWithPriority", cudaErrorMemoryAllocation, [&] {
    *stream = new_stream(flags, priority);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call<WhenInjected::run>("cudaStreamDestroy", cudaErrorUnknown, [&] {
    if (!stream || is_legacy(stream)) return cudaErrorInvalidResourceHandle;
    if (stream->capture) {
      stream->capture->invalid = true;
      return cudaErrorStreamCaptureUnsupported;
    }
    drain(stream);
    std::erase(streams, stream);
    delete stream;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call("cudaStreamSynchronize", cudaErrorUnknown, [&] {
    stream = resolve(stream);
    if (const cudaError_t refused = refuse_on_capturing(stream)) return refused;
    ++stats().host_waits;
    wait_until([stream] { return stream->queue.empty(); });
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call("cudaStreamQuery", cudaErrorUnknown, [&] {
    stream = resolve(stream);
    if (const cudaError_t refused = refuse_on_capturing(stream)) return refused;
    return stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return call("cudaStreamGetDevice", cudaErrorInvalidValue, [&] {
    *device = resolve(stream)->device;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return call("cudaStreamGetFlags", cudaErrorInvalidValue, [&] {
    *flags = resolve(stream)->flags;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call("cudaStreamGetPriority", cudaErrorInvalidValue, [&] {
    *priority = resolve(stream)->priority;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call("cudaDeviceGetStreamPriorityRange", cudaErrorInvalidValue, [&] {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call("cudaStreamWaitEvent", cudaErrorInvalidValue, [&] {
    if (!event) return cudaErrorInvalidResourceHandle;
    stream = resolve(stream);
    if (event->capture) {  // the stream joins the capture, or two of its branches meet
      if (stream->capture && stream->capture != event->capture) {
        event->capture->invalid = stream->capture->invalid = true;
        return cudaErrorStreamCaptureMerge;
      }
      if (event->capture->invalid) return cudaErrorStreamCaptureInvalidated;
      stream->capture = event->capture;
      stream->frontier.insert(event->frontier.begin(), event->frontier.end());
      return cudaSuccess;
    }
    if (stream->capture) {
      stream->capture->invalid = true;
      return cudaErrorStreamCaptureIsolation;
    }
    return push(stream, {cudaGraphNodeTypeWaitEvent, {}, {}, event, event->recorded});
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call("cudaLaunchHostFunc", cudaErrorInvalidValue, [&] {
    return push(stream, {cudaGraphNodeTypeHost, [=] { function(data); }, "host function"});
  });
}

// ---- Events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", cudaErrorMemoryAllocation, [&] {
    *event = new CUevent_st;
    (*event)->device = current_device();
    (*event)->timing = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call<WhenInjected::run>("cudaEventDestroy", cudaErrorUnknown, [&] {
    if (!event) return cudaErrorInvalidResourceHandle;
    drain([event] { return event->completed >= event->recorded; });
    if (event->completed >= event->recorded) {
      dispose(event);
    } else {
      event->destroyed = true;  // a library's work stands before its record, which disposes of it
    }
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return call("cudaEventRecord", cudaErrorInvalidValue, [&] {
    if (!event) return cudaErrorInvalidResourceHandle;
    stream = resolve(stream);
    if (stream->device != event->device) return cudaErrorInvalidResourceHandle;
    if (stream->capture) {
      if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
      event->capture = stream->capture;
      event->frontier = stream->frontier;
      return cudaSuccess;
    }
    event->capture = nullptr;
    const std::uint64_t number = event->recorded = ++last_record;
    const auto record = [=] {
      event->completed = std::max(event->completed, number);
      event->time = milliseconds();
      if (event->destroyed && event->completed >= event->recorded) dispose(event);
    };
    return push(stream, {cudaGraphNodeTypeEventRecord, record, {}});
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", cudaErrorUnknown, [&] {
    if (!event) return cudaErrorInvalidResourceHandle;
    if (event->capture) return cudaErrorCapturedEvent;
    ++stats().host_waits;
    wait_until([event] { return event->completed >= event->recorded; });
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", cudaErrorUnknown, [&] {
    if (!event) return cudaErrorInvalidResourceHandle;
    if (event->capture) return cudaErrorCapturedEvent;
    if (const cudaError_t refused = refuse_while_capturing()) return refused;
    return event->completed >= event->recorded ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return call("cudaEventElapsedTime", cudaErrorUnknown, [&] {
    if (!start->timing || !end->timing || !start->recorded || !end->recorded) {
      return cudaErrorInvalidResourceHandle;
    }
    if (start->completed < start->recorded || end->completed < end->recorded) {
      return cudaErrorNotReady;
    }
    *ms = static_cast<float>(end->time - start->time);
    return cudaSuccess;
  });
}

// ---- Capture ----

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", cudaErrorInvalidValue, [&] {
    stream = resolve(stream);
    if (is_legacy(stream)) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture) return cudaErrorIllegalState;
    Capture* const capture = new Capture{new CUgraph_st, mode, stream, std::this_thread::get_id(),
                                         ++last_capture, false};
    captures.push_back(capture);
    stream->capture = capture;
    stream->frontier.clear();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call("cudaStreamEndCapture", cudaErrorInvalidValue, [&] {
    *graph = nullptr;
    Capture* const capture = resolve(stream)->capture;
    if (!capture) return cudaErrorIllegalState;
    if (capture->origin != stream) {
      capture->invalid = true;
      return cudaErrorStreamCaptureUnmatched;
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    cudaError_t status = cudaSuccess;
    if (capture->invalid) {
      status = cudaErrorStreamCaptureInvalidated;
    } else if (!all_joined(*capture, stream->frontier)) {
      status = cudaErrorStreamCaptureUnjoined;
    }
    if (status == cudaSuccess) {
      *graph = capture->graph;
    } else {
      delete capture->graph;
    }
    end(capture);
    return status;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call("cudaStreamIsCapturing", cudaErrorInvalidValue, [&] {
    const Capture* const capture = resolve(stream)->capture;
    *status = !capture           ? cudaStreamCaptureStatusNone
              : capture->invalid ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** after, const cudaGraphEdgeData** edges,
                                     std::size_t* count) {
  if (const cudaError_t error = cudaStreamIsCapturing(stream, status)) return error;
  const std::lock_guard lock(runtime_lock());
  const Capture* const capture = resolve(stream)->capture;
  if (!capture) return cudaSuccess;
  thread_local std::vector<cudaGraphNode_t> frontier;
  frontier.assign(stream->frontier.begin(), stream->frontier.end());
  if (id) *id = capture->id;
  if (graph) *graph = capture->graph;
  if (after) *after = frontier.data();
  if (edges) *edges = nullptr;
  if (count) *count = frontier.size();
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call("cudaThreadExchangeStreamCaptureMode", cudaErrorInvalidValue, [&] {
    std::swap(*mode, thread_mode);
    return cudaSuccess;
  });
}

}  // extern "C"
