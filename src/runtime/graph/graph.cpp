#include "firn/runtime/graph.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "base/build.h"
#include "base/check.h"
#include "firn/runtime/spans.h"
#include "firn/runtime/stream.h"
#include "runtime/graph/captured_graph.h"

namespace firn::graph {

struct Graph::Impl {
  std::function<void()> work;  // on the CPU
  std::shared_ptr<memory::CapturedGraph> captured;
};

Graph::Graph() noexcept = default;
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

Graph Graph::capture(Device device, std::function<void()> work) {
  require_device("graph", device);
  require_function("graph", work, "give the work to capture", "the function of Graph::capture");
  Graph g;
  g.impl_ = std::make_shared<Impl>();
  if constexpr (kHasCuda) {
    if (device.is_cuda()) {
      g.impl_->captured = memory::CapturedGraph::capture(device, work);
      g.impl_->captured->launch();
      return g;
    }
  }
  work();
  g.impl_->work = std::move(work);
  return g;
}

void Graph::replay() {
  FIRN_CHECK(impl_, "graph", "capture the work, or use the graph that it was moved to",
             "this graph is empty: nothing was captured into it, or it was moved from");
  const runtime::Span span(runtime::SpanKind::phase, "replay");
  if constexpr (kHasCuda) {
    if (impl_->captured) return impl_->captured->replay();
  }
  impl_->work();
}

int Graph::nodes() const noexcept {
  if constexpr (kHasCuda) {
    if (impl_ && impl_->captured) {
      const auto& n = impl_->captured->nodes();
      return n.kernels + n.copies + n.fills;
    }
  }
  return 0;
}

std::string Graph::summary() const {
  if (!impl_) return "empty";
  if (!impl_->captured) return "run each time, on the CPU";
  std::vector<std::pair<const char*, int>> counts;  // by name
  memory::CapturedGraph::Nodes n;
  if constexpr (kHasCuda) {
    n = impl_->captured->nodes();
    for (const char* name : impl_->captured->names()) {
      auto it = counts.begin();
      while (it != counts.end() && std::strcmp(it->first, name) != 0) ++it;
      if (it == counts.end()) it = counts.insert(it, {name, 0});
      ++it->second;
    }
  }
  std::string text = fmt::format("{} nodes ({} kernels", nodes(), n.kernels);
  if (n.copies) text += fmt::format(", {} copies", n.copies);
  if (n.fills) text += fmt::format(", {} fills", n.fills);
  text += ")";
  const char* separator = ": ";
  for (const auto& [name, count] : counts) {
    text += separator;
    text += count == 1 ? name : fmt::format("{} {}", name, count);
    separator = ", ";
  }
  return text;
}

std::vector<std::string> Graph::names() const {
  if constexpr (kHasCuda) {
    if (impl_ && impl_->captured) {
      const auto& names = impl_->captured->names();
      return {names.begin(), names.end()};
    }
  }
  return {};
}

}  // namespace firn::graph
