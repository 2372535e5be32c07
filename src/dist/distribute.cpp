// distribute(): compares the ranks' optimizers, and gives each a way to reach the other ranks.
#include "firn/dist/distribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "autograd/peers.h"
#include "base/check.h"
#include "dist/overlap.h"
#include "dist/step/model.h"
#include "dist/step/overlapped.h"
#include "dist/step/sharded.h"
#include "dist/step/shards.h"
#include "dist/transport.h"
#include "firn/runtime/kernel_support.h"
#include "kernels/copy.h"
#include "kernels/value_hash.h"
#include "optim/impl.h"
#include "optim/report/describe.h"

namespace firn::dist {
namespace {

constexpr const char* kOp = "distribute";

/// Tensors on the CPU travel over the group's host(), others over the group itself.
class GroupPeers final : public autograd::Peers {
 public:
  explicit GroupPeers(Group group, bool overlaps = false)
      : group_(std::move(group)),
        host_(group_.host()),
        failed_(zeros({1}, DType::u8, Device::cpu())),
        all_failed_(zeros({group_.size()}, DType::u8, Device::cpu())),
        overlap_(overlaps ? start_overlap(group_) : nullptr),
        beside_(overlap_ ? std::make_unique<GroupPeers>(overlap_->group()) : nullptr) {}

  int rank() const noexcept override { return group_.rank(); }
  int size() const noexcept override { return group_.size(); }
  void all_gather(const Tensor& part, const Tensor& all) const override {
    group_of(part).all_gather(part, all);
  }
  void all_reduce(const Tensor& x) const override { group_of(x).all_reduce(x); }
  bool overlaps() const noexcept override { return overlap_ != nullptr; }
  void begin_all_reduce(const Tensor& x) const override { overlap_->begin_all_reduce(x); }
  void begin(std::function<void(const Peers&)> calls) const override {
    overlap_->begin(std::move(calls), *beside_);
  }
  void end() const override { overlap_->end(); }
  void reduce_scatter(const Tensor& x, const Tensor& part) const override {
    group_of(x).reduce_scatter(x, part);
  }
  void broadcast(const Tensor& x, int root) const override { group_of(x).broadcast(x, root); }
  void all_to_all(const Tensor& from, const Tensor& to) const override {
    group_of(from).all_to_all(from, to);
  }

  void agree(const char* op, autograd::Outcome mine) const override {
    using autograd::Outcome;
    *failed_.mutable_view().as<Outcome>() = mine;
    host_.all_gather(failed_, all_failed_);
    const auto* const all = all_failed_.view().as<Outcome>();
    const auto first = [&](Outcome outcome) {
      return static_cast<int>(std::find(all, all + size(), outcome) - all);
    };
    if (const int r = first(Outcome::failed); r < size() && mine != Outcome::failed)
      throw RankError(op, rank(), r, fmt::format("rank {} has failed", r), "its error says why");
    if (const int r = first(Outcome::out_of_memory); r < size() && mine == Outcome::done)
      throw OutOfMemory(fmt::format("[{}] rank {} of {} ran out of memory", op, r, size()), 0);
  }

 private:
  const Group& group_of(const Tensor& t) const noexcept {
    return t.device().is_cpu() ? host_ : group_;
  }

  Group group_, host_;
  Tensor failed_, all_failed_;          ///< u8: outcomes of this rank, and of all ranks
  std::unique_ptr<Overlap> overlap_;    ///< null: sums are exchanged before the rank goes on
  std::unique_ptr<GroupPeers> beside_;  ///< peers of the overlapped exchanges; null: none
};

/// Runs `function`, which needs no other rank. If it throws on one rank, all ranks throw.
template <class Fn>
void on_every_rank(const Group& group, const Fn& function) {
  const GroupPeers peers(group.host());
  autograd::on_every_rank(kOp, &peers, function);
}

/// Returns a hash of a tensor's values that does not depend on its strides.
std::int64_t hash_of(const Tensor& t) {
  const Tensor sum = zeros({1}, DType::i64, t.device());
  if (t.numel() > 0) kernels::value_hash(t.view(), sum.mutable_view(), current_stream(t.device()));
  return sum.to_vector<std::int64_t>()[0];
}

/// Returns every rank's `mine`, in the order of ranks.
std::vector<std::int64_t> gather(const Group& group, const std::vector<std::int64_t>& mine) {
  const auto n = static_cast<std::int64_t>(mine.size());
  const Tensor part = zeros({n}, DType::i64, Device::cpu());
  std::memcpy(part.mutable_view().as<std::int64_t>(), mine.data(), part.bytes());
  const Tensor all = zeros({group.size() * n}, DType::i64, Device::cpu());
  group.all_gather(part, all);
  const auto* begin = all.view().as<std::int64_t>();
  return {begin, begin + all.numel()};
}

/// Describes everything that must be equal on all ranks, one item a line.
std::string kind_of(const optim::Optimizer& optimizer, const std::vector<optim::NamedState>& state,
                    const DistributeOptions& options, bool overlap = false) {
  const auto& step = optim::OptimizerAccess::impl(optimizer).options;
  std::string out = fmt::format(
      "{}, {} micro-steps per step, max_skips {}, ZeRO stage {}, {} overlap, {} broadcast",
      optim::describe_settings(optimizer), optimizer.cycle_length(), step.max_skips, options.zero,
      overlap ? "with" : "without", options.broadcast ? "with" : "without");
  // Devices are left out, since each rank has its own. The shape of 8-bit states depends on the
  // weight's memory format, which require_one_format() compares.
  for (const auto& [name, t] : state)
    out += fmt::format("\n{} {} {}", name, t.dtype() == DType::u8 ? Shape{t.numel()} : t.shape(),
                       t.dtype());
  return out;
}

/// Returns every rank's text.
std::vector<std::string> gather(const Group& group, const std::string& mine) {
  const auto lengths = gather(group, std::vector{static_cast<std::int64_t>(mine.size())});
  const std::int64_t most = *std::max_element(lengths.begin(), lengths.end());
  const Tensor part = zeros({most}, DType::u8, Device::cpu());
  std::memcpy(part.mutable_view().as<std::uint8_t>(), mine.data(), mine.size());
  const Tensor all = zeros({group.size() * most}, DType::u8, Device::cpu());
  group.all_gather(part, all);
  std::vector<std::string> out;
  const auto* texts = reinterpret_cast<const char*>(all.view().as<std::uint8_t>());
  for (std::size_t r = 0; r < lengths.size(); ++r)
    out.emplace_back(texts + static_cast<std::int64_t>(r) * most,
                     static_cast<std::size_t>(lengths[r]));
  return out;
}

/// Returns the first line of each text in which the two differ.
std::pair<std::string, std::string> difference(const std::string& a, const std::string& b) {
  const std::size_t at = static_cast<std::size_t>(
      std::mismatch(a.begin(),
                    a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())),
                    b.begin())
          .first -
      a.begin());
  const auto line = [at](const std::string& text) {
    const std::size_t before = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  return {line(a), line(b)};
}

void require_no_cycles(const Group& group, const optim::OptimizerImpl& impl) {
  const std::int64_t mine =
      cycle_is_empty(impl) ? 0 : std::max<std::int64_t>(impl.at.micro_steps, 1);
  const auto steps = gather(group, std::vector{mine});
  for (std::size_t r = 0; r < steps.size(); ++r)
    FIRN_CHECK(steps[r] == 0, kOp, "end it with step() or flush(), or drop it with zero_grad()",
               "a cycle of rank {} is under way: it has {} micro-steps", r, steps[r]);
}

void require_alike(const Group& group, const std::string& kind) {
  const auto kinds = gather(group, kind);
  for (std::size_t r = 1; r < kinds.size(); ++r) {
    if (kinds[r] == kinds[0]) continue;
    const auto [theirs, zeros] = difference(kinds[r], kinds[0]);
    detail::fail(kOp,
                 "make the same model and the same optimizer on every rank, and give the same "
                 "options",
                 "the optimizer of rank {} is not like that of rank 0: \"{}\" and \"{}\"", r,
                 theirs, zeros);
  }
}

/// Throws Error unless each parameter has the same memory format on all ranks, which have equal
/// lists. Sums over ranks, shards and 8-bit states go by the place of an element in memory.
void require_one_format(const Group& group, const optim::ParamStore& store) {
  std::vector<std::int64_t> mine;
  for (const optim::StoredParameter& p : store.places())
    mine.push_back(static_cast<std::int64_t>(format_of(p.tensor.shape(), p.tensor.strides())));
  const auto all = gather(group, mine);
  const auto order = [](std::int64_t format) {
    return static_cast<MemoryFormat>(format) == MemoryFormat::contiguous ? "contiguous"
                                                                         : "channels-last";
  };
  for (std::size_t r = 1; r < static_cast<std::size_t>(group.size()); ++r)
    for (std::size_t i = 0; i < mine.size(); ++i)
      FIRN_CHECK(all[r * mine.size() + i] == all[i], kOp,
                 "call contiguous() or channels_last() on it alike on every rank, before the "
                 "optimizer is made",
                 "{}, is {} on rank {} and {} on rank 0", store.label(i),
                 order(all[r * mine.size() + i]), r, order(all[i]));
}

/// Returns true for state of the optimizer itself: learning rate, loss scale, counters.
bool is_of_optimizer(const optim::NamedState& s) {
  return s.name == "step_state" || s.name == "loss_scale" || s.name == "schedule" ||
         s.name == "cycle";
}

void require_equal(const Group& group, const std::vector<optim::NamedState>& state) {
  std::vector<std::int64_t> mine;
  on_every_rank(group, [&] {
    for (const auto& s : state) mine.push_back(hash_of(s.tensor));
  });
  const auto all = gather(group, mine);
  for (std::size_t r = 1; r < static_cast<std::size_t>(group.size()); ++r)
    for (std::size_t i = 0; i < mine.size(); ++i)
      FIRN_CHECK(all[r * mine.size() + i] == all[i], kOp,
                 is_of_optimizer(state[i])
                     ? "give the optimizers of all ranks the same options, or set {.broadcast = "
                       "true}"
                     : "seed all ranks alike before the model is made, or set {.broadcast = true}",
                 "{} of rank {} has other values than that of rank 0", state[i].name, r);
}

/// Overwrites the tensors with those of rank 0.
void broadcast(const Group& group, const std::vector<optim::NamedState>& state) {
  std::vector<Tensor> flat;
  on_every_rank(group, [&] {
    for (const auto& s : state) flat.push_back(s.tensor.contiguous());
  });
  for (std::size_t i = 0; i < state.size(); ++i) {
    const Tensor& t = state[i].tensor;
    (t.device().is_cpu() ? group.host() : group).broadcast(flat[i]);
    if (t.is_contiguous()) continue;
    kernels::copy(flat[i].view(), t.mutable_view(), current_stream(t.device()));
    t.storage()->bump_version(kOp);
  }
}

void require_one_device(const optim::OptimizerImpl& impl, const Group& group) {
  FIRN_CHECK(impl.store.device() == group.device(), kOp,
             group.device().is_cpu() ? "give nccl_group(group, device) of firn/dist/nccl.h"
                                     : "move the model there, or give the group's host()",
             "the parameters are on {}, and the group exchanges tensors on {}", impl.store.device(),
             group.device());
}

/// Throws Error for an overlap that no group can have.
void check_overlap(const optim::OptimizerImpl& impl, const DistributeOptions& options) {
  if (!options.overlap.value_or(false)) return;
  FIRN_CHECK(impl.options.exact.chunk == 0 || options.zero == 3, kOp,
             "leave DistributeOptions::overlap out",
             "overlap is set, and exact mode adds chunks of {} samples up in its own order",
             impl.options.exact.chunk);
  FIRN_CHECK(options.zero != 2, kOp, "leave DistributeOptions::overlap out",
             "overlap is set, and ZeRO stage 2 exchanges gradients within the pass");
}

/// Returns true if communication is overlapped. Throws Error if overlap is set and impossible.
bool overlaps(const optim::OptimizerImpl& impl, const Group& group,
              const DistributeOptions& options) {
  // With sharded weights, the next ones are gathered ahead of time.
  const bool has_use = options.zero == 3 || (impl.options.exact.chunk == 0 && options.zero < 2);
  const bool can = has_use && can_overlap(group);
  if (!options.overlap) return can && GroupAccess::transport(group)->is_far();
  if (!*options.overlap) return false;
  FIRN_CHECK(can, kOp, "ask MPI_Init_thread() for MPI_THREAD_MULTIPLE",
             "overlap is set, and MPI serves one thread at a time");
  return true;
}

/// Checks that values are equal on all ranks, or overwrites them with those of the first rank.
void make_equal(const Group& group, const std::vector<optim::NamedState>& state,
                const DistributeOptions& options) {
  options.broadcast ? broadcast(group, state) : require_equal(group.host(), state);
}

/// Returns a number for the optimizer that is equal on all ranks.
std::int64_t number_of_all(const Group& group) {
  static std::atomic<std::int64_t> made{0};
  return gather(group, std::vector{++made})[0];
}

/// Makes the first checks of both forms of distribute().
void begin(const optim::OptimizerImpl& impl, const DistributeOptions& options) {
  impl.require_outside_cycle("distribute()");
  impl.require_training_weights();  // the ranks would agree on averages
  FIRN_CHECK(!runtime::planning(), kOp, "call it before the step that is planned",
             "distribute() within a plan, which changes nothing");
  FIRN_CHECK(options.zero >= 0 && options.zero <= 3, kOp, "0, 1, 2 or 3", "ZeRO stage {}",
             options.zero);
  FIRN_CHECK(!impl.store.sharded(), kOp, "make a new optimizer, and load a saved run into it",
             "the optimizer's state is sharded over {} ranks already",
             impl.extension->copies()->size());
}

/// Returns the optimizer's step with the copies of the model on other ranks. `model` has the ranks
/// that have the rest of the model, or is null.
std::unique_ptr<optim::ReplicatedStep> step_with(optim::OptimizerImpl& impl,
                                                 const std::shared_ptr<const GroupPeers>& copies,
                                                 const std::shared_ptr<const GroupPeers>& model,
                                                 int zero, std::int64_t number) {
  std::shared_ptr<optim::ParamStore::Shards> shards;
  if (zero > 0 && copies->size() > 1)
    autograd::on_every_rank(kOp, autograd::StepRanks{copies.get(), model.get()}, [&] {
      shards = impl.store.prepare_shards(
          optim::plan_shards(impl.store, zero, copies->rank(), copies->size()));
    });
  if (shards) impl.store.shard(*shards);
  shards.reset();
  if (impl.store.gradients_sharded())
    return std::make_unique<optim::ShardedStep>(impl, copies, number);
  if (copies->overlaps()) return std::make_unique<optim::OverlappedStep>(impl, copies, number);
  return std::make_unique<optim::ReplicatedStep>(impl, copies, number);
}

void set_ranks(optim::OptimizerImpl& impl, std::unique_ptr<optim::StepExtension> ranks) {
  impl.set_ranks(std::move(ranks));
  if (impl.store.gradients_sharded() && impl.options.keep_accumulator)
    impl.copy = optim::reserve_copy(impl);
}

// ---- Ranks that have the rest of the model ----

/// Throws Error if a rule needs the whole of a sharded parameter: its norm, or its rows and
/// columns.
void require_elementwise(const optim::OptimizerImpl& impl,
                         const std::vector<std::uint8_t>& sharded) {
  for (const kernels::OptimizerArena& a : impl.store.arenas()) {
    const bool whole = std::holds_alternative<math::Replace>(a.rule) ||
                       std::visit([](const auto& r) { return math::has_trust_ratio(r); }, a.rule);
    for (std::int64_t i = 0; whole && i < a.chunk_pieces[a.chunks]; ++i) {
      const auto p = static_cast<std::size_t>(a.pieces[i].parameter);
      FIRN_CHECK(!sharded[p], kOp, "train it with AdamW, Adam, SGD or another elementwise rule",
                 "{} is sharded over ranks, and the rule of {} needs the whole parameter",
                 impl.store.label(p), impl.store.op());
    }
  }
}

/// Returns the index in a state entry's name, "parameters.<i>.weight", or -1 if it has none.
std::int64_t parameter_of(const std::string& name) {
  constexpr std::string_view kPrefix = "parameters.";
  return name.starts_with(kPrefix) ? std::stoll(name.substr(kPrefix.size())) : -1;
}

/// Returns the entries for which keep(entry) holds.
template <class Keep>
std::vector<optim::NamedState> some_of(const std::vector<optim::NamedState>& state,
                                       const Keep& keep) {
  std::vector<optim::NamedState> out;
  for (const auto& s : state)
    if (keep(s)) out.push_back(s);
  return out;
}

/// Returns kind_of() with a line for each parameter that says if it is sharded.
std::string kind_of_part(const optim::Optimizer& optimizer,
                         const std::vector<optim::NamedState>& state,
                         const std::vector<std::uint8_t>& sharded,
                         const DistributeOptions& options) {
  std::string out = kind_of(optimizer, state, options);
  for (std::size_t i = 0; i < sharded.size(); ++i)
    out += fmt::format("\nparameter {} is {}", i, sharded[i] ? "sharded" : "whole");
  return out;
}

/// Throws Error for options that a mesh with a sharded model does not support.
void check_mesh(const optim::OptimizerImpl& impl, const Mesh& mesh,
                const DistributeOptions& options) {
  FIRN_CHECK(impl.options.exact.chunk == 0, kOp, "leave StepOptions::exact out",
             "exact mode works with copies of the model, and a copy has {} ranks",
             mesh.copy().size());
  FIRN_CHECK(!options.overlap.value_or(false), kOp, "leave DistributeOptions::overlap out",
             "overlap is set, and {} ranks share a model, which exchange sums within the pass",
             mesh.copy().size());
  FIRN_CHECK(options.zero < 2 || mesh.pp().size() == 1, kOp, "set DistributeOptions::zero to 1",
             "ZeRO stage {} exchanges gradients in each micro-step, and a pipeline of {} stages "
             "makes other micro-steps on other copies",
             options.zero, mesh.pp().size());
}

/// Distributes over copies of the whole model. require_whole() throws if this rank has less.
void distribute_copies(optim::Optimizer& optimizer, const Group& group,
                       const DistributeOptions& options,
                       const std::function<void()>& require_whole) {
  auto& impl = optim::OptimizerAccess::impl(optimizer);
  std::vector<optim::NamedState> state;
  std::string kind;
  bool beside = false;
  const auto prepare = [&] {
    require_whole();
    begin(impl, options);
    check_overlap(impl, options);
    if (group.size() == 1) return;
    require_one_device(impl, group);
    state = optimizer.state();
    beside = overlaps(impl, group, options);
    kind = kind_of(optimizer, state, options, beside);
  };
  if (group.size() == 1) {
    prepare();
    return impl.set_ranks(nullptr);
  }
  on_every_rank(group, prepare);
  const Group host = group.host();
  require_no_cycles(host, impl);
  require_alike(host, kind);
  require_one_format(host, impl.store);
  make_equal(group, state, options);
  set_ranks(impl, step_with(impl, std::make_shared<GroupPeers>(group, beside), nullptr,
                            options.zero, number_of_all(host)));
}

/// Distributes over copies of a model, of which each rank has a shard or a stage.
void distribute_parts(optim::Optimizer& optimizer, const Mesh& mesh,
                      const DistributeOptions& options) {
  auto& impl = optim::OptimizerAccess::impl(optimizer);
  std::vector<optim::NamedState> state;
  std::vector<std::uint8_t> sharded;
  std::shared_ptr<const GroupPeers> copies, rest;
  on_every_rank(mesh.all(), [&] {
    begin(impl, options);
    require_one_device(impl, mesh.all());
    check_mesh(impl, mesh, options);
    state = optimizer.state();
    for (const Tensor& p : optimizer.parameters())
      sharded.push_back(mesh.tp().size() > 1 && is_sharded(p));
    require_elementwise(impl, sharded);
    copies = std::make_shared<const GroupPeers>(mesh.dp());
    rest = std::make_shared<const GroupPeers>(mesh.copy());
  });
  const auto is_whole = [&](const optim::NamedState& s) {
    const std::int64_t p = parameter_of(s.name);
    return p < 0 || !sharded[static_cast<std::size_t>(p)];
  };
  const Group host = mesh.all().host();
  require_no_cycles(host, impl);
  // Stages have different parameters; shards and copies of a stage have equal lists.
  require_alike(host, kind_of(optimizer, {}, options));
  for (const Group& same : {mesh.dp(), mesh.tp()})
    on_every_rank(mesh.all(), [&] {  // throws on all ranks of `same` or on none
      require_alike(same.host(), kind_of_part(optimizer, state, sharded, options));
      require_one_format(same.host(), impl.store);
    });
  make_equal(mesh.pp(), some_of(state, is_of_optimizer), options);
  make_equal(mesh.tp(), some_of(state, is_whole), options);
  make_equal(mesh.dp(), state, options);
  optim::ModelRanks model(rest, mesh.tp().size(), std::move(sharded), impl.store.device());
  auto step = step_with(impl, copies, rest, options.zero, number_of_all(host));
  set_ranks(impl, std::make_unique<optim::ModelStep>(impl, std::move(step), std::move(model)));
}

}  // namespace

void distribute(optim::Optimizer& optimizer, const Group& group,
                const DistributeOptions& options) try {
  distribute_copies(optimizer, group, options, [&] {
    const auto& store = optim::OptimizerAccess::impl(optimizer).store;
    const std::vector<Tensor> parameters = optimizer.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      FIRN_CHECK(!is_sharded(parameters[i]), kOp, "give the mesh: distribute(optimizer, mesh)",
                 "this rank has a part of {}, and a group does not say who has the rest",
                 store.label(i));
  });
}
FIRN_OUT_OF_MEMORY("distribute")

void distribute(optim::Optimizer& optimizer, const Mesh& mesh,
                const DistributeOptions& options) try {
  if (mesh.copy().size() == 1) return distribute_copies(optimizer, mesh.dp(), options, [] {});
  distribute_parts(optimizer, mesh, options);
}
FIRN_OUT_OF_MEMORY("distribute")

void mark_sharded(const Tensor& parameter) {
  require_defined("mark_sharded", parameter);
  if (runtime::planning() && !parameter.storage()->is_of_plan())
    runtime::at_dry_end(
        &parameter.impl()->sharded,
        [parameter, before = parameter.impl()->sharded] { parameter.impl()->sharded = before; });
  parameter.impl()->sharded = true;
}

bool is_sharded(const Tensor& parameter) {
  require_defined("is_sharded", parameter);
  return parameter.impl()->sharded;
}

}  // namespace firn::dist
