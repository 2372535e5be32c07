#include "optim/store/non_elementwise.h"

#include <algorithm>
#include <utility>

#include "autograd/op_mode.h"
#include "firn/autograd.h"
#include "firn/memory/labels.h"
#include "kernels/copy.h"

namespace firn::optim {
namespace {

/// Allocates [n] of `like`'s dtype on its device.
Tensor flat(std::int64_t n, const Tensor& like) { return empty({n}, like.dtype(), like.device()); }

/// Returns the elements of a dense tensor in memory order.
Tensor line(const Tensor& t) { return t.as_strided({t.numel()}, {1}); }

}  // namespace

void NonElementwiseUpdates::add(Member m, const NamedTensor& parameter) {
  m.kinds = m.rule->states(parameter, m.label);
  members_.push_back(std::move(m));
}

void NonElementwiseUpdates::allocate(const MemoryOf& memory_of) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    // One block holds all states and next states, each at a multiple of 256 bytes or more.
    const auto room = [](const NonElementwiseRule::State& s) {
      return math::ceil_div(s.shape.product(), std::int64_t{64}) * 64;
    };
    std::int64_t elements = 0, at = 0;
    bool any = false;
    for (const Member& m : members_)
      if (m.here && m.gradient.dtype() == dtype)
        for (const NonElementwiseRule::State& s : m.kinds) {
          elements += 2 * room(s);
          any = true;
        }
    if (!any) continue;
    const Tensor memory = memory_of(dtype, std::max(elements, std::int64_t{1}));
    for (Member& m : members_) {
      if (!m.here || m.gradient.dtype() != dtype) continue;
      for (const NonElementwiseRule::State& s : m.kinds) {
        const Tensor& g = m.gradient;
        const Strides strides =
            s.shape == g.shape() ? g.strides() : strides_in(s.shape, MemoryFormat::contiguous);
        for (std::vector<Tensor>* list : {&m.states, &m.next}) {
          list->push_back(memory.as_strided(s.shape, strides, at));
          at += room(s);
        }
        if (s.shape.product() == 0) continue;
        if (s.initial != 0)
          kernels::fill(m.states.back().mutable_view(), s.initial, current_stream(g.device()));
        commits_.push_back(
            {line(m.next.back()).view(), line(m.states.back()).mutable_view(), m.range.parameter});
      }
    }
  }
  const OwnerScope owner(Owner::optimizer);
  for (Member& m : members_) {
    const bool apart = m.rule->may_throw();
    spoils_ = spoils_ || !apart;  // is equal on all ranks
    if (!m.here) continue;
    const Tensor& g = m.gradient;
    m.next_weight = apart ? flat(g.numel(), g).as_strided(g.shape(), g.strides()) : g;
  }
}

void NonElementwiseUpdates::reserve(const kernels::StepMemory& memory,
                                    std::span<const kernels::OptimizerArena> arenas,
                                    Device device) {
  if (empty()) return;
  reserve_ = MemoryReserve(
      [&] {
        for (const Member& m : members_)
          if (m.here) run(m, memory, arenas, current_stream(device));
      },
      device, Owner::optimizer);
}

void NonElementwiseUpdates::run(const Member& m, const kernels::StepMemory& memory,
                                std::span<const kernels::OptimizerArena> arenas,
                                Stream stream) const {
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

void NonElementwiseUpdates::compute(const kernels::StepMemory& memory,
                                    std::span<const kernels::OptimizerArena> arenas,
                                    const GradientLedger& ledger, Stream stream) const {
  if (empty()) return;
  const runtime::OpScope op("optimizer");
  const OwnerScope owner(Owner::optimizer);
  const MemoryReserve::Use use(reserve_);
  for (const Member& m : members_)
    if (m.here && ledger.noted(m.index)) run(m, memory, arenas, stream);
}

void NonElementwiseUpdates::commit(const kernels::StepMemory& memory, const GradientLedger& ledger,
                                   Stream stream) const {
  for (const Member& m : members_)
    if (m.here && m.rule->may_throw() && ledger.noted(m.index))
      kernels::copy(m.next_weight.view(), m.gradient.mutable_view(), stream);
  if (!commits_.empty()) kernels::optim_commit(memory, commits_, stream);
}

std::vector<StateEntry> NonElementwiseUpdates::states_of(std::size_t index, int owner,
                                                         int ranks) const {
  std::vector<StateEntry> out;
  for (const Member& m : members_) {
    if (m.index != index) continue;
    for (std::size_t s = 0; s < m.kinds.size(); ++s) {
      StateEntry& state = out.emplace_back();
      state.name = m.kinds[s].name;
      state.begin = [] {};
      if (m.here) {
        state.tensor = m.states[s];
        state.begin = [t = m.states[s], value = m.kinds[s].initial] {
          if (t.numel() > 0) kernels::fill(t.mutable_view(), value, current_stream(t.device()));
        };
      }
      if (ranks == 0) continue;
      const std::int64_t n = m.kinds[s].shape.product();
      for (int r = 0; r <= ranks; ++r) state.parts.bounds.push_back(r > owner ? n : 0);
      const Tensor& g = m.gradient;
      if (m.here) {
        state.parts.part = m.states[s].contiguous().reshape({n});
      } else {
        state.tensor = zeros({}, g.dtype(), g.device()).expand(m.kinds[s].shape);
        state.parts.part = firn::empty({0}, g.dtype(), g.device());
        state.prepare = [](const Tensor&) { return [] {}; };  // it is another rank's
      }
    }
  }
  return out;
}

void NonElementwiseUpdates::copy_states(const NonElementwiseUpdates& other, Stream stream) const {
  for (const Member& m : members_)
    for (const Member& from : other.members_)
      if (m.index == from.index && m.here && from.here)
        for (std::size_t s = 0; s < m.states.size(); ++s)
          if (m.states[s].numel() > 0)
            kernels::copy(from.states[s].view(), m.states[s].mutable_view(), stream);
}

}  // namespace firn::optim
