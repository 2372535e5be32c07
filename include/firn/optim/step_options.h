// Options of a step that all optimizers take beside the numbers of their own rule. Rules such as
// S24 are in docs/semantics.md.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "firn/dtype.h"
#include "firn/optim/loss_scale.h"

namespace firn::optim {

/// Number of micro-steps in a cycle (S24): a constant, one per epoch, or a function of the epoch:
/// `{.accumulate = [](std::int64_t epoch) { return epoch < 4 ? 8 : 2; }}`.
class Accumulate {
 public:
  /// Throws Error unless n >= 1.
  Accumulate(std::int64_t n = 1);  // NOLINT: a number is a constant
  /// {{0, 8}, {4, 2}}: 8 from epoch 0, 2 from epoch 4 on. Throws Error unless epochs begin at 0 and
  /// increase, and every number is 1 or more.
  Accumulate(std::initializer_list<std::pair<std::int64_t, std::int64_t>> by_epoch);
  Accumulate(std::vector<std::pair<std::int64_t, std::int64_t>> by_epoch);
  /// Takes a function of the epoch. Throws Error if it is an empty std::function or a null pointer.
  template <class F>
  requires std::is_invocable_r_v<std::int64_t, F&, std::int64_t> Accumulate(F of_epoch)
      : of_epoch_(std::move(of_epoch)) {  // NOLINT: a function is one of these
    require_function();
  }

  /// Throws Error if the function returns less than 1.
  std::int64_t at(std::int64_t epoch) const;

 private:
  void require_function() const;

  std::function<std::int64_t(std::int64_t)> of_epoch_;
};

/// Memory for an optimizer's state, masters and averages, which it needs once a step.
enum class StateMemory : std::uint8_t {
  device,  ///< beside the weights
  host,    ///< in pinned memory of the host; for CUDA devices, whose kernels reach it over the bus
  file     ///< in a mapped temporary file (FIRN_OFFLOAD_DIR, else TMPDIR, else /tmp); for the CPU
};

/// Exact mode (S39): the same bits however a batch is cut. run_batch() cuts it into chunks of
/// `chunk` samples, by their index, and adds the gradients of the chunks in a binary tree over
/// their numbers. So weights and state have the same bits for any size of micro-batch, any number
/// of threads, and any number of ranks (dist/distribute.h) on one kind of CPU, or of GPU with one
/// set of libraries. The draws of a chunk from default_generator() depend on its number alone; it
/// must not draw from another generator.
///
/// Each chunk is computed separately, whatever the size of the micro-batch, which must be a
/// multiple of `chunk`. So a chunk should be as large as memory and ranks allow: small ones take
/// more time. Gradients need the memory of at most log2(chunks) further copies, and over ranks
/// about the same again while they are exchanged. A run_batch() takes one number of
/// default_generator(), the source of its chunks' numbers.
///
/// run_batch() throws Error for a contrastive loss and for BatchNorm outside of whole_batch mode.
/// It allows both on one rank if the batch is one chunk. Layers with a random stream of their own
/// and backward() by hand throw Error. So does the capture of a batch of several ranks, or of one
/// with whole_batch or MicroBatch::between.
struct Exact {
  std::int64_t chunk = 0;  ///< samples in a chunk; 0: off
};

/// Options of a step, which act in this order (S08, S30): the accumulated sum is un-scaled and
/// divided by the total weight; clip_value; clip_norm; the sign of `maximize`; coupled weight decay
/// (SGD, Adam, NAdam, RAdam, RMSprop, Adagrad, Adadelta); the rule's update with decoupled decay
/// (AdamW, LAMB, Lion, and NAdam and RAdam if asked).
struct StepOptions {
  Accumulate accumulate = 1;  ///< micro-steps in a cycle
  /// Largest norm of the averaged gradient of all parameters; 0: no limit. A longer gradient is
  /// multiplied by clip_norm / (norm + 1e-6), as PyTorch does.
  double clip_norm = 0;
  double clip_value = 0;  ///< largest magnitude of one averaged gradient element; 0: no limit
  /// Steps go up the gradient of the losses instead of down. Weight decay still shrinks weights.
  bool maximize = false;
  /// Loss scaling. The default is dynamic if a parameter is f16, else none: an f32 model under f16
  /// Autocast needs LossScale::dynamic().
  LossScale loss_scale = {};
  /// Loss scale that several optimizers share, given in place of loss_scale. The constructor throws
  /// Error if both are set. The optimizers step by step_all(): step(), run_cycle() and run_batch()
  /// of one alone throw Error.
  LossScaler scaler = {};
  /// Number of steps in a row skipped for a value that is not finite, after which step() throws
  /// (S12) and names it; 0: never. Loss scales that back off have found their level long before.
  std::int64_t max_skips = 50;
  /// Decay, in [0, 1), of an exponential moving average of the weights, kept in f32 (f64 for f64)
  /// and counted in applied steps (S01): average += (1 - ema) (weight - average). 0: none.
  double ema = 0;
  /// Rounds updates of 16-bit parameters stochastically (counter-based, the same bits on every
  /// device), and keeps no f32 masters. The constructor throws Error if no parameter is f16 or
  /// bf16, and for schedule-free rules.
  bool stochastic_rounding = false;
  /// Reserves memory for a copy of the gradients, and copies them before every backward(): if
  /// memory runs out in it, the cycle is as it was before (S37). Else it is dropped.
  bool keep_accumulator = false;
  /// Exact mode: see Exact.
  Exact exact = {};
  /// Memory of state, masters and averages. It does not change the bits of steps. Memory outside of
  /// the device is not counted in memory_stats(). The constructor throws Error for `host` on the
  /// CPU, for `file` on a CUDA device, and if the file has no room.
  StateMemory state_memory = StateMemory::device;
};

/// Treatment of a cycle that was not completed (S04).
enum class Partial : std::uint8_t {
  apply,  ///< a step with the weight that it has
  carry,  ///< the cycle stays, and the next micro-steps complete it
  drop,   ///< its gradients are thrown away
};

}  // namespace firn::optim
