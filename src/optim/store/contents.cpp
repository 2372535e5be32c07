// What a ParamStore shows: its state, and the names of its parameters.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "firn/kernel_support.h"
#include "kernels/copy.h"
#include "optim/store/label.h"
#include "optim/store/param_store.h"

namespace firn::optim {

math::StepState ParamStore::read_state() const {
  math::StepState s;
  copy_bytes(&s, Device::cpu(), step_state_.impl()->data(), device_, sizeof(s));
  return s;
}

ParamStore::HostState ParamStore::host_state() const {
  HostState out;
  out.update_counts.resize(parameters_.size());
  out.touched.resize(parameters_.size());
  const auto read = [&](void* to, const Tensor& from) {
    copy_bytes(to, Device::cpu(), from.impl()->data(), device_, from.bytes());
  };
  read(out.update_counts.data(), counts_);
  read(out.touched.data(), ledger_.flags());
  read(&out.schedule, schedule_);
  read(&out.scaler, scaler_);
  read(&out.step, step_state_);
  return out;
}

std::uint32_t ParamStore::version_of_state() const noexcept {
  std::uint32_t version = 0;
  for (const Tensor* t : {&step_state_, &ledger_.flags(), &counts_, &schedule_, &scaler_})
    version += t->storage()->version();
  return version;
}

math::StepOutcome ParamStore::last_seen() const {
  if (!watch_) return read_state().last;
  return *static_cast<const math::StepOutcome*>(watch_->data());
}

std::string ParamStore::rules_in_words() const {
  if (other_name_.empty()) return "";
  std::size_t count = 0;
  for (const Arena& a : arenas_)
    if (a.of_first_rule) count += a.parameters.size();
  const std::size_t all = parameters_.size();
  return fmt::format("{} for {} of {} parameters, {} for {}", op_, count, all, other_name_,
                     all - count);
}

std::vector<Tensor> ParamStore::parameters() const {
  std::vector<Tensor> out;
  for (const Parameter& p : parameters_) out.push_back(p.tensor);
  return out;
}

std::string ParamStore::label(std::size_t i) const {
  return label_of(i, parameters_[i].name, parameters_[i].tensor);
}

std::string ParamStore::names() const {
  constexpr std::size_t kMost = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(parameters_.size(), kMost); ++i)
    out += (i > 0 ? "; " : "") + label(i);
  if (parameters_.size() > kMost) out += fmt::format("; and {} more", parameters_.size() - kMost);
  return out;
}

std::vector<Tensor> ParamStore::averages() const {
  std::vector<Tensor> out;
  for (const Parameter& p : parameters_)
    if (const Tensor& ema = arenas_[p.arena].ema; ema.defined()) out.push_back(slice(ema, p));
  return out;
}

Tensor ParamStore::gradient(std::size_t i) const {
  const Parameter& p = parameters_[i];
  return ledger_.received(i) ? slice(arenas_[p.arena].grad, p) : Tensor();
}

std::vector<Tensor> ParamStore::gradients() const {
  std::vector<Tensor> out;
  for (const Arena& a : arenas_) out.push_back(a.grad);
  return out;
}

void ParamStore::zero_missing_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& gradient = parameters_[i].gradient;
    if (ledger_.take_stale(i)) zero_bytes(gradient.impl()->data(), device_, gradient.bytes());
  }
}

void ParamStore::collect_into(std::span<const Tensor> arenas) {
  for (Parameter& p : parameters_) p.leaf->arena = slice(arenas[p.arena], p);
}

void ParamStore::collect_here() noexcept {
  for (Parameter& p : parameters_) p.leaf->arena = p.gradient;
}

void ParamStore::zero_missing_in(std::span<const Tensor> arenas) const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (ledger_.received(i)) continue;
    const Tensor gradient = slice(arenas[parameters_[i].arena], parameters_[i]);
    zero_bytes(gradient.impl()->data(), device_, gradient.bytes());
  }
}

std::vector<Tensor> ParamStore::reserve_gradients() const {
  const OwnerScope owner(Owner::gradients);
  std::vector<Tensor> out;
  for (const Arena& a : arenas_) out.push_back(empty(a.grad.shape(), a.grad.dtype(), device_));
  return out;
}

std::vector<Tensor> ParamStore::copy_gradients(const std::vector<Tensor>* memory) const {
  const OwnerScope owner(Owner::gradients);
  std::vector<Tensor> out;
  for (const Arena& a : arenas_) {
    Tensor& copy = out.emplace_back();
    if (std::none_of(a.parameters.begin(), a.parameters.end(),
                     [this](std::size_t i) { return ledger_.received(i); }))
      continue;
    copy = memory ? (*memory)[out.size() - 1] : empty(a.grad.shape(), a.grad.dtype(), device_);
    kernels::copy(a.grad.view(), copy.mutable_view(), stream());
  }
  return out;
}

void ParamStore::put_back_gradients(const std::vector<Tensor>& copies) const {
  for (std::size_t a = 0; a < copies.size(); ++a)
    if (copies[a].defined())
      kernels::copy(copies[a].view(), arenas_[a].grad.mutable_view(), stream());
}

std::vector<NamedTensor> ParamStore::state() {
  std::vector<NamedTensor> out;
  if (!runtime::capturing(device_)) zero_missing_gradients();  // replays will find other gradients
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    const Arena& a = arenas_[p.arena];
    const std::string prefix = fmt::format("parameters.{}.", i);
    out.push_back({prefix + "weight", p.tensor.detach()});
    out.push_back({prefix + "gradient", slice(a.grad, p)});
    if (a.master.defined()) out.push_back({prefix + "master", slice(a.master, p)});
    if (a.ema.defined()) out.push_back({prefix + "ema", slice(a.ema, p)});
    for (NamedTensor& s : whole_.states_of(i)) out.push_back({prefix + s.name, s.tensor});
    for (std::size_t s = 0; s < a.states.size(); ++s) {
      const char* name = std::visit(
          [&](const auto& rule) { return rule.state_name(static_cast<int>(s)); }, a.rule);
      out.push_back({prefix + name, slice(a.states[s], p)});
      if (a.scales.empty()) continue;
      const std::int64_t blocks = math::ceil_div(p.tensor.numel(), math::kStateBlock);
      out.push_back({prefix + name + "_scale",
                     a.scales[s].as_strided({blocks}, {1}, p.begin / math::kStateBlock)});
    }
  }
  out.push_back({"update_counts", counts_});
  out.push_back({"touched", ledger_.flags()});
  out.push_back({"schedule", schedule_});
  out.push_back({"loss_scale", scaler_});
  out.push_back({"step_state", step_state_});
  return out;
}

}  // namespace firn::optim
