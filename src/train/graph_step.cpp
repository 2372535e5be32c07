#include "firn/train/graph_step.h"

#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "firn/graph.h"
#include "firn/optim/optimizer.h"
#include "firn/stream.h"

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

Step::Impl& Step::own() const {
  FIRN_CHECK(impl_, "graph", "use the Step that it was moved to",
             "this graph::Step was moved from: it has no work");
  return *impl_;
}

std::int64_t Step::variant() const {
  const std::int64_t given = own().variant ? own().variant() : 0;
  if (!own().optimizer) return given;
  const std::int64_t at = own().optimizer->cycle_position();
  const bool first = at == 0, last = at + 1 == own().optimizer->cycle_length();
  return 4 * given + 2 * first + last;
}

void Step::operator()() {
  Impl& m = own();
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

void Step::reset() { own().variants.clear(); }

const Graph* Step::graph(std::int64_t variant) const {
  const auto it = own().variants.find(variant);
  return it != own().variants.end() && it->second.recorded ? &it->second.graph : nullptr;
}

}  // namespace firn::graph
