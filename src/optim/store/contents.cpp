// The contents of a ParamStore: its state, and the names of its parameters.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"
#include "kernels/copy.h"
#include "optim/store/flat.h"
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

void ParamStore::note_seen(const math::StepOutcome& last) noexcept {
  if (watch_) *static_cast<math::StepOutcome*>(watch_->data()) = last;
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
  for (const StoredParameter& p : parameters_) out.push_back(p.tensor);
  return out;
}

std::string ParamStore::label(std::size_t i) const {
  return label_of(i, parameters_[i].name, parameters_[i].tensor);
}

std::string ParamStore::names_of(const std::vector<std::size_t>& which) const {
  constexpr std::size_t kMost = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(which.size(), kMost); ++i)
    out += (i > 0 ? "; " : "") + label(which[i]);
  if (which.size() > kMost) out += fmt::format("; and {} more", which.size() - kMost);
  return out;
}

std::string ParamStore::names() const {
  std::vector<std::size_t> all(parameters_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return names_of(all);
}

std::string ParamStore::unheld() const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!ledger_.noted(i) && parameters_[i].tensor.impl()->use_count() == 1) found.push_back(i);
  return names_of(found);
}

std::vector<Tensor> ParamStore::averages() const {
  std::vector<Tensor> out;
  for (const Arena& a : arenas_) out.push_back(a.ema);
  return out;
}

Tensor ParamStore::gradient(std::size_t i) const {
  FIRN_CHECK(!gradients_sharded(), op_, "set DistributeOptions::zero to 1",
             "gradients are sharded over ranks, and each rank has its shard alone");
  const StoredParameter& p = parameters_[i];
  return ledger_.received(i) ? slice(arenas_[p.arena].grad, p) : Tensor();
}

void ParamStore::zero_missing_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& gradient = parameters_[i].gradient;
    if (ledger_.take_stale(i) && !gradients_sharded())
      zero_bytes(gradient.impl()->data(), device_, gradient.bytes());
  }
}

void ParamStore::collect_into(std::span<const Tensor> arenas) {
  for (StoredParameter& p : parameters_) p.leaf->arena = slice(arenas[p.arena], p);
}

void ParamStore::collect_here() noexcept {
  for (StoredParameter& p : parameters_) p.leaf->arena = p.gradient;
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
    if (!gradients_sharded() &&  // other ranks may have received some
        std::none_of(a.parameters.begin(), a.parameters.end(),
                     [this](std::size_t i) { return ledger_.received(i); }))
      continue;
    copy = memory ? (*memory)[out.size() - 1] : empty(a.grad.shape(), a.grad.dtype(), device_);
    kernels::copy(a.grad.view(), copy.mutable_view(), stream());
  }
  return out;
}

std::vector<Tensor> ParamStore::reserve_rows(std::int64_t rows) const {
  const OwnerScope owner(Owner::gradients);
  std::vector<Tensor> out;
  for (const Arena& a : arenas_) out.push_back(empty({rows, a.elements}, a.grad.dtype(), device_));
  return out;
}

void ParamStore::store_gradient(const Tensor& value, std::span<const Tensor> arenas,
                                std::size_t i) const {
  if (!gradients_sharded())
    return kernels::copy(value.to(device_).view(), part_in(arenas, i).mutable_view(), stream());
  const StoredParameter& p = parameters_[i];
  const ArenaRun& run = run_of(arenas_[p.arena], p);
  const Share here = kept_of(run, p);
  if (here.size() == 0) return;
  const Tensor flat = empty({p.tensor.numel()}, arenas[p.arena].dtype(), device_);
  kernels::copy(value.view(), flat.as_strided(p.tensor.shape(), p.tensor.strides()).mutable_view(),
                stream());
  kernels::copy(flat.as_strided({here.size()}, {1}, here.first - p.begin).view(),
                kept_part(arenas[p.arena], run, here).mutable_view(), stream());
}

Tensor ParamStore::part_in(std::span<const Tensor> arenas, std::size_t i) const {
  return slice(arenas[parameters_[i].arena], parameters_[i]);
}

Tensor ParamStore::rows_in(std::span<const Tensor> rows, std::size_t i) const {
  const StoredParameter& p = parameters_[i];
  const Tensor &all = rows[p.arena], one = p.tensor;
  Shape shape{all.size(0)};
  Strides strides{all.size(1)};
  for (int d = 0; d < one.rank(); ++d) {
    shape.push_back(one.size(d));
    strides.push_back(one.strides()[static_cast<std::size_t>(d)]);
  }
  return all.as_strided(shape, strides, p.begin);
}

void ParamStore::put_back_gradients(const std::vector<Tensor>& copies) const {
  for (std::size_t a = 0; a < copies.size(); ++a)
    if (copies[a].defined())
      kernels::copy(copies[a].view(), arenas_[a].grad.mutable_view(), stream());
}

StateEntry ParamStore::entry_of(std::string name, const Arena& a, const StoredParameter& p,
                                const Tensor& kept, std::int64_t unit) const {
  const ArenaRun& run = run_of(a, p);
  const std::int64_t begin = p.begin / unit, count = math::ceil_div(p.tensor.numel(), unit);
  const bool codes = is_eight_bit(a.rule) && kept.dtype() == DType::u8;
  // The scale of a code follows from the code's place in memory. So codes in another order are
  // flat, and do not fit a weight of row-major order.
  const bool flat = unit != 1 || (codes && !p.tensor.is_contiguous());
  const Shape shape = flat ? Shape{count} : p.tensor.shape();
  const Strides strides = flat ? Strides{1} : p.tensor.strides();
  StateEntry out{std::move(name), {}};
  if (codes) out.codes_of = format_of(p.tensor.shape(), p.tensor.strides());
  if (!sharded()) {
    out.tensor = kept.as_strided(shape, strides, begin);
    return out;
  }
  out.tensor = zeros({}, kept.dtype(), device_).expand(shape);
  std::vector<std::int64_t> bounds;  // bounds within the parameter
  for (const std::int64_t b : run.bounds)
    bounds.push_back(std::clamp(b / unit, begin, begin + count) - begin);
  // The elements of the parameter that are kept here.
  const Share mine{std::max(begin, run.kept.first / unit),
                   std::max(begin, std::min(begin + count, run.kept.last / unit))};
  const std::int64_t from = (run.kept.first - run.at) / unit;
  const Tensor part = mine.size() > 0 ? part_of(kept, {mine.first - from, mine.last - from})
                                      : empty({0}, kept.dtype(), device_);
  const bool in_order = flat || p.tensor.is_contiguous();
  (in_order ? out.parts : out.parts_in_memory) = TensorParts{std::move(bounds), part};
  out.strides = strides;
  out.prepare = [this, part, in_order, shape, strides, count,
                 own = Share{mine.first - begin, mine.last - begin}](
                    const Tensor& read) -> std::function<void()> {
    if (part.numel() == 0) return [] {};
    Tensor line = read;  // elements in the order of the arena
    if (!in_order) {
      line = empty({count}, read.dtype(), Device::cpu());
      kernels::copy(read.view(), line.as_strided(shape, strides).mutable_view(),
                    current_stream(Device::cpu()));
    }
    return [this, part, read_part = part_of(line, own).to(device_)] {
      kernels::copy(read_part.view(), part.mutable_view(), stream());
    };
  };
  return out;
}

StateEntry ParamStore::weight_entry(std::size_t i) const {
  const StoredParameter& p = parameters_[i];
  std::string name = fmt::format("parameters.{}.weight", i);
  if (!weights_sharded_) return {std::move(name), p.tensor.detach()};
  const Arena& a = arenas_[p.arena];
  StateEntry out = entry_of(std::move(name), a, p, a.weight, 1);
  out.tensor = p.tensor.detach();  // identifies the weight of a module
  out.parts_in_memory = {};        // whoever reads the weight gathers it
  out.prepare = [this, storage = p.storage,
                 prepare = std::move(out.prepare)](const Tensor& read) -> std::function<void()> {
    return [this, storage, write = prepare(read)] {
      write();
      storage->bump_version(op_.c_str());
    };
  };
  return out;
}

std::function<void()> ParamStore::begin_of(std::size_t i, const Tensor& kept,
                                           std::int64_t unit) const {
  const StoredParameter& p = parameters_[i];
  const Arena& a = arenas_[p.arena];
  const ArenaRun& run = run_of(a, p);
  const Share here = kept_of(run, p);
  const Tensor to = here.size() == 0 ? Tensor()
                                     : kept.as_strided({math::ceil_div(here.size(), unit)}, {1},
                                                       run.place_of(here.first) / unit);
  if (&kept == &a.master || &kept == &a.ema) {
    if (here.size() == 0) return [] {};
    const Tensor weight = weight_part(a, run, here);
    if (&kept == &a.master || !a.master.defined())
      return [this, to, weight] { kernels::copy(weight.view(), to.mutable_view(), stream()); };
    return [this, to, weight, master = kept_part(a.master, run, here)] {
      kernels::copy(master.view(), to.mutable_view(), stream());
      // The file's weight may have been written from outside after its master.
      kernels::optim_adopt_weights(weight.view(), to.mutable_view(), stream());
    };
  }
  double value = 0;
  for (std::size_t s = 0; s < a.states.size(); ++s)
    if (&kept == &a.states[s] && !is_eight_bit(a.rule))
      std::visit(
          [&](const auto& rule) {
            if constexpr (requires { rule.initial_state(0); })
              value = rule.initial_state(static_cast<int>(s));
          },
          a.rule);
  // All rules keep their first state, so without it the parameter had another rule. This one has
  // made no update of it.
  Tensor count;
  if (&kept == &a.states.front())
    count = counts_.as_strided({1}, {1}, static_cast<std::int64_t>(i));
  return [this, to, value, count] {
    if (to.defined()) kernels::fill(to.mutable_view(), value, stream());
    if (count.defined()) kernels::fill(count.mutable_view(), 0, stream());
  };
}

std::vector<StateEntry> ParamStore::state(bool zero_missing) {
  std::vector<StateEntry> out;
  // Replays will find other gradients, and between chunks the arenas hold sums.
  if (!runtime::capturing(device_) && zero_missing) zero_missing_gradients();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const StoredParameter& p = parameters_[i];
    const Arena& a = arenas_[p.arena];
    const std::string prefix = fmt::format("parameters.{}.", i);
    const auto add = [&](const std::string& name, const Tensor& kept, std::int64_t unit = 1) {
      if (!kept.defined()) return;
      out.push_back(entry_of(prefix + name, a, p, kept, unit));
      if (&kept != &a.grad) out.back().begin = begin_of(i, kept, unit);
    };
    out.push_back(weight_entry(i));
    if (gradients_sharded())
      add("gradient", a.grad);
    else
      out.push_back({prefix + "gradient", slice(a.grad, p)});
    add("master", a.master);
    add("ema", a.ema);
    const int ranks = sharded() ? static_cast<int>(a.runs.front().bounds.size()) - 1 : 0;
    for (StateEntry& s : non_elementwise_.states_of(i, sharded() ? owner_of(a, p) : 0, ranks)) {
      s.name = prefix + s.name;
      out.push_back(std::move(s));
    }
    for (std::size_t s = 0; s < a.states.size(); ++s) {
      const std::string name = std::visit(
          [&](const auto& rule) { return rule.state_name(static_cast<int>(s)); }, a.rule);
      add(name, a.states[s]);
      if (!a.scales.empty()) add(name + "_scale", a.scales[s], math::kStateBlock);
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
