// Non-elementwise rules. They compute a parameter as a whole, by tensor operations on copies of
// gradient and weight. Kernels store the results if the step is applied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "firn/memory/reserve.h"
#include "firn/tensor.h"
#include "kernels/optim.h"
#include "optim/store/gradient_ledger.h"
#include "optim/store/state_entry.h"

namespace firn::optim {

/// One update of one parameter. All tensors are f32, or f64 for f64 parameters. Tensors with the
/// weight's shape also have its memory order.
struct NonElementwiseStep {
  std::size_t index;               ///< position of the parameter in its optimizer
  const std::string& name;         ///< empty: not known
  const std::string& label;        ///< label for errors
  Tensor weight;                   ///< copy of the master; may be overwritten
  Tensor gradient;                 ///< copy of the mean gradient, clipped; zeros in a skipped step
  Tensor lr;                       ///< [], learning rate
  Tensor t;                        ///< []: number of updates of this parameter, including this one
  std::span<const Tensor> states;  ///< must not be written
  // Results:
  const Tensor& next_weight;
  std::span<const Tensor> next_states;
};

/// A number among a rule's options. It is `not_one` if a value that is rounded to 1 has no effect.
struct RuleNumber {
  const char* name;
  double value;
  bool not_one = false;
};

class NonElementwiseRule {
 public:
  virtual ~NonElementwiseRule() = default;

  struct State {
    std::string name;
    Shape shape;
    double initial = 0;
  };
  /// Returns the states of a parameter. Throws Error if the rule cannot update the parameter.
  virtual std::vector<State> states(const NamedTensor& parameter,
                                    const std::string& label) const = 0;
  /// Returns its options in words, as ParamStore::options_in_words() does. Empty: not known.
  virtual std::string options() const = 0;
  /// Returns those options that are numbers, which are computed with in the weights' type.
  virtual std::vector<RuleNumber> numbers() const { return {}; }
  /// Queues the work of a step. Its memory is reserved beforehand, so it must allocate the same
  /// amounts each time. It runs in skipped steps too.
  virtual void compute(const NonElementwiseStep& step) const = 0;
  /// Returns true if compute() can throw for a reason other than memory. Then new weights have
  /// memory of their own, and do not replace gradients until all are computed.
  virtual bool may_throw() const noexcept { return false; }
};

/// Accepts shared pointers, which GroupSetup holds.
using NonElementwiseRulePtr = std::shared_ptr<const NonElementwiseRule>;

/// The parameters of an optimizer that have such rules, with their states.
class NonElementwiseUpdates {
 public:
  /// A parameter in its arena. Its gradient has the shape and the memory order of the weight.
  struct Member {
    std::size_t index;
    std::string name, label;
    const NonElementwiseRule* rule;
    std::size_t arena;
    kernels::ParameterRange range;
    Tensor gradient;
    bool here = true;  ///< true if this rank updates it
    Tensor next_weight = {};
    std::vector<NonElementwiseRule::State> kinds = {};
    std::vector<Tensor> states = {}, next = {};
  };

  bool empty() const noexcept { return members_.empty(); }
  /// Throws Error if the rule refuses the parameter.
  void add(Member member, const NamedTensor& parameter);
  using MemoryOf = std::function<Tensor(DType dtype, std::int64_t elements)>;
  /// Allocates the states after the last add(), in zeroed memory from `memory_of`.
  void allocate(const MemoryOf& memory_of);
  /// Reserves the memory of the rules after allocate(), running each once by shapes alone.
  void reserve(const kernels::StepMemory& memory, std::span<const kernels::OptimizerArena> arenas,
               Device device);

  /// Runs the rules of all parameters whose gradient the ledger has noted. If one throws, nothing
  /// has changed except the gradients, and these only if spoils_gradients().
  void compute(const kernels::StepMemory& memory, std::span<const kernels::OptimizerArena> arenas,
               const GradientLedger& ledger, Stream stream) const;
  /// Returns true if compute() overwrites gradients before its last rule has run.
  bool spoils_gradients() const noexcept { return spoils_; }
  /// Stores the new states, and puts new weights where the update reads them. Throws only what
  /// launches of kernels throw.
  void commit(const kernels::StepMemory& memory, const GradientLedger& ledger, Stream stream) const;

  /// Returns the states of parameter i, by the names of their rule. If states are sharded over
  /// `ranks`, the rank `owner` has the whole of each.
  std::vector<StateEntry> states_of(std::size_t index, int owner, int ranks) const;
  /// Copies the states of `other`, for parameters that both have here.
  void copy_states(const NonElementwiseUpdates& other, Stream stream) const;

 private:
  void run(const Member& m, const kernels::StepMemory& memory,
           std::span<const kernels::OptimizerArena> arenas, Stream stream) const;

  std::vector<Member> members_;
  std::vector<kernels::StateCommit> commits_;  ///< commits of all states
  bool spoils_ = false;
  MemoryReserve reserve_;
};

}  // namespace firn::optim
