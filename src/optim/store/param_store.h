// The memory of an optimizer's parameters, gradients and state: flat arenas, one per group and
// dtype.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "autograd/weight_modes.h"
#include "firn/memory.h"
#include "firn/optim/step_options.h"
#include "kernels/optim.h"
#include "optim/store/arena.h"
#include "optim/store/gradient_ledger.h"
#include "optim/store/state_entry.h"

namespace firn::optim {

struct StoreOptions {
  bool masters = true;   ///< f16 and bf16 parameters get f32 masters
  bool average = false;  ///< all parameters get a moving average
  StateMemory memory = StateMemory::device;
  bool watched = false;  ///< the host reads outcomes without waiting: see last_seen()
  Tensor scaler;         ///< memory of the loss scale; undefined: the store allocates it
  autograd::Cycle* cycle = nullptr;  ///< cycle that collects the parameters' gradients
};

/// Owns the arenas (arena.h) and the device memory of the step. Element i of an arena's weights,
/// gradients and states belongs to the same weight. Each parameter begins at a multiple of 64
/// bytes, and zeros fill the gap to the next one. A parameter that appears several times in the
/// list (tied weights) is stored once.
class ParamStore {
 public:
  /// Checks everything, then allocates everything, then moves the parameters in. If it throws, the
  /// parameters are unchanged. Errors name the optimizer as `op`.
  ParamStore(std::string op, const std::vector<GroupSetup>& groups, const StoreOptions& options);
  /// Detaches the leaves from the arenas. The parameters keep their values.
  ~ParamStore();
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  const std::string& op() const noexcept { return op_; }
  Device device() const noexcept { return device_; }
  Stream stream() const noexcept { return current_stream(device_); }
  std::span<const kernels::OptimizerArena> arenas() const noexcept { return views_; }
  /// Returns the arenas for the update. If states are sharded, these cover this rank's shard, and
  /// only they have states.
  std::span<const kernels::OptimizerArena> update_arenas() const noexcept {
    return sharded() ? update_views_ : views_;
  }
  /// Returns the number of elements of a chunk (kernels/optim.h).
  std::int64_t chunk_size() const noexcept;
  /// Returns the arenas' tensors and the elements that are kept here.
  std::span<const Arena> layout() const noexcept { return arenas_; }
  /// Returns the places of the parameters in the arenas.
  std::span<const StoredParameter> places() const noexcept { return parameters_; }
  autograd::Leaf& leaf(std::size_t i) const noexcept { return *parameters_[i].leaf; }
  /// Returns the storage of the weight of parameter i.
  Storage& weight(std::size_t i) const noexcept { return *parameters_[i].storage; }
  kernels::StepMemory memory() const;
  const Tensor& step_state() const noexcept { return step_state_; }
  const Tensor& scaler() const noexcept { return scaler_; }
  GradientLedger& ledger() noexcept { return ledger_; }
  const GradientLedger& ledger() const noexcept { return ledger_; }
  /// Returns the parameters whose rules are not elementwise.
  const NonElementwiseUpdates& non_elementwise() const noexcept { return non_elementwise_; }

  // ---- The weights ----

  /// Throws Error if a parameter was moved to other memory since the optimizer was made, or has a
  /// gradient that the ledger has not noted.
  void check_parameters() const;
  /// Marks the weights whose gradient was noted as written, for autograd.
  void bump_versions() noexcept;
  /// Marks all weights as written by `what`.
  void bump_all_versions(const char* what) noexcept;
  /// Finds weights that were written from outside, and updates what is kept of them. A 16-bit
  /// weight that differs from its rounded master replaces the master.
  void adopt_weights();
  /// Declares that masters follow the current weights, so the next adopt_weights() finds nothing.
  void mark_adopted() noexcept;
  /// Declares this for parameter i.
  void mark_adopted(std::size_t i) noexcept;
  /// Makes the next adopt_weights() look at all weights.
  void forget_adopted() noexcept;
  /// Returns the versions that adopt_weights() compares. A plan saves and restores them.
  std::vector<std::uint32_t> adopted() const;
  void put_back_adopted(const std::vector<std::uint32_t>& versions) noexcept;
  /// Copies the weights to the masters and the averages.
  void refresh_masters();
  /// Makes the weights show their training values, if they do not already.
  void show_training_weights();
  /// While on, the weights are neither training weights nor averages of a schedule-free rule, and
  /// modules cannot switch between these (AveragedWeights).
  void keep_shown(bool on) noexcept;

  // ---- Contents (contents.cpp) ----

  /// Reads the step state from device memory. Waits for the device.
  math::StepState read_state() const;
  /// Returns the outcome of the latest cycle that the host can see without waiting. On a device it
  /// may be an earlier cycle than the last one. The store must be watched.
  math::StepOutcome last_seen() const;
  /// Sets last_seen(), after a state was copied in whose last outcome is this one.
  void note_seen(const math::StepOutcome& last) noexcept;

  /// Copies of the small tensors of the state on the host. Reading them waits for the device.
  struct HostState {
    std::vector<std::int64_t> update_counts;
    std::vector<std::uint8_t> touched;
    math::ScheduleTable schedule;
    math::ScalerState scaler;
    math::StepState step;
  };
  HostState host_state() const;
  /// Returns a version that changes if one of these tensors is written from outside.
  std::uint32_t version_of_state() const noexcept;

  std::vector<Tensor> parameters() const;
  /// Returns "Muon for 4 of 6 parameters, AdamW for 2", or "" if all have one rule.
  std::string rules_in_words() const;
  /// Returns the numbers of the rules: "beta1 0.9, beta2 0.999, eps 1e-08, weight_decay 0.01". They
  /// are in the order of the arenas; an arena like the one before is left out. See options.cpp.
  std::string options_in_words() const;
  /// Returns the name for errors: 'parameter 3, "encoder.weight", [4, 2] f32 cpu'.
  std::string label(std::size_t i) const;
  /// Returns the labels of all parameters, or of the first ones and how many more there are.
  std::string names() const;
  /// Returns the labels, as names() lists them, of parameters that have received no gradient and
  /// that only the optimizer holds, or "".
  std::string unheld() const;
  /// Returns the names for reports: '3, "encoder.weight"', or '3'.
  const std::shared_ptr<const std::vector<std::string>>& short_names() const noexcept {
    return short_names_;
  }
  /// Returns the flat moving averages of the arenas, undefined if none are kept. If state is
  /// sharded, these are this process's shards.
  std::vector<Tensor> averages() const;
  /// Returns the accumulated gradient of parameter i, or undefined if the cycle has not reached it.
  /// Gradients must not be sharded.
  Tensor gradient(std::size_t i) const;
  /// Returns the flat gradients of the arenas, sharing their memory. If gradients are sharded,
  /// these are this rank's shards.
  const std::vector<Tensor>& gradients() const noexcept { return gradients_; }
  /// Zeroes the gradients of parameters that have received none.
  void zero_missing_gradients();
  /// From now on backward passes add gradients to these arenas instead of the optimizer's.
  void collect_into(std::span<const Tensor> arenas);
  /// Makes them add to the optimizer's arenas again.
  void collect_here() noexcept;
  /// Zeroes these arenas where parameters have received no gradient.
  void zero_missing_in(std::span<const Tensor> arenas) const;
  /// Copies the gradients arena by arena, into `memory` if it is given. The result is undefined for
  /// an arena in which no parameter has received one.
  std::vector<Tensor> copy_gradients(const std::vector<Tensor>* memory = nullptr) const;
  /// Allocates memory for such copies, one for every arena.
  std::vector<Tensor> reserve_gradients() const;
  /// Allocates [rows, elements] for every arena, for whole gradients.
  std::vector<Tensor> reserve_rows(std::int64_t rows) const;
  /// Returns the part of parameter i in whole arenas.
  Tensor part_in(std::span<const Tensor> arenas, std::size_t i) const;
  /// Returns the part of parameter i in `rows`, which has a tensor [k, elements] for every arena:
  /// [k, ...].
  Tensor rows_in(std::span<const Tensor> rows, std::size_t i) const;
  /// Stores `value`, a gradient of parameter i, in copies that reserve_gradients() has made. Shards
  /// store only their part of it.
  void store_gradient(const Tensor& value, std::span<const Tensor> arenas, std::size_t i) const;
  /// Makes such copies the gradients. The ledger keeps track of which parameters have one.
  void put_back_gradients(const std::vector<Tensor>& copies) const;
  /// Returns the entries of Optimizer::state(). With `zero_missing`, the gradients of parameters
  /// that have received none are zero. An entry of sharded state has parts.
  std::vector<StateEntry> state(bool zero_missing = true);

  // ---- Shards (shards.cpp) ----

  // Other processes may keep a part of state, gradients and weights. The module dist decides which,
  // by a ShardPlan, and exchanges the parts.

  bool sharded() const noexcept { return !update_views_.empty(); }
  /// Returns true if gradients are sharded too: outside of backward passes a rank has only its
  /// shard.
  bool gradients_sharded() const noexcept { return gradients_sharded_; }
  /// Returns true if weights are sharded too: a parameter has memory only while it is gathered
  /// (src/dist/step/gathered.h).
  bool weights_sharded() const noexcept { return weights_sharded_; }
  struct Shards;
  /// Allocates arenas for the kept elements. Changes nothing. A schedule-free store cannot be
  /// sharded.
  std::shared_ptr<Shards> prepare_shards(const ShardPlan& plan) const;
  /// Exchanges the arenas for the prepared ones. A second call takes the first one back. No cycle
  /// may be under way.
  void swap_shards(Shards& shards) noexcept;
  /// Copies the kept elements from the old arenas in `shards`, after swap_shards(). Allocates
  /// nothing.
  void fill_shards(const Shards& shards) const;

 private:
  std::string names_of(const std::vector<std::size_t>& which) const;

  /// The two sets of values that the leaves of schedule-free arenas show (shown_weights.h).
  class Modes;

  void collect(const std::vector<GroupSetup>& groups);
  void check(const NamedTensor& parameter, std::size_t index) const;
  void move_in(StoredParameter& p);
  void let_go() noexcept;
  Tensor slice(const Tensor& arena, const StoredParameter& p) const;

  // layout.cpp
  void lay_out();
  void allocate_arenas();
  void allocate_step();
  void allocate(Arena& arena);
  /// Allocates [elements] of zeros, in the memory that StoreOptions::memory names.
  Tensor state_memory(Owner owner, DType dtype, std::int64_t elements) const;
  NonElementwiseUpdates set_up_non_elementwise(
      const std::vector<Arena>& arenas, const std::vector<kernels::OptimizerArena>& views) const;
  /// Makes the tables of the run's kept elements.
  void make_tables(const Arena& arena, ArenaRun& run) const;
  /// Makes OptimizerArena::chunk_order for a run that is a whole arena. Null if the chunks have the
  /// order of the elements.
  Ref<Storage> chunk_order(const ArenaRun& run) const;
  /// Makes the view of a run. `index` is the arena's, and `partials` is memory for the norms of the
  /// run's chunks.
  kernels::OptimizerArena view_of(const Arena& arena, const ArenaRun& run, std::size_t index,
                                  kernels::NormPartial* partials) const;
  /// Makes the views of all runs of all arenas, in this order. Their norms are in `partials`.
  std::vector<kernels::OptimizerArena> views_of(const std::vector<Arena>& arenas,
                                                const Storage& partials) const;
  Ref<Storage> reserve_partials(const std::vector<Arena>& arenas) const;
  // contents.cpp
  /// Makes the state entry of p in `kept`, which has one element for each `unit` of the arena.
  StateEntry entry_of(std::string name, const Arena& arena, const StoredParameter& p,
                      const Tensor& kept, std::int64_t unit) const;
  StateEntry weight_entry(std::size_t i) const;
  /// Returns the function that gives this part of parameter i's state its first value
  /// (StateEntry::begin). If a rule begins, so does its count of updates.
  std::function<void()> begin_of(std::size_t i, const Tensor& kept, std::int64_t unit) const;

  std::string op_, other_name_;
  StoreOptions options_;
  Device device_;
  std::vector<StoredParameter> parameters_;
  std::shared_ptr<const std::vector<std::string>> short_names_;
  std::vector<Arena> arenas_;
  std::vector<Tensor> gradients_;  ///< Arena::grad of each arena
  std::vector<kernels::OptimizerArena> views_;
  std::vector<kernels::OptimizerArena> update_views_;  ///< views of all runs; empty: views_ serves
  std::vector<Ref<Storage>> norm_tables_;              ///< tables of views_, if state is sharded
  Ref<Storage> partials_, update_partials_;            ///< norms of views_, of update_views_
  bool gradients_sharded_ = false, weights_sharded_ = false;
  Tensor step_state_, counts_, schedule_, scaler_, ticket_;
  std::optional<PinnedMemory> watch_;  ///< holds a math::StepOutcome; on devices only
  GradientLedger ledger_;
  NonElementwiseUpdates non_elementwise_;
  std::unique_ptr<Modes> modes_;  ///< null: the weights have one set of values
};

}  // namespace firn::optim
