// The layout of a ParamStore: the place of each parameter, the memory, and the tables that
// distribute the work over threads and blocks.
#include <algorithm>
#include <utility>

#include "firn/memory/labels.h"
#include "kernels/copy.h"
#include "optim/store/flat.h"
#include "optim/store/param_store.h"
#include "runtime/offload/offload.h"

namespace firn::optim {
namespace {

DType sink_dtype(DType model) { return model == DType::f64 ? DType::f64 : DType::f32; }

std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

template <class T>
Ref<Storage> upload(const std::vector<T>& values, Device device) {
  auto s = Storage::allocate(std::max<std::size_t>(values.size(), 1) * sizeof(T), device);
  copy_bytes(s->data(), device, values.data(), Device::cpu(), values.size() * sizeof(T));
  return s;
}

Tensor bytes(std::size_t n, Device device) {
  return zeros({static_cast<std::int64_t>(n)}, DType::u8, device);
}

}  // namespace

// On the CPU, weights, gradients and two states of a chunk take 128 KB, which is half of an L2
// cache. On a GPU a chunk is four 16-byte loads for each of a block's 256 threads.
std::int64_t ParamStore::chunk_size() const noexcept { return device_.is_cpu() ? 8192 : 4096; }

void ParamStore::lay_out() {
  for (Arena& a : arenas_) {
    const std::int64_t unit = unit_of(a);
    for (const std::size_t i : a.parameters) {
      parameters_[i].begin = a.elements;
      a.elements += std::max(round_up(parameters_[i].tensor.numel(), unit), unit);
    }
    ArenaRun& run = a.runs.emplace_back();
    run.range = run.kept = {0, a.elements};
  }
}

void ParamStore::allocate_arenas() {
  const runtime::OpScope op("optimizer");
  for (Arena& a : arenas_) allocate(a);
  for (const Arena& a : arenas_) gradients_.push_back(a.grad);
  partials_ = reserve_partials(arenas_);
  views_ = views_of(arenas_, *partials_);
}

Ref<Storage> ParamStore::reserve_partials(const std::vector<Arena>& arenas) const {
  const OwnerScope owner(Owner::optimizer);
  std::int64_t chunks = 0;
  for (const Arena& a : arenas)
    for (const ArenaRun& run : a.runs) chunks += run.chunks;
  return Storage::allocate(
      static_cast<std::size_t>(std::max<std::int64_t>(chunks, 1)) * sizeof(kernels::NormPartial),
      device_);
}

std::vector<kernels::OptimizerArena> ParamStore::views_of(const std::vector<Arena>& arenas,
                                                          const Storage& partials) const {
  std::vector<kernels::OptimizerArena> out;
  auto* next = static_cast<kernels::NormPartial*>(partials.data());
  for (std::size_t a = 0; a < arenas.size(); ++a)
    for (const ArenaRun& run : arenas[a].runs) {
      out.push_back(view_of(arenas[a], run, a, next));
      next += run.chunks;
    }
  return out;
}

void ParamStore::allocate_step() {
  const runtime::OpScope op("optimizer");
  const OwnerScope owner(Owner::optimizer);
  step_state_ = bytes(sizeof(math::StepState), device_);
  schedule_ = bytes(sizeof(math::ScheduleTable), device_);
  scaler_ = options_.scaler;
  if (!scaler_.defined()) scaler_ = bytes(sizeof(math::ScalerState), device_);
  ticket_ = bytes(kArenaAlignment, device_);
  counts_ = zeros({static_cast<std::int64_t>(parameters_.size())}, DType::i64, device_);
  std::vector<Ref<autograd::Leaf>> leaves;
  for (const StoredParameter& p : parameters_) leaves.push_back(p.leaf);
  ledger_ = GradientLedger(op_, std::move(leaves), device_);
  if (options_.watched && !device_.is_cpu())
    new (watch_.emplace(sizeof(math::StepOutcome)).data()) math::StepOutcome;
  const math::StepState initial;
  copy_bytes(step_state_.impl()->data(), device_, &initial, Device::cpu(), sizeof(initial));
}

Tensor ParamStore::state_memory(Owner owner, DType dtype, std::int64_t elements) const {
  if (options_.memory == StateMemory::device) {
    const OwnerScope scope(owner);
    return zeros({elements}, dtype, device_);
  }
  const auto where =
      options_.memory == StateMemory::host ? memory::Elsewhere::host : memory::Elsewhere::file;
  return Tensor(Ref<TensorImpl>(
      new TensorImpl(memory::allocate_elsewhere(static_cast<std::size_t>(elements) * size_of(dtype),
                                                device_, where),
                     {elements}, Strides{1}, 0, dtype)));
}

NonElementwiseUpdates ParamStore::set_up_non_elementwise(
    const std::vector<Arena>& arenas, const std::vector<kernels::OptimizerArena>& views) const {
  NonElementwiseUpdates out;
  std::vector<std::size_t> first_run{0};  // first run of each arena, among the views
  for (const Arena& a : arenas) first_run.push_back(first_run.back() + a.runs.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const StoredParameter& p = parameters_[i];
    const Arena& a = arenas[p.arena];
    if (!a.whole) continue;
    const Shape& shape = p.tensor.shape();
    const Strides strides = strides_in(shape, format_of(shape, p.tensor.strides()));
    const bool here = is_here(a, p);
    // A sharded gradient has nothing here of another rank's parameter, and nothing reads it.
    const bool missing = !here && a.grad.numel() < a.elements;
    out.add({.index = i,
             .name = p.name,
             .label = label(i),
             .rule = a.whole.get(),
             .arena = first_run[p.arena],
             .range = {p.begin, p.tensor.numel(), static_cast<std::int32_t>(i)},
             .gradient = missing ? zeros({}, a.grad.dtype(), device_).expand(shape)
                                 : a.grad.as_strided(shape, strides, grad_place(a, p)),
             .here = here},
            {p.name, p.tensor});
  }
  out.allocate([this](DType dtype, std::int64_t elements) {
    return state_memory(Owner::optimizer, dtype, elements);
  });
  out.reserve(memory(), views, device_);
  return out;
}

void ParamStore::allocate(Arena& a) {
  const DType sink = sink_dtype(a.dtype);
  const auto make = [&](Owner owner, DType dtype) {
    const OwnerScope scope(owner);
    return zeros({a.elements}, dtype, device_);
  };
  a.weight = make(Owner::weights, a.dtype);
  a.grad = make(Owner::gradients, sink);
  if (options_.average) a.ema = state_memory(Owner::optimizer, sink, a.elements);
  if (sink != a.dtype && options_.masters)
    a.master = state_memory(Owner::masters, sink, a.elements);
  std::visit(
      [&](const auto& rule) {
        for (int i = 0; i < rule.kStates; ++i) {
          if constexpr (math::kIsEightBit<std::decay_t<decltype(rule)>>) {
            a.states.push_back(state_memory(Owner::optimizer, DType::u8, a.elements));
            a.scales.push_back(
                state_memory(Owner::optimizer, DType::f32, a.elements / math::kStateBlock));
            continue;
          }
          a.states.push_back(state_memory(Owner::optimizer, sink, a.elements));
          if constexpr (requires { rule.initial_state(i); })
            if (rule.initial_state(i) != 0)
              kernels::fill(a.states.back().mutable_view(), rule.initial_state(i), stream());
        }
      },
      a.rule);
  for (ArenaRun& run : a.runs) make_tables(a, run);
}

kernels::OptimizerArena ParamStore::view_of(const Arena& a, const ArenaRun& run, std::size_t index,
                                            kernels::NormPartial* partials) const {
  // Kernels count elements from the beginning of the arena, but access only those in the tables.
  const auto from = [&run](const Tensor& kept, std::int64_t unit = 1) {
    return counted_from(kept.mutable_view(), (run.kept.first - run.at) / unit);
  };
  kernels::OptimizerArena v;
  v.weight = a.weight.numel() < a.elements ? from(a.weight) : a.weight.mutable_view();
  if (a.master.defined()) v.master = from(a.master);
  v.grad = a.grad.numel() < a.elements ? from(a.grad) : a.grad.mutable_view();
  if (a.ema.defined()) v.ema = from(a.ema);
  v.index = static_cast<std::int64_t>(index);
  v.partials = partials;
  for (std::size_t i = 0; i < a.states.size(); ++i) v.states[i] = from(a.states[i]);
  for (std::size_t i = 0; i < a.scales.size(); ++i)
    v.scales[i] = from(a.scales[i], math::kStateBlock);
  v.rule = a.rule;
  v.lr_scale = a.lr_scale;
  v.chunks = run.chunks;
  v.chunk_pieces = static_cast<const std::int64_t*>(run.chunk_pieces->data());
  v.pieces = static_cast<const kernels::Piece*>(run.pieces->data());
  if (run.trust_ratios) {
    v.trust_partials = static_cast<kernels::TrustPartial*>(run.trust_partials->data());
    v.trust_ratios = static_cast<double*>(run.trust_ratios->data());
  }
  return v;
}

void ParamStore::make_tables(const Arena& a, ArenaRun& run) const {
  const OwnerScope scope(Owner::optimizer);
  const std::int64_t size = chunk_size();
  struct Chunk {
    std::vector<kernels::Piece> pieces;
    double place = 0;  // relative position of its start in the first piece's parameter
  };
  const std::int64_t first = run.range.first / size;
  std::vector<Chunk> chunks(static_cast<std::size_t>(math::ceil_div(run.range.last, size) - first));
  for (const std::size_t i : a.parameters) {
    const StoredParameter& p = parameters_[i];
    const auto [begin, end] = kept_of(run, p);
    for (std::int64_t at = begin; at < end;) {
      Chunk& chunk = chunks[static_cast<std::size_t>(at / size - first)];
      const std::int64_t stop = std::min(end, (at / size + 1) * size);
      if (chunk.pieces.empty())
        chunk.place = static_cast<double>(at - p.begin) / static_cast<double>(p.tensor.numel());
      chunk.pieces.push_back(
          {at, static_cast<std::int32_t>(stop - at), static_cast<std::int32_t>(i)});
      at = stop;
    }
  }
  if (!run.bounds.empty()) std::erase_if(chunks, [](const Chunk& c) { return c.pieces.empty(); });
  run.chunks = static_cast<std::int64_t>(chunks.size());
  const bool trusts =
      std::visit([](const auto& rule) { return math::has_trust_ratio(rule); }, a.rule);
  // GEMM splits a weight's rows among the CPU's threads. In this order a thread updates the rows
  // whose gradients are in its cache, and later multiplies by these rows.
  if (device_.is_cpu() && !trusts)
    std::stable_sort(chunks.begin(), chunks.end(),
                     [](const Chunk& x, const Chunk& y) { return x.place < y.place; });
  std::vector<kernels::Piece> pieces;
  std::vector<std::int64_t> chunk_pieces{0};
  for (const Chunk& c : chunks) {
    pieces.insert(pieces.end(), c.pieces.begin(), c.pieces.end());
    chunk_pieces.push_back(static_cast<std::int64_t>(pieces.size()));
  }
  run.pieces = upload(pieces, device_);
  run.chunk_pieces = upload(chunk_pieces, device_);
  if (trusts) {
    run.trust_partials = Storage::allocate(
        std::max<std::size_t>(pieces.size(), 1) * sizeof(kernels::TrustPartial), device_);
    run.trust_ratios = Storage::allocate(parameters_.size() * sizeof(double), device_);
  }
}

Ref<Storage> ParamStore::chunk_order(const ArenaRun& run) const {
  if (!device_.is_cpu()) return {};  // they are in the order of the elements
  const OwnerScope owner(Owner::optimizer);
  const auto* const pieces = static_cast<const kernels::Piece*>(run.pieces->data());
  const auto* const pieces_of = static_cast<const std::int64_t*>(run.chunk_pieces->data());
  constexpr std::int64_t kUnknown = -1;
  std::vector<std::int64_t> order(static_cast<std::size_t>(run.chunks), kUnknown), empty;
  for (std::int64_t c = 0; c < run.chunks; ++c)
    if (pieces_of[c] == pieces_of[c + 1])
      empty.push_back(c);
    else
      order[static_cast<std::size_t>(pieces[pieces_of[c]].begin / chunk_size())] = c;
  for (std::int64_t& c : order) {
    if (c != kUnknown) continue;
    c = empty.back();
    empty.pop_back();
  }
  return upload(order, device_);
}

}  // namespace firn::optim
