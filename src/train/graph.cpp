#include "firn/graph.h"

#include <fmt/format.h>

#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/build.h"
#include "firn/optim/optimizer.h"
#include "runtime/graph/recording.h"

namespace firn::graph {

struct Graph::Impl {
  std::function<void()> work;  // on the CPU
  std::shared_ptr<memory::Recording> recording;
};

Graph::Graph() noexcept = default;
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

Graph Graph::capture(Device device, std::function<void()> work) {
  require_device("graph", device);
  Graph g;
  g.impl_ = std::make_unique<Impl>();
  if constexpr (kHasCuda) {
    if (device.is_cuda()) {
      g.impl_->recording = memory::Recording::record(device, work);
      g.impl_->recording->launch();
      return g;
    }
  }
  work();
  g.impl_->work = std::move(work);
  return g;
}

void Graph::replay() {
  if (!impl_) return;
  if constexpr (kHasCuda) {
    if (impl_->recording) return impl_->recording->replay();
  }
  impl_->work();
}

int Graph::nodes() const noexcept {
  if constexpr (kHasCuda) {
    if (impl_ && impl_->recording) {
      const auto& n = impl_->recording->nodes();
      return n.kernels + n.copies + n.fills;
    }
  }
  return 0;
}

std::string Graph::summary() const {
  if (!impl_) return "empty";
  if (!impl_->recording) return "run each time, on the CPU";
  std::vector<std::pair<const char*, int>> counts;  // by name
  memory::Recording::Nodes n;
  if constexpr (kHasCuda) {
    n = impl_->recording->nodes();
    for (const char* name : impl_->recording->names()) {
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
    if (impl_ && impl_->recording) {
      const auto& names = impl_->recording->names();
      return {names.begin(), names.end()};
    }
  }
  return {};
}

struct Step::Impl {
  struct Variant {
    bool has_run = false;
    bool recorded = false;
    Graph graph;
  };

  Device device;
  std::function<void()> work;
  std::function<std::int64_t()> variant;
  const optim::Optimizer* optimizer = nullptr;
  std::unordered_map<std::int64_t, Variant> variants;
};

Step::Step(Device device, std::function<void()> work, std::function<std::int64_t()> variant)
    : impl_(std::make_unique<Impl>()) {
  require_device("graph", device);
  impl_->device = device;
  impl_->work = std::move(work);
  impl_->variant = std::move(variant);
}

Step::Step(optim::Optimizer& optimizer, std::function<void()> work,
           std::function<std::int64_t()> variant)
    : Step(optimizer.parameters().front().device(), std::move(work), std::move(variant)) {
  impl_->optimizer = &optimizer;
}

Step::~Step() = default;
Step::Step(Step&&) noexcept = default;
Step& Step::operator=(Step&&) noexcept = default;

std::int64_t Step::variant() const {
  const std::int64_t given = impl_->variant ? impl_->variant() : 0;
  if (!impl_->optimizer) return given;
  const std::int64_t at = impl_->optimizer->cycle_position();
  const bool first = at == 0, last = at + 1 == impl_->optimizer->cycle_length();
  return 4 * given + 2 * first + last;
}

void Step::operator()() {
  Impl& m = *impl_;
  if (m.device.is_cpu()) return m.work();
  Impl::Variant& v = m.variants[variant()];
  if (v.recorded) return v.graph.replay();
  if (!v.has_run) {
    m.work();
    v.has_run = true;
    return;
  }
  v.graph = Graph::capture(m.device, m.work);
  v.recorded = true;
}

void Step::reset() noexcept { impl_->variants.clear(); }

const Graph* Step::graph(std::int64_t variant) const noexcept {
  const auto it = impl_->variants.find(variant);
  return it != impl_->variants.end() && it->second.recorded ? &it->second.graph : nullptr;
}

}  // namespace firn::graph
