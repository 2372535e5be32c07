// Training steps on new data each time, given to the device one kernel at a time or as graphs.
#pragma once

#include <limits>
#include <vector>

#include "firn/firn.h"
#include "firn/train/graph_step.h"
#include "support/values.h"

namespace firn::testing {

/// What steps are trained on: images or rows x, and a class for each, y i64 [n].
struct Feed {
  Tensor x, y;
  std::int64_t classes;
  bool overflow = false;  ///< an infinity in every twentieth batch
};

/// Calls `work`, or replays what it did, `steps` times, each time on other values in the feed.
/// Returns how often the host waited for the device in it.
template <class Work>
std::uint64_t take_steps(optim::Optimizer& opt, const Feed& feed, int steps, bool as_graph,
                         Work&& work) {
  graph::Step step(opt, work);
  Rng rng(5);
  std::uint64_t waits = 0;
  for (int i = 0; i < steps; ++i) {
    auto data = rng.uniforms(feed.x.numel(), -1, 2);
    if (feed.overflow && i % 20 == 7) data[3] = std::numeric_limits<double>::infinity();
    std::vector<double> labels;
    for (std::int64_t j = 0; j < feed.y.numel(); ++j)
      labels.push_back(static_cast<double>(rng.below(feed.classes)));
    copy_(feed.x, make(data, feed.x.shape(), feed.x.dtype()));
    copy_(feed.y, make(labels, feed.y.shape(), i64));
    const auto before = host_waits();
    if (as_graph) {
      step();
    } else {
      work();
    }
    waits += host_waits() - before;
  }
  return waits;
}

}  // namespace firn::testing
