// distribute(): compares the ranks' optimizers, and gives each a way to reach the other ranks.
#include "firn/dist/distribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "autograd/peers.h"
#include "base/check.h"
#include "dist/alike.h"
#include "dist/overlap.h"
#include "dist/step/model.h"
#include "dist/step/overlapped.h"
#include "dist/step/sharded.h"
#include "dist/step/shards.h"
#include "dist/transport.h"
#include "firn/runtime/kernel_support.h"
#include "kernels/copy.h"
#include "optim/impl.h"
#include "optim/report/describe.h"

namespace firn::dist {
namespace {

constexpr const char* kOp = "distribute";

/// Tensors on the CPU travel over the group's host(), others over the group itself.
class GroupPeers final : public autograd::Peers {
 public:
  explicit GroupPeers(Group group, std::unique_ptr<Overlap> overlap = nullptr)
      : group_(std::move(group)),
        host_(group_.host()),
        failed_(zeros({1}, DType::u8, Device::cpu())),
        all_failed_(zeros({group_.size()}, DType::u8, Device::cpu())),
        overlap_(std::move(overlap)),
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
    require_done(op, rank(), size(), first(Outcome::failed), first(Outcome::out_of_memory), mine);
  }
  void give_up(std::string_view why) const noexcept override {
    for (const Group* group : {&group_, &host_}) GroupAccess::transport(*group)->give_up(why);
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
  const Group hosts = group.host();
  on_every_rank(*GroupAccess::transport(hosts), kOp, function);
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
  // weight's memory format, which formats_of() has.
  for (const auto& [name, t] : state)
    out += fmt::format("\n{} {} {}", name, t.dtype() == DType::u8 ? Shape{t.numel()} : t.shape(),
                       t.dtype());
  return out;
}

/// Returns the number of micro-steps of the cycle under way, at least 1, or 0 if there is none.
std::int64_t micro_steps_of(const optim::OptimizerImpl& impl) {
  return cycle_is_empty(impl) ? 0 : std::max<std::int64_t>(impl.at.micro_steps, 1);
}

/// Compares the optimizers of the ranks of `group`, of which facts() describes this rank's one. If
/// this throws on any rank of `all`, it throws on all of these. Returns the number of the group's
/// first optimizer.
template <class Facts>
std::int64_t compare(const Group& all, const Group& group, const optim::OptimizerImpl& impl,
                     const Facts& facts) {
  std::optional<Comparison> comparison;
  on_every_rank(all, [&] { comparison.emplace(group.host(), facts()); });
  comparison->exchange_sizes();
  on_every_rank(all, [&] { comparison->reserve(); });
  comparison->exchange();
  on_every_rank(all, [&] { comparison->require_alike(impl.store); });
  return comparison->number();
}

/// Returns the number of this rank's next optimizer.
std::int64_t next_number() {
  static std::atomic<std::int64_t> made{0};
  return ++made;
}

/// A tensor of the state that becomes that of rank 0. `flat` is contiguous, and is the tensor
/// itself if that is.
struct Received {
  Tensor tensor, flat;
  bool of_optimizer, whole;
};

/// Overwrites the tensors for which which(tensor) holds with those of rank 0.
template <class Which>
void broadcast(const Group& group, const std::vector<Received>& state, const Which& which) {
  const Group hosts = group.host();
  for (const Received& r : state)
    if (which(r)) (r.flat.device().is_cpu() ? hosts : group).broadcast(r.flat);
}

/// Ends broadcasts.
void store(const std::vector<Received>& state) {
  for (const auto& [tensor, flat, of_optimizer, whole] : state) {
    if (tensor.is_contiguous()) continue;
    kernels::copy(flat.view(), tensor.mutable_view(), current_stream(tensor.device()));
    tensor.storage()->bump_version(kOp);
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

/// The step with other ranks. It takes effect by commit(); until then the destructor leaves the
/// optimizer as it was.
class NewStep {
 public:
  explicit NewStep(optim::OptimizerImpl& impl) noexcept : impl_(impl) {}
  ~NewStep() {
    step_.reset();
    if (shards_) impl_.store.swap_shards(*shards_);
  }
  NewStep(const NewStep&) = delete;
  NewStep& operator=(const NewStep&) = delete;

  /// Allocates all that the step with these copies of the model needs. Needs no other rank.
  void make(std::shared_ptr<const GroupPeers> copies, int zero, std::int64_t number) {
    optim::ParamStore& store = impl_.store;
    if (zero > 0 && copies->size() > 1) {
      shards_ =
          store.prepare_shards(optim::plan_shards(store, zero, copies->rank(), copies->size()));
      store.swap_shards(*shards_);
    }
    std::unique_ptr<optim::ReplicatedStep> step;
    if (store.gradients_sharded())
      step = std::make_unique<optim::ShardedStep>(impl_, std::move(copies), number);
    else if (copies->overlaps())
      step = std::make_unique<optim::OverlappedStep>(impl_, std::move(copies), number);
    else
      step = std::make_unique<optim::ReplicatedStep>(impl_, std::move(copies), number);
    copies_ = step.get();
    step_ = std::move(step);
    if (store.gradients_sharded() && impl_.options.keep_accumulator)
      copy_ = optim::reserve_copy(impl_);
  }
  /// Adds the ranks that have the rest of the model, after make().
  void add(optim::ModelRanks model) {
    std::unique_ptr<optim::ReplicatedStep> copies(copies_);
    step_.release();  // NOLINT: `copies` owns it
    step_ = std::make_unique<optim::ModelStep>(impl_, std::move(copies), std::move(model));
  }
  void commit() {
    if (shards_) impl_.store.fill_shards(*shards_);
    shards_.reset();
    impl_.set_ranks(std::move(step_));
    if (copy_) impl_.copy = *std::move(copy_);
    copies_->begin();
  }

 private:
  optim::OptimizerImpl& impl_;
  std::shared_ptr<optim::ParamStore::Shards> shards_;  ///< the old arenas; null: nothing is sharded
  std::unique_ptr<optim::StepExtension> step_;
  optim::ReplicatedStep* copies_ = nullptr;  ///< part of step_
  std::optional<optim::CycleCopy> copy_;
};

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

/// Returns the entries for which which(entry) holds.
template <class Which>
std::vector<optim::NamedState> some_of(const std::vector<optim::NamedState>& state,
                                       const Which& which) {
  std::vector<optim::NamedState> out;
  for (const auto& s : state)
    if (which(s)) out.push_back(s);
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
template <class RequireWhole>
void distribute_copies(optim::Optimizer& optimizer, const Group& group,
                       const DistributeOptions& options, const RequireWhole& require_whole) {
  auto& impl = optim::OptimizerAccess::impl(optimizer);
  const auto check = [&] {
    require_whole();
    begin(impl, options);
    check_overlap(impl, options);
  };
  if (group.size() == 1) {
    check();
    return impl.set_ranks(nullptr);
  }
  std::vector<Received> received;
  bool beside = false;
  const std::int64_t number = compare(group, group, impl, [&] {
    check();
    require_one_device(impl, group);
    std::vector<optim::NamedState> state = optimizer.state();
    beside = overlaps(impl, group, options);
    OptimizerFacts facts{.micro_steps = micro_steps_of(impl),
                         .number = next_number(),
                         .kind = kind_of(optimizer, state, options, beside),
                         .formats = formats_of(impl.store)};
    if (options.broadcast)
      for (const auto& s : state) received.push_back({s.tensor, s.tensor.contiguous(), true, true});
    else
      facts.state = std::move(state);
    return facts;
  });
  const Group second = beside ? group_to_overlap(group) : group;
  NewStep step(impl);
  on_every_rank(group, [&] {
    step.make(std::make_shared<GroupPeers>(group, beside ? start_overlap(second) : nullptr),
              options.zero, number);
  });
  broadcast(group, received, [](const Received&) { return true; });
  store(received);
  step.commit();
}

/// Distributes over copies of a model, of which each rank has a shard or a stage.
void distribute_parts(optim::Optimizer& optimizer, const Mesh& mesh,
                      const DistributeOptions& options) {
  auto& impl = optim::OptimizerAccess::impl(optimizer);
  std::vector<optim::NamedState> state;
  std::vector<std::uint8_t> sharded;
  std::vector<Received> received;
  const auto is_whole = [&](const optim::NamedState& s) {
    const std::int64_t p = parameter_of(s.name);
    return p < 0 || !sharded[static_cast<std::size_t>(p)];
  };
  // Stages have different parameters; shards and copies of a stage have equal lists.
  const std::int64_t number = compare(mesh.all(), mesh.all(), impl, [&] {
    begin(impl, options);
    require_one_device(impl, mesh.all());
    check_mesh(impl, mesh, options);
    state = optimizer.state();
    for (const Tensor& p : optimizer.parameters())
      sharded.push_back(mesh.tp().size() > 1 && is_sharded(p));
    require_elementwise(impl, sharded);
    if (options.broadcast)
      for (const auto& s : state)
        received.push_back({s.tensor, s.tensor.contiguous(), is_of_optimizer(s), is_whole(s)});
    return OptimizerFacts{.micro_steps = micro_steps_of(impl),
                          .number = next_number(),
                          .kind = kind_of(optimizer, {}, options)};
  });
  const auto compare_in = [&](const Group& group, bool parameters, const auto& which) {
    compare(mesh.all(), group, impl, [&] {
      OptimizerFacts facts;
      if (parameters) {
        facts.kind = kind_of_part(optimizer, state, sharded, options);
        facts.formats = formats_of(impl.store);
      }
      if (!options.broadcast) facts.state = some_of(state, which);
      return facts;
    });
  };
  compare_in(mesh.pp(), false, is_of_optimizer);
  compare_in(mesh.tp(), true, is_whole);
  compare_in(mesh.dp(), true, [](const auto&) { return true; });
  NewStep step(impl);
  on_every_rank(mesh.all(), [&] {
    step.make(std::make_shared<GroupPeers>(mesh.dp()), options.zero, number);
    step.add({std::make_shared<GroupPeers>(mesh.copy()), mesh.tp().size(), std::move(sharded),
              impl.store.device()});
  });
  broadcast(mesh.pp(), received, [](const Received& r) { return r.of_optimizer; });
  broadcast(mesh.tp(), received, [](const Received& r) { return r.whole; });
  broadcast(mesh.dp(), received, [](const Received&) { return true; });
  store(received);
  step.commit();
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
