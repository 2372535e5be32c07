// Contract of the optimizer's kernels. A micro-step starts with begin. The end of a cycle is norm
// and update; a rule with a trust ratio computes it between the two. All that they decide lives in
// StepState, in device memory.
//
// A rule that is not elementwise (math::Replace) is computed between the two as well, a parameter
// at a time: inputs gives what it computes from, any work follows, and its new weight is written
// over the gradient. Then commit stores new states, and the update the weight. Only these two look
// at the decision, so the work between them need not.
//
// An arena is a flat run of parameters of one group and dtype: element i of the weights, gradients
// and states belong together. Each parameter begins at a multiple of 64 bytes. Zeros fill the gap
// up to the next parameter: kernels may read them, and may write zeros. The gradient of a parameter
// that is not touched may be anything, infinities and NaNs included: the first contribution of a
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
/// Optimizers that can share a loss scale: their addresses are one launch's arguments.
inline constexpr int kMaxSharing = 256;

/// A run of elements of one parameter within one chunk.
struct Piece {
  std::int64_t begin;  ///< first element in the arena
  std::int32_t count;
  std::int32_t parameter;
};

/// What a run of chunks contributes to the norm. Added up in a fixed order.
struct NormPartial {
  double sum_of_squares;
  double clipped_squares;  ///< of the averaged gradient after clip_value; 0 without
  double largest;          ///< magnitude; 0 if the scale is not being calibrated
  std::int64_t culprit;    ///< first parameter with a gradient that is not finite, -1: none
};

/// The elements of a parameter in its arena.
struct ParameterRange {
  std::int64_t begin, count;
  std::int32_t parameter;
};

/// A state of a whole parameter and what is to become of it: both [n], contiguous, of one dtype.
struct StateCommit {
  ConstView next;
  View state;
  std::int32_t parameter;
};

/// What one piece contributes to its parameter's two norms, whose ratio is the trust ratio. Added
/// up in the order of the pieces.
struct TrustPartial {
  double weight, update;  ///< sums of squares
};

/// The weights of a ScheduleFree rule and what they come from, [n] each: `weight` in the model's
/// dtype, the others in f32, or f64 for f64 weights. master.data == nullptr: there is none.
struct ScheduleFreeWeights {
  View weight, master, fast, averaged;
  double beta1;
};
inline Device device_of(const ScheduleFreeWeights& w) { return w.weight.device; }

/// One arena. `weight` is [n] in the model's dtype; `grad`, `states`, `master` and `ema` are [n]
/// f32, or f64 for f64 weights. ema.data == nullptr: no average is kept. Without a master (data ==
/// nullptr) the weight is its own master. Updates of f16 and bf16 weights are then rounded
/// stochastically: element i of the arena with this `index`, in the step after k applied ones, by
/// word (i mod 4) of the Philox block with counter {i/4, index} and key k.
///
/// If the rule is a math::EightBit, `states` are u8 [n] and `scales` f32 [n / math::kStateBlock]:
/// one for each block of elements. Parameters then begin at multiples of math::kStateBlock, so a
/// block holds elements of one parameter and one chunk. There are no f64 arenas of such a rule.
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
  /// [chunks]: where the tables have the chunk that is first, second, ... by its elements; null:
  /// they have the order of the elements.
  const std::int64_t* chunk_order = nullptr;

  // Workspace, only if the rule has a trust ratio.
  TrustPartial* trust_partials = nullptr;  ///< [pieces]
  double* trust_ratios = nullptr;          ///< [parameters]
};

namespace cpu {

/// Begins a micro-step: computes its seed (math::next_seed), and multiplies the arenas by the
/// factor from the old unit to the new one. In the first micro-step of a cycle they may be left
/// out: they hold nothing yet. A kernel of the backward pass may then compute the seed instead
/// (rows.h).
void optim_begin(const PendingSeed& pending, std::span<const OptimizerArena> arenas, Stream stream);
/// Norm and finite check of all touched gradients, then the decision (math::decide).
void optim_norm(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                const math::StepPolicy& policy, Stream stream);
/// Where other ranks have the rest of the model, what optim_norm() does in two steps. First what it
/// finds out of the touched parameters that are `counted`, u8 [parameters]; nothing is decided. The
/// host waits for a device's answer.
void optim_summarize(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                     const math::StepPolicy& policy, const ConstView& counted,
                     math::GradientSummary& summary, Stream stream);
/// Then the decision, from what all ranks have found.
void optim_decide(const StepMemory& memory, const math::StepPolicy& policy,
                  const math::GradientSummary& summary, Stream stream);
/// Where ranks have parts of the gradient, and its norm is to have the bits of optim_norm() with
/// StepPolicy::norm_by_chunk: what the chunks [first, last) of a whole arena contribute, counted by
/// their elements, in arena.partials. No other element is read.
void optim_partials(const StepMemory& memory, const OptimizerArena& arena, std::int64_t first,
                    std::int64_t last, const math::StepPolicy& policy, Stream stream);
/// When all chunks of all arenas are there: what they come to, in the order of optim_norm(). The
/// host waits for a device's answer.
void optim_add_partials(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                        math::GradientSummary& summary, Stream stream);
/// Exact mode on one rank: the scalars of quanta stay in device memory, beside their gradients.
/// They are u8 [sizeof(math::CycleSums)], and `before` is u8 [sizeof(math::SeedSums)].
///
/// A cycle begins: `before` becomes what its sums begin with.
void optim_note_sums(const StepMemory& memory, const View& before, Stream stream);
/// A quantum has ended: its scalars go to `sums`, and the cycle's begin with `before` again.
void optim_take_sums(const StepMemory& memory, const ConstView& before, const View& sums,
                     Stream stream);
/// `gradient` [n], f32 or f64, with scalars `of`, comes into the unit of `sums`.
void optim_convert_gradient(const ConstView& sums, const ConstView& of, const View& gradient,
                            Stream stream);
/// Adds the scalars `more` to `sums`.
void optim_add_sums(const ConstView& more, const View& sums, Stream stream);
/// All quanta are there: the cycle's scalars are `sums` after `before`.
void optim_put_sums(const StepMemory& memory, const ConstView& before, const ConstView& sums,
                    Stream stream);
/// Optimizers that step together, after the norm of each: if a non-finite value keeps one of them
/// from its step, none makes a step.
void optim_join(std::span<const StepMemory> memories, Stream stream);
/// For arenas whose rule has a trust ratio: the ratio of every touched parameter, for the update
/// that follows. Writes nothing else.
void optim_trust_ratios(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                        Stream stream);
/// What a rule of the whole parameter computes from. gradient [n]: of the mean, clipped; zeros if
/// the step does not apply or the parameter is not touched. weight [n]: the master, or without one
/// the weight itself, widened. scalars [2]: the learning rate of its group, and the number of its
/// updates, this one included. All are of the dtype of the arena's gradient, and contiguous.
void optim_inputs(const StepMemory& memory, const OptimizerArena& arena,
                  const ParameterRange& range, const View& gradient, const View& weight,
                  const View& scalars, Stream stream);
/// If the step applies: the states of every touched parameter become the next ones.
void optim_commit(const StepMemory& memory, std::span<const StateCommit> states, Stream stream);
/// If the step applies: every touched parameter takes its update, and the model's copy is rounded
/// from the master. Gradients stay as they are. A parameter that is not touched is neither read nor
/// written. Its moving average goes on all the same, as all do in every applied step:
/// ema += (1 - decay) (weight - ema).
///
/// Then the cycle ends: the kernel counts the step and the updates of each parameter, notes the
/// outcome and empties the cycle. With `moves_scale` it also moves the loss scale; an optimizer
/// that shares its scale leaves that to optim_move_scale.
void optim_update(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                  const math::StepPolicy& policy, bool moves_scale, Stream stream);
/// After the update of all optimizers that share the first one's scaler: its scale moves, once. An
/// overflow in any of them counts as one; without one, so does an applied step in any of them.
/// At most kMaxSharing optimizers; as many in optim_join.
void optim_move_scale(std::span<const StepMemory> memories, const math::ScalePolicy& policy,
                      Stream stream);
/// Which parameters have received a gradient in the cycle: [parameters] of 0 and 1. It is read
/// before the call returns.
void optim_set_touched(const StepMemory& memory, std::span<const std::uint8_t> touched,
                       Stream stream);
/// Weights and their masters, [n] in f16 or bf16 and [n] in f32. A weight that is not its master
/// rounded was written from outside: it becomes the master.
void optim_adopt_weights(const ConstView& weight, const View& master, Stream stream);
/// The weights become the averaged ones, or those of training (math::training_weight), rounded to
/// nearest. Nothing else is written.
void optim_show_weights(const ScheduleFreeWeights& w, bool averaged, Stream stream);
/// A weight that is not what optim_show_weights() made of it was written from outside: it becomes
/// its fast and its averaged weight, and its master.
void optim_adopt_shown(const ScheduleFreeWeights& w, bool averaged, Stream stream);
/// Forgets the cycle's weight and micro-steps.
void optim_reset(const StepMemory& memory, Stream stream);
/// A new schedule of the learning rate: the next step has its value at the number of applied steps.
void optim_set_schedule(const StepMemory& memory, const math::ScheduleTable& schedule,
                        Stream stream);
/// The loss scale from the next micro-step on; its policy counts from the beginning.
void optim_set_scale(const StepMemory& memory, double scale, const math::ScalePolicy& policy,
                     Stream stream);

}  // namespace cpu

/// What a profile counts of the two kernels that go through all arenas. Weights, masters, averages
/// and states are read and written, gradients are read.
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
