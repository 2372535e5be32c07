#include "firn/train/graph_step.h"

#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "firn/runtime/graph.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/stream.h"
#include "optim/inside.h"

namespace firn::graph {

struct Step::Impl {
  struct Variant {
    bool has_run = false;
    bool recorded = false;
    Graph graph;
  };

  Device device;
  std::function<void()> work;
  std::function<std::int64_t()> variant;
  std::optional<std::weak_ptr<optim::OptimizerImpl*>> optimizer;  ///< the optimizer may move
  std::unordered_map<std::int64_t, Variant> variants;

  /// Returns null for a step without an optimizer. Throws Error if its optimizer no longer exists.
  optim::OptimizerImpl* optimizer_in_use() const {
    if (!optimizer) return nullptr;
    const auto alive = optimizer->lock();
    FIRN_CHECK(alive, "graph", "keep the optimizer as long as the graph::Step",
               "the optimizer of this graph::Step is gone");
    return *alive;
  }
};

Step::Step(Device device, std::function<void()> work, std::function<std::int64_t()> variant) try
    : impl_(std::make_unique<Impl>()) {
  require_device("graph", device);
  require_function("graph", work, "give the work of a step", "the function of graph::Step");
  impl_->device = device;
  impl_->work = std::move(work);
  impl_->variant = std::move(variant);
}
FIRN_OUT_OF_MEMORY("graph::Step")

Step::Step(optim::Optimizer& optimizer, std::function<void()> work,
           std::function<std::int64_t()> variant)
    : Step(optimizer.parameters().front().device(), std::move(work), std::move(variant)) {
  impl_->optimizer = optim::handle_of(optimizer);
}

Step::~Step() = default;
Step::Step(Step&&) noexcept = default;
Step& Step::operator=(Step&&) noexcept = default;

Step::Impl& Step::own() const {
  FIRN_CHECK(impl_, "graph", "use the Step that it was moved to",
             "this graph::Step was moved from: it has no work");
  return *impl_;
}

std::int64_t Step::variant() const {
  const std::int64_t given = own().variant ? own().variant() : 0;
  const auto* optimizer = own().optimizer_in_use();
  if (!optimizer) return given;
  const auto [first, last] = optim::place_of(*optimizer);
  return 4 * given + 2 * first + last;
}

void Step::operator()() {
  Impl& m = own();
  auto* const optimizer = m.optimizer_in_use();
  if (m.device.is_cpu()) return m.work();
  Impl::Variant& v = m.variants[variant()];
  if (v.recorded) return v.graph.replay();
  if (runtime::dry_run()) return m.work();  // a plan is neither a first run nor a capture
  if (!v.has_run) {
    m.work();
    v.has_run = true;
    return;
  }
  if (optimizer) optim::show_training_weights(*optimizer);  // a graph cannot record the change
  v.graph = Graph::capture(m.device, m.work);
  v.recorded = true;
}

void Step::reset() {
  FIRN_CHECK(!runtime::planning(), "graph", "call it beside the step that is planned",
             "reset() of a graph::Step within a plan, which changes nothing");
  own().variants.clear();
}

const Graph* Step::graph(std::int64_t variant) const {
  const auto it = own().variants.find(variant);
  return it != own().variants.end() && it->second.recorded ? &it->second.graph : nullptr;
}

}  // namespace firn::graph
