// A training run in one file. The file has everything that a run needs to continue with the same
// bits.
//
//   const std::vector<io::RunPart> run = {net, opt, loader};
//   if (std::filesystem::exists("run.safetensors")) io::load_run("run.safetensors", run);
//   for (std::int64_t e = loader.position().epoch; e < 10; ++e)
//     for (const auto& batch : loader.epoch(e)) { ...; io::save_run("run.safetensors", run); }
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "firn/tensor.h"

namespace firn {
class Generator;
}
namespace firn::nn {
class Module;
}
namespace firn::optim {
class Optimizer;
}

namespace firn::io {

class Resumable;

/// A part of a run, with its name in the file. It refers to the object, which must outlive it.
class RunPart {
 public:
  /// Parameters, buffers and the random streams of layers (Dropout's `seed`). Tensors keep their
  /// names; if the part has the name "generator", they are "generator.fc1.weight".
  RunPart(nn::Module& module);  // NOLINT(google-explicit-constructor): {net, opt}
  RunPart(std::string name, nn::Module& module);
  /// Optimizer::state(), as "optim.parameters.0.first_moment"; another name replaces "optim".
  /// Weights that a module of the run already saves are not saved again, and a gradient is saved
  /// only if the cycle has it. In the scope of AveragedWeights, saving and loading throw Error.
  RunPart(optim::Optimizer& optimizer);  // NOLINT(google-explicit-constructor)
  RunPart(std::string name, optim::Optimizer& optimizer);
  /// The position of a data::Loader or of data::ResidentBatches, as "loader". load_run() compares
  /// their order_description(): size of the set, seed, shuffling, weights and lengths. Batch size
  /// and threads may differ; with lengths, the batch size and the window must be equal too.
  RunPart(Resumable& batches);  // NOLINT(google-explicit-constructor)
  RunPart(std::string name, Resumable& batches);
  /// A random stream. default_generator() of the calling thread is part of every run, as "rng",
  /// unless another part has that name. If the ranks' streams differ, the file has the streams of
  /// all ranks. A rank beyond those gets the seed that seed_thread() derives from the first rank's.
  RunPart(std::string name, Generator& generator);
  /// A tensor of your own; load_run() writes into it.
  RunPart(std::string name, const Tensor& tensor);
  /// A number of your own, such as an epoch or the best loss so far.
  RunPart(std::string name, std::int64_t& number);
  RunPart(std::string name, double& number);

  struct Source;  ///< internal

 private:
  friend struct RunAccess;
  std::shared_ptr<const Source> source_;
};

/// Makes a part that an older file may lack because the program did not save it at first.
///
///   io::load_run("run.safetensors", {net, opt, io::optional_part({"best_loss", best})});
///
/// load_run() leaves the part unchanged if the file has no entry of it. If the file has one entry,
/// it must have all. save_run() always saves the part. load_run() looks for an optimizer's weights
/// under the name that the file gives them ("optim.parameters.0.weight"). It does not look for them
/// under that of a module.
RunPart optional_part(RunPart part);

/// Writes a run to `path`, at any time outside backward(), also in the middle of a cycle. The
/// loader's position is after the current batch. So save once backward() has used that batch:
/// otherwise a resumed run would leave it out. The file is safetensors, which Python can open. As
/// with save_safetensors(), after a failure or a crash at any point `path` is either the complete
/// old file or the complete new one. The file also has the CRC-32 of every tensor ("firn.crc32", in
/// the order of the header) and of the header ("firn.header_crc32"). The calling thread waits for
/// the disk.
///
/// If one of the optimizers has ranks (dist::distribute()), all ranks make the call. Rank 0 writes
/// its own parts, with the optimizers' state and gradients of all ranks. Each rank writes its
/// shards of sharded state (DistributeOptions::zero) to that file, or sends them to rank 0 if it
/// does not find the file. The other ranks return when everything is on disk, and throw Error if it
/// could not be written. Any number of ranks can load_run() the file. In mid-cycle, rank 0 then
/// continues with the gradients that all ranks had collected. Their sum has another order, so the
/// run continues up to rounding; between steps it continues to the bit. All ranks continue with
/// rank 0's buffers, such as running statistics. Those of BatchNormMode::per_micro_batch differ
/// between ranks, and load_run() warns of them; per_step and whole_batch keep them equal. In exact
/// mode it also does so within a batch, if the call is made in MicroBatch::between. Loaders in the
/// file are then before the current batch.
///
/// Ranks that have parts of one model (dist::Mesh) write separate files by different paths. Rank 0
/// among the copies of a part writes that part's file. load_run() refuses the file of another part.
///
/// Throws Error if ranks with parts of one model give the same path, or if two parts have a name in
/// common. Throws Error if a part is given twice or was moved from, or while a graph is captured.
/// Throws Error if a backward() of an optimizer is running or has failed half-way. Throws IoError
/// as save_safetensors() does.
void save_run(const std::string& path, std::span<const RunPart> parts);
inline void save_run(const std::string& path, std::initializer_list<RunPart> parts) {
  save_run(path, std::span<const RunPart>(parts.begin(), parts.size()));
}

struct LoadRunOptions {
  /// Allows an optimizer whose settings differ from the file's: the constants of its rule, such as
  /// betas and weight decay, clipping, averages, and how the loss scale changes. The program's
  /// settings then hold. The optimizer's state (learning-rate schedule, loss scale, current cycle)
  /// always comes from the file. A setting may switch on averages, momentum, masters or other
  /// parts. These begin as before a first step: averages and masters with the loaded weights.
  /// load_run() drops parts that are off here. StepOptions::accumulate and max_skips may always
  /// differ, as may the function of optim::Custom.
  bool other_settings = false;
};

/// Restores every part to its state in save_run(): training continues with the same bits, even if a
/// backward() has failed half-way. Tensor::grad() shows the gradients of a loaded cycle at once.
/// Throws Error while a backward() of one of the optimizers is running. The next loop over a Loader
/// begins after the batch that was current; a loop that is running does not continue
/// (data/loader.h). The RollbackPoints of this thread begin anew: they go back to the run as it was
/// loaded.
///
/// Throws IoError, before anything is written, if the file is not a saved run or a byte of it is
/// damaged. Throws IoError if the file does not fit these parts: names, shapes, dtypes, kinds and
/// settings of optimizers, sizes of data sets, and the memory formats of weights with 8-bit states.
/// Only an optional_part() may be missing. One error lists all differences. If memory runs out,
/// nothing has been written either. If an optimizer has ranks, all make the call: an error on one
/// rank throws on all, and nothing is written. If the group of the ranks is broken, each loads
/// independently.
void load_run(const std::string& path, std::span<const RunPart> parts,
              const LoadRunOptions& options = {});
inline void load_run(const std::string& path, std::initializer_list<RunPart> parts,
                     const LoadRunOptions& options = {}) {
  load_run(path, std::span<const RunPart>(parts.begin(), parts.size()), options);
}

}  // namespace firn::io
