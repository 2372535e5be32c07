// Rules that are not elementwise: computed for a parameter as a whole, by tensor operations, from
// copies of gradient and weight. What they compute is stored by kernels, if the step applies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/peers.h"
#include "firn/memory/reserve.h"
#include "firn/tensor.h"
#include "kernels/optim.h"
#include "optim/store/gradient_ledger.h"
#include "optim/store/state_entry.h"

namespace firn::optim {

/// One update of one parameter. All tensors are f32, or f64 for f64 parameters. Those that have the
/// weight's shape also have its order in memory.
struct WholeStep {
  std::size_t index;         ///< of the parameter in its optimizer
  const std::string& name;   ///< empty: not known
  const std::string& label;  ///< for errors
  Tensor weight;             ///< a copy of the master: may be written
  Tensor gradient;  ///< a copy of the mean gradient, clipped; zeros in a step that is skipped
  Tensor lr;        ///< []
  Tensor t;         ///< []: updates of this parameter, this one included
  std::span<const Tensor> states;  ///< must not be written
  // To be written:
  const Tensor& next_weight;
  std::span<const Tensor> next_states;
};

class WholeRule {
 public:
  virtual ~WholeRule() = default;

  struct State {
    std::string name;
    Shape shape;
    double initial = 0;
  };
  /// Those of a parameter. Throws Error for one that the rule cannot update.
  virtual std::vector<State> states(const NamedTensor& parameter,
                                    const std::string& label) const = 0;
  /// Its options in words, as ParamStore::options_in_words(). Empty: nothing of them can be said.
  virtual std::string options() const = 0;
  /// The numbers among them that tensors of the weights' type are computed with.
  virtual std::vector<std::pair<const char*, double>> numbers() const { return {}; }
  /// Queues the work of a step. What it allocates is reserved beforehand, so it must allocate the
  /// same each time. It also runs for steps that are skipped.
  virtual void compute(const WholeStep& step) const = 0;
  /// Whether compute() may throw though memory is left. Then new weights are kept apart from the
  /// gradients until all are computed, in memory of their own.
  virtual bool may_throw() const noexcept { return false; }
};

/// Takes shared pointers as GroupSetup has them.
using WholeRulePtr = std::shared_ptr<const WholeRule>;

/// The parameters of an optimizer whose rules are such, with their states.
class WholeUpdates {
 public:
  /// A parameter in its arena. Its gradient has the shape and the order of the weight.
  struct Member {
    std::size_t index;
    std::string name, label;
    const WholeRule* rule;
    std::size_t arena;
    kernels::ParameterRange range;
    Tensor gradient;
    bool here = true;  ///< whether this rank updates it
    Tensor next_weight = {};
    std::vector<WholeRule::State> kinds = {};
    std::vector<Tensor> states = {}, next = {};
  };

  bool empty() const noexcept { return members_.empty(); }
  /// Throws Error if the rule refuses the parameter.
  void add(Member member, const NamedTensor& parameter);
  using MemoryOf = std::function<Tensor(DType dtype, std::int64_t elements)>;
  /// After the last add(): allocates the states, in zeroed memory from `memory_of`.
  void allocate(const MemoryOf& memory_of);
  /// After that: reserves what the rules need, running each once by shapes alone.
  void reserve(const kernels::StepMemory& memory, std::span<const kernels::OptimizerArena> arenas,
               Device device);

  /// Runs the rules of all parameters that the ledger has noted. If one throws, all is as before,
  /// but for the gradients if spoils_gradients().
  void compute(const kernels::StepMemory& memory, std::span<const kernels::OptimizerArena> arenas,
               const GradientLedger& ledger, Stream stream) const;
  /// Whether compute() writes over gradients before its last rule has run.
  bool spoils_gradients() const noexcept { return spoils_; }
  /// Stores the new states, and puts new weights where the update looks for them. Throws nothing
  /// that the launch of a kernel does not.
  void commit(const kernels::StepMemory& memory, const GradientLedger& ledger, Stream stream) const;

  /// The states of parameter i, by the names of their rule. If `ranks` divide them, `owner` has the
  /// whole of each.
  std::vector<StateEntry> states_of(std::size_t index, int owner, int ranks) const;
  /// The same states of `other`, where both have them, become those of this one.
  void copy_states(const WholeUpdates& other, Stream stream) const;

 private:
  void run(const Member& m, const kernels::StepMemory& memory,
           std::span<const kernels::OptimizerArena> arenas, Stream stream) const;

  std::vector<Member> members_;
  std::vector<kernels::StateCommit> commits_;  ///< of all states
  bool spoils_ = false;
  MemoryReserve reserve_;
};

}  // namespace firn::optim
