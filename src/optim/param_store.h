// Where an optimizer keeps parameters, gradients and state: flat arenas, one per group and dtype.
//
// Folder law: floor 6. Includes floors 0 to 3, kernel contracts, and of floor 4 only losses.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "firn/memory.h"
#include "firn/optim/optimizer.h"
#include "kernels/optim.h"

namespace firn::optim {

/// A group with its rule, as an optimizer's constructor has worked it out.
struct GroupSetup {
  ParamList parameters;
  kernels::UpdateRule rule;
  double lr_scale = 1;
};

struct StoreOptions {
  bool masters = true;   ///< f16 and bf16 parameters get f32 masters
  bool average = false;  ///< all get a moving average
  bool watched = false;  ///< the host looks at outcomes without waiting: see last_seen()
  Tensor scaler;         ///< memory of the loss scale; undefined: its own
  const autograd::Cycle* owner = nullptr;  ///< whose backward passes the parameters collect from
};

/// Owns the arenas and the device memory of the step. In an arena, element i of weights, gradients
/// and states belong together; each parameter begins at a multiple of 64 bytes and is followed by
/// zeros up to the next. A parameter that appears several times in the list (tied weights) is
/// stored once.
class ParamStore {
 public:
  /// Checks everything, then allocates everything, then moves the parameters in: where it throws,
  /// they are as they were. `op` is the optimizer's name, for errors.
  ParamStore(std::string op, const std::vector<GroupSetup>& groups, const StoreOptions& options);
  /// The leaves let go of the arenas; the parameters keep their values.
  ~ParamStore();
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  const std::string& op() const noexcept { return op_; }
  Device device() const noexcept { return device_; }
  Stream stream() const noexcept { return current_stream(device_); }
  std::span<const kernels::OptimizerArena> arenas() const noexcept { return views_; }
  kernels::StepMemory memory() const;
  const Tensor& step_state() const noexcept { return step_state_; }
  const Tensor& scaler() const noexcept { return scaler_; }
  /// The state as it is in device memory. Waits for the device.
  math::StepState read_state() const;
  /// The outcome of the last cycle that the host can see without waiting: on a device, perhaps not
  /// of the last one. Only of a store that is watched.
  math::StepOutcome last_seen() const;

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

  /// Throws Error where a parameter was moved to other memory since the optimizer was made, or has
  /// got a gradient otherwise than between two calls of note_gradients().
  void check_parameters() const;
  /// Takes over which parameters have received a gradient where that was written from outside: as
  /// part of a state that was copied in.
  void adopt_touched();
  /// Remembers which parameters have received a gradient by now.
  void note_gradients() noexcept;
  /// How many contributions each parameter has received in the cycle.
  std::vector<std::uint32_t> contributions() const;
  /// What the host knows after a backward pass that it has not seen, for it was replayed: that each
  /// parameter has got from its number of contributions `before` to that `after` it. Throws Error
  /// where another parameter than then gets its first, which is stored where others are added.
  void receive(const std::vector<std::uint32_t>& before, const std::vector<std::uint32_t>& after);
  /// What the host knows is that again, and what the device knows it cannot say.
  void put_back(const std::vector<std::uint32_t>& contributions) noexcept;
  /// Tells the device which parameters have received a gradient; nothing is launched where it is
  /// the same set as in the last cycle, which is what it returns.
  bool upload_touched();
  const std::vector<std::uint8_t>& touched() const noexcept { return touched_now_; }
  /// For a replay that has told the device in its own course.
  void assume_uploaded() { touched_on_device_ = touched_now_; }
  /// No parameter has received a gradient. What the arenas hold means nothing from now on: the
  /// first contribution to each gradient will be stored over it.
  void begin_cycle();
  /// Tells autograd that the touched weights were written.
  void bump_versions() noexcept;
  /// The same for all weights, by another name.
  void bump_all_versions(const char* what) noexcept;
  /// Notices 16-bit weights that were written from outside: each one that is not its master rounded
  /// becomes the master.
  void adopt_weights();
  /// What the weights hold now comes from the masters.
  void know_weights() noexcept;
  void refresh_masters();

  std::vector<Tensor> parameters() const;
  /// What errors call it: 'parameter 3, "encoder.weight", [4, 2] f32 cpu'.
  std::string label(std::size_t i) const;
  /// The labels of all, or of the first ones and how many more there are.
  std::string names() const;
  /// For reports: '3, "encoder.weight"', or '3'.
  const std::shared_ptr<const std::vector<std::string>>& short_names() const noexcept {
    return short_names_;
  }
  /// Empty where no averages are kept.
  std::vector<Tensor> averages() const;
  /// The accumulated gradient of parameter i, or undefined where it has received none in the cycle.
  Tensor gradient(std::size_t i) const;
  /// See Optimizer::state(). Gradients of parameters that have received none are zero in it.
  std::vector<NamedState> state();

 private:
  struct Parameter {
    Tensor tensor;
    std::string name;  ///< empty: not known
    Ref<autograd::Leaf> leaf;
    Ref<Storage> storage;  ///< where it was put
    std::size_t arena = 0;
    std::int64_t begin = 0;     ///< first element in its arena
    std::uint32_t seen = 0;     ///< contributions noted in this cycle
    std::uint32_t version = 0;  ///< of the weight, when the master was last known to follow it
    bool stale = false;         ///< its gradient may hold numbers of an earlier cycle
  };
  struct Arena {
    Arena(DType t, const kernels::UpdateRule& r, double scale)
        : dtype(t), rule(r), lr_scale(scale) {}
    DType dtype;
    kernels::UpdateRule rule;
    double lr_scale;
    std::int64_t elements = 0;
    std::vector<std::size_t> parameters;
    Tensor weight, master, grad, ema;
    std::vector<Tensor> states;
    Ref<Storage> chunk_pieces, pieces;          ///< the tables of kernels/optim.h
    Ref<Storage> trust_partials, trust_ratios;  ///< only for rules with a trust ratio
  };

  void collect(const std::vector<GroupSetup>& groups);
  void check(const NamedTensor& parameter, std::size_t index) const;
  void lay_out();
  void allocate(Arena& arena);
  void make_tables(Arena& arena);
  std::int64_t chunks_of(const Arena& arena) const;
  void move_in(Parameter& p);
  void let_go() noexcept;
  Tensor slice(const Tensor& arena, const Parameter& p) const;

  std::string op_;
  StoreOptions options_;
  Device device_;
  std::vector<Parameter> parameters_;
  std::shared_ptr<const std::vector<std::string>> short_names_;
  std::vector<Arena> arenas_;
  std::vector<kernels::OptimizerArena> views_;
  Ref<Storage> partials_;  ///< of all arenas, one after another
  Tensor step_state_, touched_, counts_, schedule_, scaler_, ticket_;
  std::optional<PinnedMemory> watch_;  ///< a math::StepOutcome; on devices only
  std::vector<std::uint8_t> touched_now_, touched_on_device_;
  std::uint32_t touched_version_ = 0;  ///< of touched_, when it was last looked at
};

}  // namespace firn::optim
