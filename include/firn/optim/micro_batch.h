// Micro-batches into which run_batch() cuts a batch, and its reaction if memory runs out. Rules
// such as S22 are in docs/semantics.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace firn::optim {

/// Samples in one micro-batch, given or planned:
///
///   opt.run_batch(1024, {.size = 256}, loss);                      // halved if memory runs out
///   opt.run_batch(1024, optim::MicroBatch::within(512 << 20), loss);  // as large as fits
///
/// The gradient is that of the whole batch for any size (S29), but for layers that normalise by
/// micro-batch, such as BatchNorm in most of its modes.
struct MicroBatch {
  /// 0: the largest size whose cycle has a planned peak within `budget`. The first call plans it;
  /// later calls with the same request use it again, also if their samples are larger.
  std::int64_t size = 0;
  /// Bytes in use on the device, of all owners; 0: the allocator's limit. run_batch() throws Error
  /// if it has to plan a size without a limit, and if `size` and `budget` are both set.
  std::size_t budget = 0;
  /// If memory runs out, run_batch() starts the cycle again with half the size (S22). Random
  /// streams, running statistics and positions of loaders go back first. Later calls begin with the
  /// size that worked. In exact mode run_batch() throws OutOfMemory instead, since a chunk cannot
  /// be cut.
  bool halve_on_out_of_memory = true;
  /// Lets a plan or a halving cut a batch whose samples a layer normalises together. Without it,
  /// run_batch() refuses, and names the layer.
  bool split_statistics = false;
  /// For exact mode only (StepOptions::exact): called on all ranks after each round of chunks but
  /// the last. In a round each rank computes one chunk or none, so more ranks make fewer calls.
  /// `done` counts these calls from 1 on, and anew after a load. The function can save the run
  /// (io::save_run()).
  ///
  /// After load_run(), call run_batch() again with the same batch: it continues after the saved
  /// round. The bits are those of the unbroken run, on any number of ranks. Only the size of the
  /// batch is compared. A Loader that is saved with the run begins with that batch. If several
  /// optimizers train on one batch, skip run_batch() of those that had already made its step
  /// (StepReport::applied_steps()). Draw random numbers in `loss`, and none between the loader and
  /// run_batch(); draws of `between` do not count. Throws Error in another mode, and if a layer
  /// needs all chunks at a time (BatchNormMode::whole_batch).
  std::function<void(std::int64_t done)> between = {};

  /// Plans the largest size that fits into `bytes` bytes in use on the device.
  static MicroBatch within(std::size_t bytes) { return {.size = 0, .budget = bytes}; }
};

}  // namespace firn::optim
