// Contract of the optimizer's kernels. A micro-step starts with begin; a boundary step is norm and
// update, with the trust ratios between them where the rule has such. All that they decide lives in
// StepState, in device memory.
//
// An arena is a flat run of parameters of one group and dtype: element i of the weights, gradients
// and states belong together. Each parameter begins at a multiple of 64 bytes, and zeros follow it
// up to the next, which kernels may read and write, as zeros. The gradient of a parameter that is
// not touched may be anything, infinities and NaNs included: the first contribution of a cycle is
// stored over it. An arena is cut into chunks of equal size, a multiple of 1024, whatever
// parameters they hold, so that threads and blocks get equal work; a chunk is a list of pieces,
// each of one parameter. Chunks are numbered in the order in which threads should share them; where
// the rule has a trust ratio, the pieces of a parameter follow one another.
#pragma once

#include <span>
#include <variant>

#include "kernels/dispatch.h"
#include "kernels/math/optim.h"
#include "kernels/plan/step_memory.h"

namespace firn::kernels {

using UpdateRule =
    std::variant<math::Sgd, math::SgdMomentum, math::Adam, math::RmsProp<false, false>,
                 math::RmsProp<false, true>, math::RmsProp<true, false>, math::RmsProp<true, true>,
                 math::Adagrad, math::Lamb, math::Lion>;

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
  double largest;          ///< magnitude; 0 where the scale is not being calibrated
  std::int64_t culprit;    ///< first parameter with a gradient that is not finite, -1: none
};

/// What one piece contributes to the norms of its parameter that make up a trust ratio. Added up in
/// the order of the pieces.
struct TrustPartial {
  double weight, update;  ///< sums of squares
};

/// One arena. `weight` is [n] in the model's dtype; `grad`, `states`, `master` and `ema` are [n]
/// f32, or f64 for f64 weights. Without a master (data == nullptr) the weight is its own, and where
/// it is f16 or bf16, updates are rounded stochastically: element i of the arena with this `index`
/// in the step after k applied ones by word (i mod 4) of the Philox block with counter {i/4, index}
/// and key k. ema.data == nullptr: no average is kept.
struct OptimizerArena {
  View weight, master, grad, ema;
  std::int64_t index = 0;
  View states[kMaxOptimizerStates];
  UpdateRule rule;
  double lr_scale = 1;  ///< multiplies the learning rate of StepState

  std::int64_t chunks = 0;
  const std::int64_t* chunk_pieces = nullptr;  ///< [chunks + 1]: pieces of chunk c are [c], [c + 1]
  const Piece* pieces = nullptr;
  NormPartial* partials = nullptr;  ///< [chunks] workspace; arena after arena in one block

  // Only where the rule has a trust ratio: workspace.
  TrustPartial* trust_partials = nullptr;  ///< [pieces]
  double* trust_ratios = nullptr;          ///< [parameters]
};

namespace cpu {

/// Begins a micro-step, and expresses the arenas in its unit where that changes. They may be empty
/// in the first micro-step of a cycle, which has nothing to express anew.
void optim_begin(const MicroStep& micro_step, std::span<const OptimizerArena> arenas,
                 Stream stream);
/// Norm and finite check of all touched gradients, then the decision (math::decide).
void optim_norm(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                const math::StepPolicy& policy, Stream stream);
/// Optimizers that step together, after the norm of each: where a value that is not finite keeps
/// one of them from its step, none makes one.
void optim_join(std::span<const StepMemory> memories, Stream stream);
/// Of arenas whose rule has a trust ratio: the ratio of every touched parameter, for the update to
/// come. Writes nothing else.
void optim_trust_ratios(const StepMemory& memory, std::span<const OptimizerArena> arenas,
                        Stream stream);
/// If the step applies: every touched parameter takes its update, and the model's copy is rounded
/// from the master. Gradients stay as they are. A parameter that is not touched is neither read nor
/// written, but for its moving average, which goes on in every applied step:
/// ema += (1 - decay) (weight - ema). Then the cycle ends: counters of the step and of the
/// parameters it updated, the outcome, and an empty cycle; and with `moves_scale` the loss scale
/// moves, which has no other optimizer to wait for.
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
/// Weights and their masters, [n] in f16 or bf16 and [n] in f32: where a weight is not its master
/// rounded, it was written from outside, and becomes the master.
void optim_adopt_weights(const ConstView& weight, const View& master, Stream stream);
/// Forgets the cycle's weight and micro-steps.
void optim_reset(const StepMemory& memory, Stream stream);
/// A new schedule of the learning rate: the next step has its value at the number of applied steps.
void optim_set_schedule(const StepMemory& memory, const math::ScheduleTable& schedule,
                        Stream stream);
/// The loss scale from the next micro-step on; its policy counts from the beginning.
void optim_set_scale(const StepMemory& memory, double scale, const math::ScalePolicy& policy,
                     Stream stream);

}  // namespace cpu

FIRN_KERNEL(optim_begin)
FIRN_KERNEL(optim_norm)
FIRN_KERNEL(optim_trust_ratios)
FIRN_KERNEL(optim_update)
FIRN_KERNEL(optim_set_touched)
FIRN_KERNEL(optim_adopt_weights)
FIRN_KERNEL(optim_reset)
FIRN_KERNEL(optim_set_schedule)
FIRN_KERNEL(optim_join)
FIRN_KERNEL(optim_move_scale)
FIRN_KERNEL(optim_set_scale)

}  // namespace firn::kernels
