#include "optim/param_store.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "firn/kernel_support.h"
#include "kernels/copy.h"

namespace firn::optim {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes: a cache line, and a vector register
// Elements of a chunk. On the CPU its weights, gradients and two states take 128 KB, half of an L2
// cache, and a model of some 100,000 parameters still splits evenly over threads; on a GPU it is
// four 16-byte loads for each of a block's 256 threads.
std::int64_t chunk_size(Device device) { return device.is_cpu() ? 8192 : 4096; }

DType sink_dtype(DType model) { return model == DType::f64 ? DType::f64 : DType::f32; }

std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

bool fills_its_storage(const TensorImpl& t) {
  return t.offset == 0 &&
         (is_contiguous(t.shape, t.strides) || is_channels_last(t.shape, t.strides)) &&
         static_cast<std::size_t>(t.shape.product()) * size_of(t.dtype) == t.storage->bytes();
}

std::string short_name(std::size_t i, const std::string& name) {
  return name.empty() ? std::to_string(i) : fmt::format("{}, \"{}\"", i, name);
}

std::string label_of(std::size_t i, const std::string& name, const Tensor& t) {
  const std::string number = "parameter " + short_name(i, name);
  return t.defined() ? fmt::format("{}, {}", number, describe(t)) : number;
}

template <class T>
Ref<Storage> upload(const std::vector<T>& values, Device device) {
  auto s = Storage::allocate(std::max<std::size_t>(values.size(), 1) * sizeof(T), device);
  copy_bytes(s->data(), device, values.data(), Device::cpu(), values.size() * sizeof(T));
  return s;
}

}  // namespace

ParamStore::ParamStore(std::string op, const std::vector<GroupSetup>& groups,
                       const StoreOptions& options)
    : op_(std::move(op)), options_(options) {
  collect(groups);
  FIRN_CHECK(!options_.scaler.defined() || options_.scaler.device() == device_, op_,
             "make the scaler with the parameters' device",
             "the shared loss scale is on {}, and the parameters are on {}",
             options_.scaler.device(), device_);
  lay_out();
  {
    const OwnerScope owner(Owner::optimizer);
    std::int64_t chunks = 0;
    for (const Arena& a : arenas_) chunks += chunks_of(a);
    partials_ =
        Storage::allocate(static_cast<std::size_t>(chunks) * sizeof(kernels::NormPartial), device_);
  }
  for (Arena& a : arenas_) allocate(a);
  {
    const OwnerScope owner(Owner::optimizer);
    const auto n = static_cast<std::int64_t>(parameters_.size());
    step_state_ = zeros({static_cast<std::int64_t>(sizeof(math::StepState))}, DType::u8, device_);
    touched_ = zeros({n}, DType::u8, device_);
    counts_ = zeros({n}, DType::i64, device_);
    scaler_ = options_.scaler;
    if (!scaler_.defined())
      scaler_ = zeros({static_cast<std::int64_t>(sizeof(math::ScalerState))}, DType::u8, device_);
    schedule_ = zeros({static_cast<std::int64_t>(sizeof(math::ScheduleTable))}, DType::u8, device_);
    ticket_ = zeros({kAlignment}, DType::u8, device_);
  }
  if (options_.watched && !device_.is_cpu())
    new (watch_.emplace(sizeof(math::StepOutcome)).data()) math::StepOutcome;
  const math::StepState initial;
  copy_bytes(step_state_.impl()->data(), device_, &initial, Device::cpu(), sizeof(initial));
  touched_now_.assign(parameters_.size(), 0);
  touched_on_device_ = touched_now_;
  touched_version_ = touched_.storage()->version();
  try {
    for (Parameter& p : parameters_) move_in(p);
    refresh_masters();
  } catch (...) {
    let_go();
    throw;
  }
}

ParamStore::~ParamStore() {
  let_go();
  if (!watch_) return;
  try {
    synchronize(stream());  // the end of a cycle may still have to be written to the watch
  } catch (const Error&) {  // NOLINT: nothing runs any more, or the device is lost
  }
}

void ParamStore::let_go() noexcept {
  for (Parameter& p : parameters_) {
    p.leaf->arena = Tensor();
    p.leaf->cycle = nullptr;
    p.leaf->touched = 0;
  }
}

// ---- Construction: check, lay out, allocate, move ----

void ParamStore::check(const NamedTensor& parameter, std::size_t index) const {
  const Tensor& t = parameter.tensor;
  const std::string called = label_of(index, parameter.name, t);
  FIRN_CHECK(t.defined(), op_, "give the model's parameters", "{} is undefined", called);
  const autograd::Leaf* leaf = autograd::leaf_of(t);
  FIRN_CHECK(leaf || !t.requires_grad(), op_, "give the leaf that it was computed from",
             "{}, was made by an op", called);
  FIRN_CHECK(leaf, op_, "call set_requires_grad() on it, or leave it out",
             "{}, requires no gradient", called);
  FIRN_CHECK(!leaf->arena.defined(), op_, "destroy the other optimizer first, or leave it out",
             "{}, belongs to another optimizer", called);
  if (parameters_.empty()) return;
  const Parameter& first = parameters_.front();
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
    FIRN_CHECK(!groups[g].parameters.empty(), op_, "give net.parameters()",
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
      auto a = first_arena;
      while (a < arenas_.size() && arenas_[a].dtype != t.dtype()) ++a;
      if (a == arenas_.size()) arenas_.emplace_back(t.dtype(), groups[g].rule, groups[g].lr_scale);
      arenas_[a].parameters.push_back(parameters_.size());
      Parameter& p = parameters_.emplace_back();
      p.tensor = t;
      p.name = given.name;
      p.leaf = Ref<autograd::Leaf>(autograd::leaf_of(t));
      p.arena = a;
      ++index;
    }
  }
  FIRN_CHECK(!parameters_.empty(), op_, "give net.parameters()", "the list of parameters is empty");
  device_ = parameters_.front().tensor.device();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    names.push_back(short_name(i, parameters_[i].name));
  short_names_ = std::make_shared<const std::vector<std::string>>(std::move(names));
}

void ParamStore::lay_out() {
  for (Arena& a : arenas_) {
    const auto unit = kAlignment / static_cast<std::int64_t>(size_of(a.dtype));
    for (const std::size_t i : a.parameters) {
      parameters_[i].begin = a.elements;
      a.elements += std::max(round_up(parameters_[i].tensor.numel(), unit), unit);
    }
  }
}

void ParamStore::allocate(Arena& a) {
  const DType sink = sink_dtype(a.dtype);
  const auto make = [&](Owner owner, DType dtype) {
    const OwnerScope scope(owner);
    return zeros({a.elements}, dtype, device_);
  };
  a.weight = make(Owner::weights, a.dtype);
  a.grad = make(Owner::gradients, sink);
  if (options_.average) a.ema = make(Owner::optimizer, sink);
  if (sink != a.dtype && options_.masters) a.master = make(Owner::optimizer, sink);
  std::visit(
      [&](const auto& rule) {
        for (int i = 0; i < rule.kStates; ++i) {
          a.states.push_back(make(Owner::optimizer, sink));
          if constexpr (requires { rule.initial_state(i); })
            if (rule.initial_state(i) != 0)
              kernels::fill(a.states.back().mutable_view(), rule.initial_state(i), stream());
        }
      },
      a.rule);
  make_tables(a);

  kernels::OptimizerArena v;
  v.weight = a.weight.mutable_view();
  if (a.master.defined()) v.master = a.master.mutable_view();
  v.grad = a.grad.mutable_view();
  if (a.ema.defined()) v.ema = a.ema.mutable_view();
  v.index = static_cast<std::int64_t>(views_.size());
  v.partials = static_cast<kernels::NormPartial*>(partials_->data());
  for (const kernels::OptimizerArena& before : views_) v.partials += before.chunks;
  for (std::size_t i = 0; i < a.states.size(); ++i) v.states[i] = a.states[i].mutable_view();
  v.rule = a.rule;
  v.lr_scale = a.lr_scale;
  v.chunks = chunks_of(a);
  v.chunk_pieces = static_cast<const std::int64_t*>(a.chunk_pieces->data());
  v.pieces = static_cast<const kernels::Piece*>(a.pieces->data());
  if (a.trust_ratios) {
    v.trust_partials = static_cast<kernels::TrustPartial*>(a.trust_partials->data());
    v.trust_ratios = static_cast<double*>(a.trust_ratios->data());
  }
  views_.push_back(v);
}

std::int64_t ParamStore::chunks_of(const Arena& a) const {
  const std::int64_t size = chunk_size(device_);
  return (a.elements + size - 1) / size;
}

void ParamStore::make_tables(Arena& a) {
  const OwnerScope scope(Owner::optimizer);
  const std::int64_t size = chunk_size(device_);
  struct Chunk {
    std::vector<kernels::Piece> pieces;
    double place = 0;  // how far into its first piece's parameter it begins, of 1
  };
  std::vector<Chunk> chunks(static_cast<std::size_t>(chunks_of(a)));
  for (const std::size_t i : a.parameters) {
    const Parameter& p = parameters_[i];
    const std::int64_t end = p.begin + p.tensor.numel();
    for (std::int64_t at = p.begin; at < end;) {
      Chunk& chunk = chunks[static_cast<std::size_t>(at / size)];
      const std::int64_t stop = std::min(end, (at / size + 1) * size);
      if (chunk.pieces.empty())
        chunk.place = static_cast<double>(at - p.begin) / static_cast<double>(end - p.begin);
      chunk.pieces.push_back(
          {at, static_cast<std::int32_t>(stop - at), static_cast<std::int32_t>(i)});
      at = stop;
    }
  }
  const bool trusts =
      std::visit([](const auto& rule) { return math::has_trust_ratio(rule); }, a.rule);
  // Products share a weight's rows among the CPU's threads: each thread is to update the rows whose
  // gradients it has in its cache, and to multiply by those that it updated.
  if (device_.is_cpu() && !trusts)
    std::stable_sort(chunks.begin(), chunks.end(),
                     [](const Chunk& x, const Chunk& y) { return x.place < y.place; });
  std::vector<kernels::Piece> pieces;
  std::vector<std::int64_t> chunk_pieces{0};
  for (const Chunk& c : chunks) {
    pieces.insert(pieces.end(), c.pieces.begin(), c.pieces.end());
    chunk_pieces.push_back(static_cast<std::int64_t>(pieces.size()));
  }
  a.pieces = upload(pieces, device_);
  a.chunk_pieces = upload(chunk_pieces, device_);
  if (trusts) {
    a.trust_partials = Storage::allocate(
        std::max<std::size_t>(pieces.size(), 1) * sizeof(kernels::TrustPartial), device_);
    a.trust_ratios = Storage::allocate(parameters_.size() * sizeof(double), device_);
  }
}

void ParamStore::move_in(Parameter& p) {
  Arena& a = arenas_[p.arena];
  TensorImpl& impl = *p.tensor.impl();
  const std::size_t offset = static_cast<std::size_t>(p.begin) * size_of(a.dtype);
  if (fills_its_storage(impl)) {
    // The storage itself moves, so that every view of it moves along.
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
  p.leaf->arena = slice(a.grad, p);
  p.leaf->cycle = options_.owner;
  p.leaf->collected = Tensor();
  p.leaf->touched = 0;
}

Tensor ParamStore::slice(const Tensor& arena, const Parameter& p) const {
  return arena.as_strided(p.tensor.shape(), p.tensor.strides(), p.begin);
}

// ---- The cycle ----

kernels::StepMemory ParamStore::memory() const {
  return {step_state_.mutable_view(),
          touched_.mutable_view(),
          counts_.mutable_view(),
          schedule_.mutable_view(),
          scaler_.mutable_view(),
          ticket_.mutable_view(),
          watch_ ? static_cast<math::StepOutcome*>(watch_->data()) : nullptr};
}

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
  read(out.touched.data(), touched_);
  read(&out.schedule, schedule_);
  read(&out.scaler, scaler_);
  read(&out.step, step_state_);
  return out;
}

std::uint32_t ParamStore::version_of_state() const noexcept {
  std::uint32_t version = 0;
  for (const Tensor* t : {&step_state_, &touched_, &counts_, &schedule_, &scaler_})
    version += t->storage()->version();
  return version;
}

math::StepOutcome ParamStore::last_seen() const {
  if (!watch_) return read_state().last;
  return *static_cast<const math::StepOutcome*>(watch_->data());
}

void ParamStore::check_parameters() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    FIRN_CHECK(
        p.tensor.storage() == p.storage && autograd::leaf_or_frozen(p.tensor) == p.leaf.get(), op_,
        "convert or move a model before its optimizer is made",
        "parameter {}, {}, is no longer where the optimizer keeps it", i, describe(p.tensor));
    FIRN_CHECK(
        p.leaf->touched == p.seen || p.leaf->touched == 0, op_,
        "call opt.backward(loss), which also counts the samples; zero_grad() drops this cycle",
        "{}, has a gradient that did not come through the optimizer's backward", label(i));
  }
}

void ParamStore::adopt_touched() {
  if (touched_.storage()->version() == touched_version_) return;
  touched_version_ = touched_.storage()->version();
  copy_bytes(touched_now_.data(), Device::cpu(), touched_.impl()->data(), device_,
             touched_now_.size());
  touched_on_device_ = touched_now_;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].leaf->touched = parameters_[i].seen = touched_now_[i] != 0;
}

void ParamStore::note_gradients() noexcept {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = parameters_[i];
    p.seen = p.leaf->touched;
    touched_now_[i] = p.seen > 0;
  }
}

std::vector<std::uint32_t> ParamStore::contributions() const {
  std::vector<std::uint32_t> out;
  for (const Parameter& p : parameters_) out.push_back(p.leaf->touched);
  return out;
}

void ParamStore::receive(const std::vector<std::uint32_t>& before,
                         const std::vector<std::uint32_t>& after) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    std::uint32_t& touched = parameters_[i].leaf->touched;
    FIRN_CHECK(after[i] == before[i] || (touched == 0) == (before[i] == 0), op_,
               "record one graph for each place in the cycle, and replay them in turn",
               "a graph was recorded when {}, {} a gradient of this cycle, and replayed when it {}",
               label(i), before[i] > 0 ? "had" : "did not have",
               touched > 0 ? "had one" : "had none");
    touched += after[i] - before[i];
  }
  note_gradients();
}

void ParamStore::put_back(const std::vector<std::uint32_t>& contributions) noexcept {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].leaf->touched = contributions[i];
  note_gradients();
  for (std::uint8_t& t : touched_on_device_) t = 0xff;  // neither 0 nor 1: it will be told anew
  for (Parameter& p : parameters_) p.version = p.storage->version() - 1;  // to be looked at anew
}

bool ParamStore::upload_touched() {
  if (touched_now_ == touched_on_device_) return false;
  kernels::optim_set_touched(memory(), touched_now_, stream());
  touched_on_device_ = touched_now_;
  return true;
}

void ParamStore::begin_cycle() {
  adopt_touched();  // so that it is not done later
  for (Parameter& p : parameters_) {
    p.stale = p.stale || p.leaf->touched > 0;
    p.leaf->touched = 0;
  }
  note_gradients();
}

void ParamStore::bump_versions() noexcept {
  for (Parameter& p : parameters_)
    if (p.seen) p.storage->bump_version("the optimizer's step");
  know_weights();
}

void ParamStore::bump_all_versions(const char* what) noexcept {
  for (Parameter& p : parameters_) p.storage->bump_version(what);
  know_weights();
}

void ParamStore::know_weights() noexcept {
  for (Parameter& p : parameters_) p.version = p.storage->version();
}

void ParamStore::adopt_weights() {
  for (Parameter& p : parameters_) {
    const std::uint32_t version = p.storage->version();
    if (p.version == version) continue;
    const Arena& a = arenas_[p.arena];
    const auto flat = [&](const Tensor& arena) {
      return arena.as_strided({p.tensor.numel()}, {1}, p.begin);
    };
    if (a.master.defined() && p.tensor.numel() > 0)
      kernels::optim_adopt_weights(flat(a.weight).view(), flat(a.master).mutable_view(), stream());
    p.version = version;
  }
}

void ParamStore::refresh_masters() {
  know_weights();
  for (const Parameter& p : parameters_)
    for (const Tensor* arena : {&arenas_[p.arena].master, &arenas_[p.arena].ema})
      if (arena->defined())
        kernels::copy(p.tensor.view(), slice(*arena, p).mutable_view(), stream());
}

// ---- Looking in ----

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
  return p.leaf->touched > 0 ? slice(arenas_[p.arena].grad, p) : Tensor();
}

std::vector<NamedState> ParamStore::state() {
  std::vector<NamedState> out;
  const bool recording = runtime::capturing(device_);  // replays will find other gradients
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = parameters_[i];
    const Arena& a = arenas_[p.arena];
    if (p.stale && p.leaf->touched == 0 && !recording) {
      zero_bytes(p.leaf->arena.impl()->data(), device_, p.leaf->arena.bytes());
      p.stale = false;
    }
    const std::string prefix = fmt::format("parameters.{}.", i);
    out.push_back({prefix + "weight", p.tensor.detach()});
    out.push_back({prefix + "gradient", slice(a.grad, p)});
    if (a.master.defined()) out.push_back({prefix + "master", slice(a.master, p)});
    if (a.ema.defined()) out.push_back({prefix + "ema", slice(a.ema, p)});
    for (std::size_t s = 0; s < a.states.size(); ++s) {
      const char* name = std::visit(
          [&](const auto& rule) { return rule.state_name(static_cast<int>(s)); }, a.rule);
      out.push_back({prefix + name, slice(a.states[s], p)});
    }
  }
  out.push_back({"update_counts", counts_});
  out.push_back({"touched", touched_});
  out.push_back({"schedule", schedule_});
  out.push_back({"loss_scale", scaler_});
  out.push_back({"step_state", step_state_});
  return out;
}

}  // namespace firn::optim
