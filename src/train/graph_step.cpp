#include "firn/train/graph_step.h"

#include <unordered_map>
#include <utility>

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
