// Where an optimizer keeps parameters, gradients and state: flat arenas, one per group and dtype.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "autograd/node.h"
#include "autograd/peers.h"
#include "autograd/weight_modes.h"
#include "base/share.h"
#include "firn/memory.h"
#include "firn/optim/param_list.h"
#include "firn/optim/step_options.h"
#include "kernels/optim.h"
#include "optim/store/gradient_ledger.h"
#include "optim/store/state_entry.h"
#include "optim/store/whole.h"

namespace firn::optim {

/// A group with its rule, as an optimizer's constructor has worked it out. With `fits`, the
/// parameters for which it is false have the rule `other`. With `whole`, `rule` is math::Replace.
struct GroupSetup {
  ParamList parameters;
  kernels::UpdateRule rule;
  double lr_scale = 1;
  kernels::UpdateRule other = {};
  std::function<bool(const NamedTensor&)> fits = {};
  WholeRulePtr whole = {};
  double other_lr_scale = 1;    ///< of `other`, beside lr_scale
  std::string other_name = {};  ///< of `other`, if that is an optimizer by itself
};

/// Whether rules compute in f32 for one of the parameters: all but those of f64.
bool any_in_f32(const ParamList& parameters);
/// Throws Error if the number is 0 or infinite in f32, where subnormal numbers are 0, though it is
/// not itself.
void require_f32(const std::string& op, const char* name, double value);
/// Throws Error if f32 cannot express a number of the group's rules, and one of its parameters
/// needs it.
void require_options(const std::string& op, const GroupSetup& group);

struct StoreOptions {
  bool masters = true;   ///< f16 and bf16 parameters get f32 masters
  bool average = false;  ///< all get a moving average
  StateMemory memory = StateMemory::device;
  bool watched = false;  ///< the host looks at outcomes without waiting: see last_seen()
  Tensor scaler;         ///< memory of the loss scale; undefined: its own
  const autograd::Cycle* cycle = nullptr;  ///< the one that the parameters collect for
};

/// Whether the rule keeps its states in 8 bits.
inline bool is_eight_bit(const kernels::UpdateRule& rule) {
  return std::visit([](const auto& r) { return math::kIsEightBit<std::decay_t<decltype(r)>>; },
                    rule);
}

inline bool is_schedule_free(const kernels::UpdateRule& rule) {
  return std::holds_alternative<math::ScheduleFree>(rule);
}

/// Owns the arenas and the device memory of the step. In an arena, element i of weights, gradients
/// and states belong together. Each parameter begins at a multiple of 64 bytes and is followed by
/// zeros up to the next. A parameter that appears several times in the list (tied weights) is
/// stored once.
class ParamStore {
 public:
  /// Checks everything, then allocates everything, then moves the parameters in: if it throws, they
  /// are as they were. `op` is the optimizer's name, for errors.
  ParamStore(std::string op, const std::vector<GroupSetup>& groups, const StoreOptions& options);
  /// The leaves let go of the arenas; the parameters keep their values.
  ~ParamStore();
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  const std::string& op() const noexcept { return op_; }
  Device device() const noexcept { return device_; }
  Stream stream() const noexcept { return current_stream(device_); }
  std::span<const kernels::OptimizerArena> arenas() const noexcept { return views_; }
  /// For the update: the part that this rank makes, if states are divided over ranks. It then is
  /// the only one that has states.
  std::span<const kernels::OptimizerArena> update_arenas() const noexcept {
    return divided() ? update_views_ : views_;
  }
  kernels::StepMemory memory() const;
  const Tensor& step_state() const noexcept { return step_state_; }
  const Tensor& scaler() const noexcept { return scaler_; }
  GradientLedger& ledger() noexcept { return ledger_; }
  const GradientLedger& ledger() const noexcept { return ledger_; }
  /// The parameters whose rule is not elementwise.
  const WholeUpdates& whole() const noexcept { return whole_; }

  // ---- The weights ----

  /// Throws Error if a parameter was moved to other memory since the optimizer was made, or has a
  /// gradient that the ledger has not noted.
  void check_parameters() const;
  /// Tells autograd that the weights whose gradient was noted were written.
  void bump_versions() noexcept;
  /// The same for all weights; `what` has written them.
  void bump_all_versions(const char* what) noexcept;
  /// Notices 16-bit weights that were written from outside: each one that is not its master rounded
  /// becomes the master.
  void adopt_weights();
  /// The weights of now are those of the masters: the next adopt_weights() finds nothing.
  void mark_adopted() noexcept;
  /// The same of parameter i.
  void mark_adopted(std::size_t i) noexcept;
  /// The next adopt_weights() looks at all weights.
  void forget_adopted() noexcept;
  /// What adopt_weights() knows of the weights; for a plan, which takes nothing over.
  std::vector<std::uint32_t> adopted() const;
  void put_back_adopted(const std::vector<std::uint32_t>& versions) noexcept;
  /// Copies the weights to the masters and the averages.
  void refresh_masters();
  /// The weights are those of training from now on, if they are not.
  void show_training_weights();
  /// While it is on, the weights are neither those of training nor averages (AveragedWeights), and
  /// modules cannot change them.
  void keep_shown(bool on) noexcept;

  // ---- What it shows (contents.cpp) ----

  /// The state as it is in device memory. Waits for the device.
  math::StepState read_state() const;
  /// The outcome of the last cycle that the host can see without waiting. On a device it may be an
  /// earlier one. Only of a store that is watched.
  math::StepOutcome last_seen() const;
  /// A state was copied in that ends with this one: last_seen() is no other one's.
  void note_seen(const math::StepOutcome& last) noexcept;

  /// What the state says in total, on the host. Waits for the device.
  struct HostState {
    std::vector<std::int64_t> update_counts;
    std::vector<std::uint8_t> touched;
    math::ScheduleTable schedule;
    math::ScalerState scaler;
    math::StepState step;
  };
  HostState host_state() const;
  /// Changes if one of the tensors behind this is written from outside.
  std::uint32_t version_of_state() const noexcept;

  std::vector<Tensor> parameters() const;
  /// "Muon for 4 of 6 parameters, AdamW for 2"; empty if one name is all.
  std::string rules_in_words() const;
  /// "beta1 0.9, beta2 0.999, eps 1e-08, weight_decay 0.01": the numbers of the rules, in the order
  /// of the arenas, those that are equal to the last ones left out. options.cpp
  std::string options_in_words() const;
  /// What errors call it: 'parameter 3, "encoder.weight", [4, 2] f32 cpu'.
  std::string label(std::size_t i) const;
  /// The labels of all, or of the first ones and how many more there are.
  std::string names() const;
  /// The labels of parameters that have received no gradient and of which only the optimizer has a
  /// handle, as names() lists them; empty if there are none.
  std::string unheld() const;
  /// For reports: '3, "encoder.weight"', or '3'.
  const std::shared_ptr<const std::vector<std::string>>& short_names() const noexcept {
    return short_names_;
  }
  /// Empty if no averages are kept. If they are divided over `peers`, copies: a call of all ranks.
  std::vector<Tensor> averages(const autograd::Peers* peers) const;
  /// The accumulated gradient of parameter i, or undefined if the cycle has not reached it. Not for
  /// gradients that are divided.
  Tensor gradient(std::size_t i) const;
  /// The gradients, arena by arena: flat, and shared. Of divided ones the part that is kept here.
  std::vector<Tensor> gradients() const;
  /// Gradients of parameters that have received none are zeros.
  void zero_missing_gradients();
  /// Backward passes add gradients to these arenas from now on, and no longer to the optimizer's.
  void collect_into(std::span<const Tensor> arenas);
  /// To the optimizer's again.
  void collect_here() noexcept;
  /// The same as zero_missing_gradients(), of other arenas.
  void zero_missing_in(std::span<const Tensor> arenas) const;
  /// Copies of the gradients, arena by arena, in `memory` if it is given; undefined for an arena in
  /// which no parameter has received one.
  std::vector<Tensor> copy_gradients(const std::vector<Tensor>* memory = nullptr) const;
  /// Memory for such copies, one for every arena.
  std::vector<Tensor> reserve_gradients() const;
  /// [rows, elements] for every arena, of whole gradients.
  std::vector<Tensor> reserve_rows(std::int64_t rows) const;
  /// The part of parameter i in whole arenas.
  Tensor gradient_in(std::span<const Tensor> arenas, std::size_t i) const;
  /// The same of `rows`, which has for every arena a tensor [k, elements]: [k, ...].
  Tensor rows_in(std::span<const Tensor> rows, std::size_t i) const;
  /// `value`, a gradient of parameter i, is stored in copies as reserve_gradients() makes them, as
  /// far as they have it.
  void store_gradient(const Tensor& value, std::span<const Tensor> arenas, std::size_t i) const;
  /// Such copies become the gradients. Which parameters have received one is the ledger's matter.
  void put_back_gradients(const std::vector<Tensor>& copies) const;
  /// See Optimizer::state(). With `zero_missing`, gradients of parameters that have received none
  /// are zero in it. What is divided has parts. Where its elements are not in row-major order, rank
  /// 0 of `peers` receives the whole instead; all ranks make the call.
  std::vector<StateEntry> state(const autograd::Peers* peers, bool zero_missing = true);

  // ---- State that is divided over ranks (division.cpp) ----

  bool divided() const noexcept { return !update_views_.empty(); }
  /// Whether gradients are divided, too: outside of backward passes a rank has its part alone.
  bool gradients_divided() const noexcept { return !buckets_.empty(); }
  /// Whether weights are divided, too: parameters have memory while it is lent (ranks/lent.h).
  bool weights_divided() const noexcept { return weights_divided_; }
  struct Division;
  /// From all that this rank has, what it is to keep if state is divided over so many, and from
  /// stage 2 on gradients, in stage 3 weights. Throws Error if that cannot be, and changes nothing.
  std::shared_ptr<Division> prepare_division(int stage, int rank, int ranks) const;
  /// The rest goes.
  void divide(Division& division) noexcept;
  /// Each rank has updated its part of the weights: all receive all.
  void gather_weights(const autograd::Peers& peers) const;
  /// Each rank has its part of a flat tensor, between its bounds: all receive all.
  static void gather_bounds(const Tensor& flat, const std::vector<std::int64_t>& bounds,
                            const autograd::Peers& peers);

  // ---- Gradients that are divided (gradient_parts.cpp) ----

  /// Parameters that follow one another in an arena, and whose gradients are exchanged at once.
  struct Bucket {
    std::size_t arena = 0;
    Share range;  ///< elements of the arena
    std::vector<std::size_t> parameters;
    std::vector<std::int64_t> bounds;  ///< of the ranks' parts, from the bucket's begin on
    Share kept;                        ///< this rank's part in the kept tensors of the arena
    /// Parts of equal length from the begin on, as collectives need them; 0: they are unequal. The
    /// last rank also has what is left over.
    std::int64_t equal_part = 0;
    std::int64_t elements() const noexcept { return range.size(); }
  };
  /// In the order in which backward passes finish them: parameters are used in the order given.
  const std::vector<Bucket>& buckets() const noexcept { return buckets_; }
  /// The same of gradients that are not divided, without bounds.
  std::vector<Bucket> gradient_pieces() const { return pieces_of(arenas_); }
  /// The whole gradient of such a piece.
  Tensor gradient_of(const Bucket& piece) const;
  autograd::Leaf& leaf(std::size_t i) const noexcept { return *parameters_[i].leaf; }
  /// [elements] of zeros for the gradients of a bucket.
  Tensor bucket_memory(const Bucket& bucket) const;
  /// The gradient of a parameter in it.
  Tensor gradient_in(const Bucket& bucket, const Tensor& memory, std::size_t i) const;
  /// This rank's part of a bucket in `parts`, one tensor for each arena as gradients() gives them.
  static Tensor kept_in(const Bucket& bucket, std::span<const Tensor> parts);
  // The same of weights, if they are divided.
  Storage& weight(std::size_t i) const noexcept { return *parameters_[i].storage; }
  /// Bytes from the begin of its bucket to the weight of a parameter.
  std::size_t weight_offset(const Bucket& bucket, std::size_t i) const noexcept;
  /// [elements] for the weights of a bucket, and what this rank keeps of them.
  Tensor weight_memory(const Bucket& bucket) const;
  Tensor kept_weight(const Bucket& bucket) const;

  /// Whole arenas from `parts` of all ranks: a call of all. Empty on others than rank 0.
  std::vector<Tensor> gather_parts(std::span<const Tensor> parts,
                                   const autograd::Peers& peers) const;
  /// What optim_norm() would find out of the whole gradient, to the bit: a call of all ranks.
  math::GradientSummary summary_in_order(const math::StepPolicy& policy,
                                         const autograd::Peers& peers) const;

 private:
  std::string names_of(const std::vector<std::size_t>& which) const;

  struct Parameter {
    Tensor tensor;
    std::string name;  ///< empty: not known
    Ref<autograd::Leaf> leaf;
    Ref<Storage> storage;  ///< where it was put
    std::size_t arena = 0;
    std::int64_t begin = 0;     ///< first element in its arena
    Tensor gradient;            ///< its part of the arena
    std::uint32_t version = 0;  ///< of the weight, when the master was last known to follow it
  };
  /// Parameters that follow one another in an arena. Ranks divide each run by itself.
  struct Run {
    Share range;                       ///< elements of the arena
    std::vector<std::int64_t> bounds;  ///< between the ranks' parts; empty: nothing is divided
    /// Elements whose master, average and states are here: all, or this rank's part.
    Share kept;
    std::int64_t at = 0;                        ///< where these begin in master, average and states
    std::int64_t chunks = 0;                    ///< in the tables, which are of what is kept
    Ref<Storage> chunk_pieces, pieces;          ///< the tables of kernels/optim.h
    Ref<Storage> trust_partials, trust_ratios;  ///< only for rules with a trust ratio

    /// Where an element that is kept is in master, average and states.
    std::int64_t place_of(std::int64_t element) const noexcept { return at + element - kept.first; }
  };
  struct Arena {
    Arena(DType t, const GroupSetup& g, bool is_first)
        : dtype(t),
          rule(is_first ? g.rule : g.other),
          whole(is_first ? g.whole : nullptr),
          of_first_rule(is_first),
          lr_scale(is_first ? g.lr_scale : g.lr_scale * g.other_lr_scale) {}
    DType dtype;
    kernels::UpdateRule rule;
    WholeRulePtr whole;  ///< null: the rule is elementwise
    bool of_first_rule;  ///< of its group's two
    double lr_scale;
    std::int64_t elements = 0;
    std::vector<std::size_t> parameters;
    Tensor weight, grad;
    /// At least one, from element 0 to the last one.
    std::vector<Run> runs;
    Tensor master, ema;
    std::vector<Tensor> states;
    std::vector<Tensor> scales;  ///< of the states, if they are in 8 bits
  };

  /// The two sets of values that the leaves of schedule-free arenas show (shown_weights.cpp).
  class Modes;

  void collect(const std::vector<GroupSetup>& groups);
  void check(const NamedTensor& parameter, std::size_t index) const;
  void move_in(Parameter& p);
  void let_go() noexcept;
  Tensor slice(const Tensor& arena, const Parameter& p) const;

  // layout.cpp
  void lay_out();
  void allocate_arenas();
  void allocate_step();
  void allocate(Arena& arena);
  /// Elements at whose multiples parameters begin.
  static std::int64_t unit_of(const Arena& arena) noexcept;
  /// [elements] of zeros, where StoreOptions::memory says.
  Tensor state_memory(Owner owner, DType dtype, std::int64_t elements) const;
  WholeUpdates set_up_whole(const std::vector<Arena>& arenas,
                            const std::vector<kernels::OptimizerArena>& views) const;
  /// Makes the tables of the elements that are kept.
  void make_tables(const Arena& arena, Run& run) const;
  /// OptimizerArena::chunk_order of a whole arena's run; null if it is the order of the elements.
  Ref<Storage> chunk_order(const Run& run) const;
  /// `index` is the arena's, and `partials` is memory for the norms of the run's chunks.
  kernels::OptimizerArena view_of(const Arena& arena, const Run& run, std::size_t index,
                                  kernels::NormPartial* partials) const;
  /// The runs of all arenas, one after another. Their partials are in `partials`.
  std::vector<kernels::OptimizerArena> views_of(const std::vector<Arena>& arenas,
                                                const Storage& partials) const;
  Ref<Storage> reserve_partials(const std::vector<Arena>& arenas) const;
  /// Elements of a chunk (kernels/optim.h).
  std::int64_t chunk_size() const noexcept;

  // division.cpp
  /// Whether the rule works element by element, so that a rank may have a part of a parameter.
  static bool is_elementwise(const Arena& arena) noexcept;
  /// What ranks divide: arenas, or from stage 2 on buckets where rules work by elements.
  std::vector<Run> runs_of(const Arena& arena, int stage, int rank, int ranks) const;
  /// Bounds between this many ranks.
  std::vector<std::int64_t> bounds_of(const Arena& arena, const Share& range, int ranks) const;
  std::vector<Bucket> pieces_of(const std::vector<Arena>& arenas) const;
  std::vector<Bucket> buckets_of(const std::vector<Arena>& arenas, int rank) const;
  /// Parameters that follow one another, up to the size of a bucket.
  std::vector<Share> bucket_ranges(const Arena& arena) const;
  static const Run& run_of(const Arena& arena, const Parameter& p) noexcept;
  /// The rank whose part the parameter begins in.
  static int owner_of(const Arena& arena, const Parameter& p) noexcept;
  bool is_here(const Arena& arena, const Parameter& p) const noexcept {
    const Run& run = run_of(arena, p);
    return p.begin >= run.kept.first && (run.bounds.empty() || p.begin < run.kept.last);
  }
  /// The elements of p that are kept, in the arena.
  static Share kept_of(const Run& run, const Parameter& p) noexcept;
  /// Those in the arena's weights, and in a tensor of what is kept.
  static Tensor weight_part(const Arena& arena, const Run& run, const Share& here) {
    if (arena.weight.numel() < arena.elements) return kept_part(arena.weight, run, here);
    return arena.weight.as_strided({here.size()}, {1}, here.first);
  }
  /// Where the gradient of a parameter that is here begins.
  static std::int64_t grad_place(const Arena& arena, const Parameter& p) noexcept {
    return arena.grad.numel() < arena.elements ? run_of(arena, p).place_of(p.begin) : p.begin;
  }
  static Tensor kept_part(const Tensor& kept, const Run& run, const Share& here) {
    return kept.as_strided({here.size()}, {1}, run.place_of(here.first));
  }
  /// `kept`, a master or a state with an element for each `unit` of the arena, of all ranks.
  Tensor gather(const Arena& arena, const Tensor& kept, std::int64_t unit,
                const autograd::Peers& peers) const;
  /// The entry of p's part of `kept`, as above. Of a parameter whose elements are not in row-major
  /// order, rank 0 of `peers` receives the whole.
  StateEntry entry_of(std::string name, const Arena& arena, const Parameter& p, const Tensor& kept,
                      std::int64_t unit, const autograd::Peers* peers) const;
  StateEntry weight_entry(std::size_t i) const;

  std::string op_, other_name_;
  StoreOptions options_;
  Device device_;
  std::vector<Parameter> parameters_;
  std::shared_ptr<const std::vector<std::string>> short_names_;
  std::vector<Arena> arenas_;
  std::vector<kernels::OptimizerArena> views_;
  std::vector<kernels::OptimizerArena> update_views_;  ///< of all runs; empty: views_
  std::vector<Ref<Storage>> norm_tables_;              ///< of views_, if state is divided
  Ref<Storage> partials_, update_partials_;            ///< of views_; of update_views_
  std::vector<Bucket> buckets_;                        ///< empty: gradients are not divided
  bool weights_divided_ = false;
  Tensor step_state_, counts_, schedule_, scaler_, ticket_;
  std::optional<PinnedMemory> watch_;  ///< a math::StepOutcome; on devices only
  GradientLedger ledger_;
  WholeUpdates whole_;
  std::unique_ptr<Modes> modes_;  ///< null: the weights have one set of values
};

}  // namespace firn::optim
