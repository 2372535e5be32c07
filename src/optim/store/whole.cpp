#include "optim/store/whole.h"

#include <utility>

#include "autograd/op_mode.h"
#include "firn/autograd.h"
#include "firn/memory/labels.h"
#include "kernels/copy.h"

namespace firn::optim {
namespace {

/// [n] of `like`'s dtype on its device.
Tensor flat(std::int64_t n, const Tensor& like) { return empty({n}, like.dtype(), like.device()); }

}  // namespace

void WholeUpdates::add(Member m, const NamedTensor& parameter) {
  const OwnerScope owner(Owner::optimizer);
  const Tensor& g = m.gradient;
  for (const WholeRule::State& s : m.rule->states(parameter, m.label)) {
    const bool like_weight = s.shape == g.shape();
    const auto make = [&] {
      const Tensor t = zeros({s.shape.product()}, g.dtype(), g.device());
      return t.as_strided(
          s.shape, like_weight ? g.strides() : strides_in(s.shape, MemoryFormat::contiguous));
    };
    m.states.push_back(make());
    if (s.initial != 0) {
      kernels::fill(m.states.back().mutable_view(), s.initial, current_stream(g.device()));
    }
    m.next.push_back(make());
    m.state_names.push_back(s.name);
  }
  if (m.rule->may_throw()) {
    m.next_weight = flat(g.numel(), g).as_strided(g.shape(), g.strides());
  } else {
    m.next_weight = g;
    spoils_ = true;
  }
  const auto line = [](const Tensor& t) { return t.as_strided({t.numel()}, {1}); };
  for (std::size_t i = 0; i < m.states.size(); ++i)
    if (m.states[i].numel() > 0)
      commits_.push_back(
          {line(m.next[i]).view(), line(m.states[i]).mutable_view(), m.range.parameter});
  members_.push_back(std::move(m));
}

void WholeUpdates::reserve(const kernels::StepMemory& memory,
                           std::span<const kernels::OptimizerArena> arenas, Device device) {
  if (empty()) return;
  reserve_ = MemoryReserve(
      [&] {
        for (const Member& m : members_) run(m, memory, arenas, current_stream(device));
      },
      device, Owner::optimizer);
}

void WholeUpdates::run(const Member& m, const kernels::StepMemory& memory,
                       std::span<const kernels::OptimizerArena> arenas, Stream stream) const {
  const std::int64_t n = m.range.count;
  if (n == 0) return;
  const NoGrad unrecorded;
  const autograd::OpMode::Plain plain;
  const Tensor& g = m.gradient;
  const Tensor gradient = flat(n, g), weight = flat(n, g), scalars = flat(2, g);
  kernels::optim_inputs(memory, arenas[m.arena], m.range, gradient.mutable_view(),
                        weight.mutable_view(), scalars.mutable_view(), stream);
  m.rule->compute({.index = m.index,
                   .name = m.name,
                   .label = m.label,
                   .weight = weight.as_strided(g.shape(), g.strides()),
                   .gradient = gradient.as_strided(g.shape(), g.strides()),
                   .lr = scalars.as_strided({}, {}, 0),
                   .t = scalars.as_strided({}, {}, 1),
                   .states = m.states,
                   .next_weight = m.next_weight,
                   .next_states = m.next});
}

void WholeUpdates::compute(const kernels::StepMemory& memory,
                           std::span<const kernels::OptimizerArena> arenas,
                           const GradientLedger& ledger, Stream stream) const {
  if (empty()) return;
  const runtime::OpScope op("optimizer");
  const OwnerScope owner(Owner::optimizer);
  const MemoryReserve::Use use(reserve_);
  for (const Member& m : members_)
    if (ledger.noted(m.index)) run(m, memory, arenas, stream);
}

void WholeUpdates::commit(const kernels::StepMemory& memory, const GradientLedger& ledger,
                          Stream stream) const {
  for (const Member& m : members_)
    if (m.rule->may_throw() && ledger.noted(m.index))
      kernels::copy(m.next_weight.view(), m.gradient.mutable_view(), stream);
  if (!commits_.empty()) kernels::optim_commit(memory, commits_, stream);
}

std::vector<NamedTensor> WholeUpdates::states_of(std::size_t index) const {
  std::vector<NamedTensor> out;
  for (const Member& m : members_)
    if (m.index == index)
      for (std::size_t s = 0; s < m.states.size(); ++s)
        out.push_back({m.state_names[s], m.states[s]});
  return out;
}

}  // namespace firn::optim
