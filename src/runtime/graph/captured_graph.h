// A captured CUDA graph, which implements firn/runtime/graph.h in CUDA builds.
//
// The capture runs on a stream of its own. The graph is launched on its home, the stream that was
// current when the capture began. Memory allocated during the capture belongs to the graph
// (cuda/allocator.cpp); blocks that are cached for the home stream are used first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "firn/memory/block.h"
#include "firn/random.h"
#include "firn/runtime/stream.h"

namespace firn::memory {

struct GraphPool;

class CapturedGraph {
 public:
  /// Counts of a graph's nodes.
  struct Nodes {
    int kernels = 0;
    int copies = 0;
    int fills = 0;
    int others = 0;  ///< nodes without work: empty nodes, events
  };

  /// Captures the work that `work` queues on `device`, without running it. Passes on what `work`
  /// throws; the device stays usable. Throws Error if this thread is capturing already, or if CUDA
  /// refuses the work.
  static std::unique_ptr<CapturedGraph> capture(Device device, const std::function<void()>& work);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  /// Runs the work once, on the home stream, in order with this thread's current stream. Reserves
  /// the random numbers that it needs. Throws Error during a capture.
  void launch();
  /// Runs the host effects of every replay (on_replay), then launch().
  void replay();

  const Nodes& nodes() const noexcept { return nodes_; }
  /// The names of the kernels, copies and fills as given to note_kernel(), in order.
  const std::vector<const char*>& names() const noexcept { return names_; }

  // Functions for the allocator and capture.cpp.

  /// The graph that this thread is capturing on `device`, or null.
  static CapturedGraph* current(Device device) noexcept;
  static CapturedGraph* current() noexcept;
  /// True if any thread is capturing a graph, on any device.
  static bool any() noexcept;
  GraphPool* pool() const noexcept { return pool_; }
  void add_effect(std::function<void()> effect) { effects_.push_back(std::move(effect)); }
  void add_undo(std::function<void()> undo) {
    undos_.push_back({effects_.size(), std::move(undo)});
  }
  void add_name(const char* name) { names_.push_back(name); }
  RandomKey reserve(Generator& generator, std::uint64_t numbers);

 private:
  // A generator that the work draws from, and its draws. base[2 * i] holds its seed and offset.
  struct Draws {
    Generator* generator;
    std::uint64_t blocks;
  };
  static constexpr std::size_t kMaxGenerators = 32;

  explicit CapturedGraph(Device device);
  void make_bases();
  void write_bases();
  void instantiate(void* graph);
  void abandon(std::size_t effects_done) noexcept;

  Device device_;
  Stream home_;
  GraphPool* pool_ = nullptr;
  void* executable_ = nullptr;  // cudaGraphExec_t
  Nodes nodes_;
  std::vector<std::function<void()>> effects_;
  struct Undo {
    std::size_t effects;  // number of effects registered before it
    std::function<void()> undo;
  };
  std::vector<Undo> undos_;
  bool pending_ = true;  // true from the host effects until the device work is launched
  std::vector<const char*> names_;

  // The positions of the generators in device memory, {seed, offset} each. Before every launch they
  // are copied from a slot in a ring of pinned memory; a slot is free again when its event is over.
  std::vector<Draws> draws_;
  MemoryBlock bases_memory_;
  std::uint64_t* bases_ = nullptr;
  std::unique_ptr<PinnedMemory> ring_;
  std::vector<void*> ring_events_;
  std::size_t ring_next_ = 0;
};

}  // namespace firn::memory
