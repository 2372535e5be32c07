#include "optim/store/param_store.h"

#include <algorithm>
#include <exception>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"
#include "firn/warning.h"
#include "kernels/copy.h"
#include "optim/store/label.h"
#include "optim/store/shown_weights.h"

namespace firn::optim {
namespace {

bool fills_its_storage(const TensorImpl& t) {
  return t.offset == 0 &&
         (is_contiguous(t.shape, t.strides) || is_channels_last(t.shape, t.strides)) &&
         static_cast<std::size_t>(t.shape.product()) * size_of(t.dtype) == t.storage->bytes();
}

}  // namespace

ParamStore::ParamStore(std::string op, const std::vector<GroupSetup>& groups,
                       const StoreOptions& options)
    : op_(std::move(op)), options_(options) {
  collect(groups);
  require_named(op_, "StateMemory", options_.memory, StateMemory::file);
  FIRN_CHECK(options_.memory != StateMemory::host || !device_.is_cpu(), op_,
             "leave it out, or take StateMemory::file",
             "StateMemory::host: the parameters on {} "
             "have their state in memory of the host anyway",
             device_);
  FIRN_CHECK(options_.memory != StateMemory::file || device_.is_cpu(), op_,
             "take StateMemory::host", "StateMemory::file: kernels on {} cannot use a mapped file",
             device_);
  FIRN_CHECK(!options_.scaler.defined() || options_.scaler.device() == device_, op_,
             "make the scaler with the parameters' device",
             "the shared loss scale is on {}, and the parameters are on {}",
             options_.scaler.device(), device_);
  lay_out();
  allocate_arenas();
  allocate_step();
  non_elementwise_ = set_up_non_elementwise(arenas_, views_);
  if (is_schedule_free(arenas_.front().rule)) modes_ = std::make_unique<Modes>(*this);
  try {
    for (StoredParameter& p : parameters_) move_in(p);
    refresh_masters();
  } catch (...) {
    let_go();
    throw;
  }
}

ParamStore::~ParamStore() {
  try {
    if (modes_) modes_->show(true);
  } catch (const std::exception&) {  // NOLINT: the device is lost, or a graph is being captured
  }
  let_go();
  if (!watch_) return;
  try {
    synchronize(stream());           // the device may still write to the watch
  } catch (const std::exception&) {  // NOLINT: nothing runs any more, or the device is lost
  }
}

void ParamStore::let_go() noexcept {
  for (StoredParameter& p : parameters_) {
    p.leaf->arena = Tensor();
    p.leaf->cycle = nullptr;
    p.leaf->set_modes(nullptr);
    p.leaf->touched = 0;
  }
}

void ParamStore::check(const NamedTensor& parameter, std::size_t index) const {
  const Tensor& t = parameter.tensor;
  const std::string called = label_of(index, parameter.name, t);
  FIRN_CHECK(t.defined(), op_, "give the model's parameters", "{} is undefined", called);
  const autograd::Leaf* leaf = autograd::leaf_of(t);
  FIRN_CHECK(leaf || !t.requires_grad(), op_, "give the leaf that it was computed from",
             "{}, was made by an op", called);
  FIRN_CHECK(leaf, op_, "call set_requires_grad() on it, or leave it out",
             "{}, requires no gradient", called);
  FIRN_CHECK(!leaf->is_trained(), op_, "destroy the other optimizer first, or leave it out",
             "{}, belongs to another optimizer", called);
  FIRN_CHECK(!runtime::dry_run() || t.storage()->is_of_plan(), op_,
             "make the optimizer before the plan, or make the model in the plan too",
             "{}, was made before the plan that makes the optimizer, which moves its parameters",
             called);
  FIRN_CHECK(!t.storage()->place_is_held(), op_,
             "make the optimizer before the parameter is given away, or give away a clone()",
             "{}, is in use by another library, and an optimizer moves its parameters", called);
  if (parameters_.empty()) return;
  const StoredParameter& first = parameters_.front();
  FIRN_CHECK(t.device() == first.tensor.device(), op_, "one optimizer per device",
             "{}, and the first one, {}, are on different devices", called, describe(first.tensor));
}

void ParamStore::collect(const std::vector<GroupSetup>& groups) {
  struct Place {
    std::size_t index, group;
  };
  std::unordered_map<const TensorImpl*, Place> tensors;
  std::unordered_map<const Storage*, std::size_t> storages;
  std::size_t index = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    FIRN_CHECK(!groups[g].parameters.empty(), op_,
               "give net.parameters(); a module lists its members with FIRN_MEMBERS(fc1, fc2)",
               "group {} has no parameters", g);
    const std::size_t first_arena = arenas_.size();
    for (const NamedTensor& given : groups[g].parameters) {
      const Tensor& t = given.tensor;
      check(given, index);
      const auto [known, added] = tensors.try_emplace(t.impl(), Place{index, g});
      FIRN_CHECK(added || known->second.group == g, op_, "keep it in one of them",
                 "{}, is in groups {} and {}", label_of(index, given.name, t), known->second.group,
                 g);
      if (!added) {  // tied weights
        ++index;
        continue;
      }
      const auto [other, alone] = storages.try_emplace(t.storage().get(), index);
      FIRN_CHECK(alone, op_, "tie weights by giving the same tensor, or clone one of them",
                 "parameters {} and {} are different tensors in the same memory: the latter is {}",
                 other->second, index, label_of(index, given.name, t));
      const bool fits = !groups[g].fits || groups[g].fits(given);
      const kernels::UpdateRule& rule = fits ? groups[g].rule : groups[g].other;
      FIRN_CHECK(t.dtype() != DType::f64 || !is_eight_bit(rule), op_,
                 "keep its states in f64, in a group of its own with StatePrecision::full",
                 "{}, has more digits than states in 8 bits are for",
                 label_of(index, given.name, t));
      auto a = first_arena;
      while (a < arenas_.size() &&
             !(arenas_[a].dtype == t.dtype() && arenas_[a].of_first_rule == fits))
        ++a;
      if (a == arenas_.size()) arenas_.emplace_back(t.dtype(), groups[g], fits);
      arenas_[a].parameters.push_back(parameters_.size());
      StoredParameter& p = parameters_.emplace_back();
      p.tensor = t;
      p.name = given.name;
      p.leaf = Ref<autograd::Leaf>(autograd::leaf_of(t));
      p.arena = a;
      ++index;
    }
  }
  FIRN_CHECK(!parameters_.empty(), op_,
             "give net.parameters(); decay_groups() leaves out those that require no gradient",
             "the list of parameters is empty");
  device_ = parameters_.front().tensor.device();
  other_name_ = groups.front().other_name;
  if (!other_name_.empty() &&
      std::none_of(arenas_.begin(), arenas_.end(), [](const Arena& a) { return a.of_first_rule; }))
    warn(op_, rules_in_words(),
         "options.hidden says which are whose; if it reads names, give net.named_parameters()");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    names.push_back(short_name(i, parameters_[i].name));
  short_names_ = std::make_shared<const std::vector<std::string>>(std::move(names));
}

void ParamStore::move_in(StoredParameter& p) {
  Arena& a = arenas_[p.arena];
  TensorImpl& impl = *p.tensor.impl();
  const std::size_t offset = static_cast<std::size_t>(p.begin) * size_of(a.dtype);
  if (fills_its_storage(impl)) {
    // Move the storage itself, so that all its views move too.
    impl.storage->move_into(a.weight.storage(), offset);
  } else {
    auto part = Storage::part_of(a.weight.storage(), offset, p.tensor.bytes());
    const View place{part->data(), a.dtype, device_, impl.shape,
                     strides_in(impl.shape, format_of(impl.shape, impl.strides))};
    kernels::copy(p.tensor.view(), place, stream());
    impl.storage = std::move(part);
    impl.strides = place.strides;
    impl.offset = 0;
  }
  p.storage = impl.storage;
  p.leaf->arena = p.gradient = slice(a.grad, p);
  p.leaf->cycle = options_.cycle;
  p.leaf->set_modes(modes_.get());
  p.leaf->collected = Tensor();
  p.leaf->touched = 0;
}

Tensor ParamStore::slice(const Tensor& arena, const StoredParameter& p) const {
  return arena.as_strided(p.tensor.shape(), p.tensor.strides(), p.begin);
}

kernels::StepMemory ParamStore::memory() const {
  return {step_state_.mutable_view(),
          ledger_.flags().mutable_view(),
          counts_.mutable_view(),
          schedule_.mutable_view(),
          scaler_.mutable_view(),
          ticket_.mutable_view(),
          watch_ ? static_cast<math::StepOutcome*>(watch_->data()) : nullptr};
}

void ParamStore::check_parameters() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const StoredParameter& p = parameters_[i];
    FIRN_CHECK(
        p.tensor.storage() == p.storage && autograd::leaf_or_frozen(p.tensor) == p.leaf.get(), op_,
        "convert or move a model before its optimizer is made",
        "parameter {}, {}, is no longer where the optimizer keeps it", i, describe(p.tensor));
    FIRN_CHECK(
        !ledger_.has_unnoted(i), op_,
        "call opt.backward(loss), which also counts the samples; zero_grad() drops this cycle",
        "{}, has a gradient that did not come through the optimizer's backward", label(i));
  }
}

void ParamStore::bump_versions() noexcept {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (ledger_.noted(i)) parameters_[i].storage->bump_version(autograd::kOptimizerStep);
  mark_adopted();
}

void ParamStore::bump_all_versions(const char* what) noexcept {
  for (StoredParameter& p : parameters_) p.storage->bump_version(what);
  mark_adopted();
}

void ParamStore::mark_adopted() noexcept {
  for (std::size_t i = 0; i < parameters_.size(); ++i) mark_adopted(i);
}

void ParamStore::mark_adopted(std::size_t i) noexcept {
  parameters_[i].version = parameters_[i].storage->version();
}

void ParamStore::forget_adopted() noexcept {
  for (StoredParameter& p : parameters_) p.version = p.storage->version() - 1;
}

std::vector<std::uint32_t> ParamStore::adopted() const {
  std::vector<std::uint32_t> versions;
  versions.reserve(parameters_.size());
  for (const StoredParameter& p : parameters_) versions.push_back(p.version);
  return versions;
}

void ParamStore::put_back_adopted(const std::vector<std::uint32_t>& versions) noexcept {
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].version = versions[i];
}

void ParamStore::adopt_weights() {
  for (StoredParameter& p : parameters_) {
    const std::uint32_t version = p.storage->version();
    if (p.version == version) continue;
    const Arena& a = arenas_[p.arena];
    const ArenaRun& run = run_of(a, p);
    const Share here = kept_of(run, p);
    if (modes_ && p.tensor.numel() > 0)
      modes_->adopt(p);
    else if (a.master.defined() && here.size() > 0)
      kernels::optim_adopt_weights(weight_part(a, run, here).view(),
                                   kept_part(a.master, run, here).mutable_view(), stream());
    p.version = version;
  }
}

void ParamStore::refresh_masters() {
  mark_adopted();
  for (const StoredParameter& p : parameters_) {
    const Arena& a = arenas_[p.arena];
    const ArenaRun& run = run_of(a, p);
    const Share here = kept_of(run, p);
    const auto refresh = [&](const Tensor& kept) {
      if (!kept.defined() || here.size() == 0) return;
      kernels::copy(weight_part(a, run, here).view(), kept_part(kept, run, here).mutable_view(),
                    stream());
    };
    refresh(a.master);
    refresh(a.ema);
    if (modes_) {  // math::ScheduleFree
      refresh(a.states[0]);
      refresh(a.states[1]);
    }
  }
}

void ParamStore::show_training_weights() {
  if (modes_) modes_->show(false);
}

void ParamStore::keep_shown(bool on) noexcept {
  if (modes_) modes_->keep(on);
}

}  // namespace firn::optim
