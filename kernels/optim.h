// Contract of the optimizer's kernels. A micro-step starts with begin. A cycle ends with norm and
// update; a rule with a trust ratio computes it between the two. All their decisions are in
// StepState, in device memory.
//
// A rule that is not elementwise (math::Replace) is computed between the two as well, a parameter
// at a time. inputs writes the rule's inputs, any work follows, and the new weight is written over
// the gradient. Then commit stores new states, and update stores the weight. Only these two look at
// the decision, so the work between them need not.
//
// An arena is a flat run of parameters of one group and dtype: element i of the weights, gradients
// and states belong together. Each parameter begins at a multiple of 64 bytes. Zeros fill the gap
// up to the next parameter: kernels may read them, and may write zeros. The gradient of a parameter
// that is not touched may hold anything, infinities and NaNs included: the first contribution of a
// cycle is stored over it.
//
// An arena is cut into chunks of equal size, a multiple of 1024, so that threads and blocks get
// equal work whatever the parameters' sizes. A chunk is a list of pieces, each of one parameter.
// Chunks are numbered in the order in which threads should share them. If the rule has a trust
// ratio, the pieces of a parameter follow one another.
#pragma once

#include <span>
#include <variant>

#include "kernels/dispatch.h"
#include "kernels/math/optim/cycle_sums.h"
#include "kernels/math/optim/dynamic_code.h"
#include "kernels/math/optim/rules.h"
#include "kernels/plan/step_memory.h"

namespace firn::kernels {

using UpdateRule =
    std::variant<math::Sgd, math::SgdMomentum, math::Adam, math::RmsProp<false, false>,
                 math::RmsProp<false, true>, math::RmsProp<true, false>, math::RmsProp<true, true>,
                 math::Adagrad, math::Lamb, math::Lion, math::EightBit<math::Adam>,
                 math::EightBit<math::Lion>, math::Replace, math::ScheduleFree, math::AmsGrad,
                 math::NAdam, math::RAdam, math::Adadelta, math::Rprop>;

inline constexpr int kMaxOptimizerStates = 3;
/// Largest number of optimizers with one loss scale: their addresses are one launch's arguments.
inline constexpr int kMaxSharing = 256;

/// A run of elements of one parameter within one chunk.
struct Piece {
  std::int64_t begin;  ///< first element in the arena
  std::int32_t count;
  std::int32_t parameter;
};

/// Contribution of a run of chunks to the norm. Contributions are added up in a fixed order.
struct NormPartial {
  double sum_of_squares;
  double clipped_squares;  ///< squares of the averaged, clipped gradient; 0 without clip_value
  double largest;          ///< largest magnitude; 0 if the scale is not being calibrated
  std::int64_t culprit;    ///< first parameter with a gradient that is not finite, or -1
};

/// The elements of a parameter in its arena.
struct ParameterRange {
  std::int64_t begin, count;
  std::int32_t parameter;
};

/// A state of a whole parameter and its next value: both [n], contiguous, of one dtype.
struct StateCommit {
  ConstView next;
  View state;
  std::int32_t parameter;
};

/// Contribution of one piece to its parameter's two norms, whose ratio is the trust ratio. The
/// contributions are added up in the order of the pieces.
struct TrustPartial {
  double weight, update;  ///< sums of squares
};

/// The weights of a ScheduleFree rule and the tensors that they come from, [n] each. `weight` has
/// the model's dtype; the others are f32, or f64 for f64 weights. `master` may have data ==
/// nullptr.
struct ScheduleFreeWeights {
  View weight, master, fast, averaged;
  double beta1;
};
inline Device device_of(const ScheduleFreeWeights& w) { return w.weight.device; }

/// One arena. `weight` is [n] in the model's dtype; `grad`, `states`, `master` and `ema` are [n]
/// f32, or f64 for f64 weights. No average is kept if ema.data == nullptr. Without a master (data
/// == nullptr) the weight is its own master. Updates of f16 and bf16 weights are then rounded
/// stochastically. After k applied steps, element i of the arena with this `index` takes word (i
/// mod 4) of the Philox block with counter {i/4, index} and key k.
///
/// If the rule is a math::EightBit, `states` are u8 [n] and `scales` f32 [n / math::kStateBlock],
/// one for each block of elements. Parameters then begin at multiples of math::kStateBlock, so a
/// block holds elements of one parameter and one chunk. Such a rule has no f64 arenas.
struct OptimizerArena {
  View weight, master, grad, ema;
  std::int64_t index = 0;
  View states[kMaxOptimizerStates], scales[kMaxOptimizerStates];
  UpdateRule rule;
  double lr_scale = 1;  ///< multiplies the learning rate of StepState

  std::int64_t chunks = 0;
  const std::int64_t* chunk_pieces = nullptr;  ///< [chunks + 1]: pieces of chunk c are [c], [c + 1]
  const Piece* pieces = nullptr;
  NormPartial* partials = nullptr;  ///< [chunks] workspace; arena after arena in one block
  /// [chunks]: the place in the tables of the chunk that is first, second, ... by its elements;
  /// null if the tables have the order of the elements.
  const std::int64_t* chunk_order = nullptr;

  // Workspace, only if the rule has a trust ratio.
  TrustPartial* trust_partials = nullptr;  ///< [pieces]
  double* trust_ratios = nullptr;          ///< [parameters]
};

namespace cpu {

/// Begins a micro-step: computes its initial gradient (math::next_initial_gradient), and multiplies
/// the arenas by the factor from the old unit to the new one. In the first micro-step of a cycle
/// the arenas may be left out: they hold nothing yet. A kernel of the backward pass may then
/// compute the initial gradient instead (rows.h).
void optim_begin(const PendingGradient& pending, std::span<const OptimizerArena> arenas,
                 Stream stream);
/// Computes the norm and finite check of all touched gradients, then the decision (math::decide).
void optim_norm(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                const math::StepPolicy& policy, Stream stream);
/// First step of optim_norm() if other ranks have the rest of the model. It summarizes the touched
/// parameters that are `counted`, u8 [parameters], and decides nothing. The host waits for a
/// device's answer.
void optim_summarize(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                     const math::StepPolicy& policy, const ConstView& counted,
                     math::GradientSummary& summary, Stream stream);
/// Second step: decides, from the results of all ranks.
void optim_decide(const StepMemory& memory, const math::StepPolicy& policy,
                  const math::GradientSummary& summary, Stream stream);
/// Writes the contributions of the chunks [first, last) of a whole arena, counted by their
/// elements, to arena.partials. It is for sharded gradients whose norm must have the bits of
/// optim_norm() with StepPolicy::norm_by_chunk. No other element is read.
void optim_partials(const StepMemory& memory, const OptimizerArena& arena, std::int64_t first,
                    std::int64_t last, const math::StepPolicy& policy, Stream stream);
/// Adds up the contributions of all chunks of all arenas, in the order of optim_norm(). The host
/// waits for a device's answer.
void optim_add_partials(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                        math::GradientSummary& summary, Stream stream);
/// Begins a cycle of exact mode on one rank: `before` becomes the initial values of its sums. The
/// scalars of chunks stay in device memory, like their gradients. They are u8
/// [sizeof(math::CycleSums)], and `before` is u8 [sizeof(math::LossSums)].
void optim_note_sums(const StepMemory& memory, const View& before, Stream stream);
/// Ends a chunk: its scalars go to `sums`, and the cycle's begin with `before` again.
void optim_take_sums(const StepMemory& memory, const ConstView& before, const View& sums,
                     Stream stream);
/// Brings `gradient` [n], f32 or f64, with scalars `of`, into the unit of `sums`.
void optim_convert_gradient(const ConstView& sums, const ConstView& of, const View& gradient,
                            Stream stream);
/// Adds the scalars `more` to `sums`.
void optim_add_sums(const ConstView& more, const View& sums, Stream stream);
/// Follows the last chunk: the cycle's scalars are `sums` after `before`.
void optim_put_sums(const StepMemory& memory, const ConstView& before, const ConstView& sums,
                    Stream stream);
/// Joins optimizers that step together, after the norm of each. If a non-finite value keeps one of
/// them from its step, none makes a step.
void optim_join(std::span<const StepMemory> memories, Stream stream);
/// Computes the ratio of every touched parameter for the update that follows, for arenas whose rule
/// has a trust ratio. Writes nothing else.
void optim_trust_ratios(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                        Stream stream);
/// Writes the inputs of a non-elementwise rule. gradient [n] is that of the mean, clipped, or zeros
/// if the step does not apply or the parameter is not touched. weight [n] is the master, or without
/// one the weight itself, widened. scalars [2] are the learning rate of its group, and the number
/// of its updates, this one included. All are of the dtype of the arena's gradient, and contiguous.
void optim_inputs(const StepMemory& memory, const OptimizerArena& arena,
                  const ParameterRange& range, const View& gradient, const View& weight,
                  const View& scalars, Stream stream);
/// If the step applies, the states of every touched parameter become the next ones.
void optim_commit(const StepMemory& memory, std::span<const StateCommit> states, Stream stream);
/// If the step applies, every touched parameter takes its update, and the model's copy is rounded
/// from the master. Gradients stay as they are. A parameter that is not touched is neither read nor
/// written. Its moving average still moves on, as all do in every applied step:
/// ema += (1 - decay) (weight - ema).
///
/// Then the cycle ends: the kernel counts the step and the updates of each parameter, notes the
/// outcome and empties the cycle. With `moves_scale` it also moves the loss scale; an optimizer
/// that shares its scale leaves that to optim_move_scale.
void optim_update(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                  const math::StepPolicy& policy, bool moves_scale, Stream stream);
/// Moves the scale once, after the update of all optimizers that share the first one's scaler. An
/// overflow in any of them counts as one; without one, so does an applied step in any of them.
/// There are at most kMaxSharing optimizers, here and in optim_join.
void optim_move_scale(std::span<const StepMemory> memories, const math::ScalePolicy& policy,
                      Stream stream);
/// Sets which parameters have received a gradient in the cycle: [parameters] of 0 and 1. The flags
/// are read before the call returns.
void optim_set_touched(const StepMemory& memory, std::span<const std::uint8_t> touched,
                       Stream stream);
/// Takes weights that were written from outside into their masters: [n] in f16 or bf16 and [n] in
/// f32. A weight that differs from its rounded master was written from outside, and becomes the
/// master.
void optim_adopt_weights(const ConstView& weight, const View& master, Stream stream);
/// Sets the weights to the averaged ones, or to those of training (math::training_weight), rounded
/// to nearest. Nothing else is written.
void optim_show_weights(const ScheduleFreeWeights& w, bool averaged, Stream stream);
/// Takes weights that were written from outside: those that differ from what optim_show_weights()
/// made. Such a weight becomes its fast and its averaged weight, and its master.
void optim_adopt_shown(const ScheduleFreeWeights& w, bool averaged, Stream stream);
/// Forgets the cycle's weight and micro-steps.
void optim_reset(const StepMemory& memory, Stream stream);
/// Sets a new schedule of the learning rate. The next step has its value at the number of applied
/// steps.
void optim_set_schedule(const StepMemory& memory, const math::ScheduleTable& schedule,
                        Stream stream);
/// Sets the loss scale from the next micro-step on; its policy counts from the beginning.
void optim_set_scale(const StepMemory& memory, double scale, const math::ScalePolicy& policy,
                     Stream stream);

}  // namespace cpu

/// Bytes in a profile of the two kernels that go through all arenas. Weights, masters, averages and
/// states are read and written, gradients are read.
inline double optim_update_bytes(const StepMemory&, std::span<const OptimizerArena> arenas,
                                 const auto&...) {
  double sum = 0;
  for (const OptimizerArena& a : arenas) {
    double twice = detail::bytes_of(a.master.data ? a.master : a.weight) + detail::bytes_of(a.ema);
    for (const View& s : a.states) twice += detail::bytes_of(s);
    sum += 2 * twice + (a.master.data ? detail::bytes_of(a.weight) : 0) + detail::bytes_of(a.grad);
  }
  return sum;
}
inline double optim_norm_bytes(const StepMemory&, std::span<const OptimizerArena> arenas,
                               const auto&...) {
  double sum = 0;
  for (const OptimizerArena& a : arenas) sum += detail::bytes_of(a.grad);
  return sum;
}
FIRN_KERNEL(optim_begin)
FIRN_KERNEL_THAT_MOVES(optim_norm, optim_norm_bytes)
FIRN_KERNEL_WITH_WORKSPACE(optim_summarize)
FIRN_KERNEL(optim_decide)
FIRN_KERNEL(optim_partials)
FIRN_KERNEL_WITH_WORKSPACE(optim_add_partials)
FIRN_KERNEL(optim_note_sums)
FIRN_KERNEL(optim_take_sums)
FIRN_KERNEL(optim_convert_gradient)
FIRN_KERNEL(optim_add_sums)
FIRN_KERNEL(optim_put_sums)
FIRN_KERNEL(optim_trust_ratios)
FIRN_KERNEL(optim_inputs)
FIRN_KERNEL(optim_commit)
FIRN_KERNEL_THAT_MOVES(optim_update, optim_update_bytes)
FIRN_KERNEL(optim_set_touched)
FIRN_KERNEL(optim_adopt_weights)
FIRN_KERNEL(optim_show_weights)
FIRN_KERNEL(optim_adopt_shown)
FIRN_KERNEL(optim_reset)
FIRN_KERNEL(optim_set_schedule)
FIRN_KERNEL(optim_join)
FIRN_KERNEL(optim_move_scale)
FIRN_KERNEL(optim_set_scale)

}  // namespace firn::kernels
