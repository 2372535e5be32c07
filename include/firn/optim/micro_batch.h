// Micro-batches into which run_batch() cuts a batch, and its reaction if memory runs out.
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
  std::size_t budget = 0;  ///< bytes in use on the device, all owners; 0: the allocator's limit
  /// If memory runs out, the cycle begins anew with half the size: random streams, running
  /// statistics and positions of loaders go back (S22). Later calls begin with the size that
  /// worked.
  bool halve_on_out_of_memory = true;
  /// Lets a plan or a halving cut a batch whose samples a layer normalises together. Without it,
  /// run_batch() refuses, and names the layer.
  bool split_statistics = false;
  /// For exact mode only (StepOptions::exact): called after each chunk but the last. `done` is the
  /// number of calls so far: from 1 on, and anew after a load. It counts the chunks of the rank
  /// that has most of them, so more ranks make fewer calls, and all ranks make the same ones. The
  /// run can be saved in it (io::save_run()), and goes on within the batch, with the bits of the
  /// unbroken run, on any number of ranks: after load_run() take the same batch, and call
  /// run_batch() again. Only its size is compared. A Loader that is saved with the run begins with
  /// that batch. If several optimizers are given the batch, skip those that had ended it before the
  /// save (StepReport::applied_steps()). Draw random numbers in `loss`, and none between the loader
  /// and run_batch(); draws of `between` do not count. Throws Error in another mode, and if a layer
  /// needs all chunks at a time (BatchNormMode::whole_batch).
  std::function<void(std::int64_t done)> between = {};

  /// Plans the largest size that fits into `bytes` bytes in use on the device.
  static MicroBatch within(std::size_t bytes) { return {.size = 0, .budget = bytes}; }
};

}  // namespace firn::optim
