// Work that is recorded as a CUDA graph, so that it is timed without the host's part.
#pragma once

#include <functional>
#include <string>

#include "bench.h"
#include "firn/train/graph_step.h"

namespace bench {

class Replayed {
 public:
  /// Runs `work` once, so that everything it needs exists, and records it; the recording runs too.
  explicit Replayed(const std::function<void()>& work) {
    work();
    graph_ = firn::graph::Graph::capture(kDevice, work);
    if (graph_.nodes() == 0)
      throw firn::Error("bench", "nothing was recorded: the work went to another stream");
  }
  void replay() { graph_.replay(); }
  /// Number of kernels, copies and fills.
  std::int64_t nodes() const { return graph_.nodes(); }
  std::string summary() const { return graph_.summary(); }

 private:
  firn::graph::Graph graph_;
};

}  // namespace bench
