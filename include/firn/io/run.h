// A training run in one file: everything that a resumed run needs to continue with the same bits.
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
namespace firn::data {
class Loader;
class ResidentBatches;
}  // namespace firn::data
namespace firn::nn {
class Module;
}
namespace firn::optim {
class Optimizer;
}

namespace firn::io {

/// A part of a run, by its name in the file. It refers to the object, which must outlive it.
class RunPart {
 public:
  /// Parameters, buffers and the random streams of layers (Dropout's `seed`). Tensors keep their
  /// names; with a name of its own ("generator") they are "generator.fc1.weight".
  RunPart(nn::Module& module);  // NOLINT(google-explicit-constructor): {net, opt}
  RunPart(std::string name, nn::Module& module);
  /// Optimizer::state(), as "optim.parameters.0.first_moment"; another name replaces "optim".
  /// Weights that a module of the same run saves are not saved again, nor are gradients that the
  /// cycle does not have. Throws Error, when saved or loaded, in the scope of AveragedWeights.
  RunPart(optim::Optimizer& optimizer);  // NOLINT(google-explicit-constructor)
  RunPart(std::string name, optim::Optimizer& optimizer);
  /// The position in the data. The size of the set, seed and shuffling must be those of the file;
  /// batch size and threads may differ.
  RunPart(data::Loader& loader);  // NOLINT(google-explicit-constructor)
  RunPart(std::string name, data::Loader& loader);
  /// The position in the data of ResidentBatches, whose batch size may differ from the file's.
  RunPart(data::ResidentBatches& batches);  // NOLINT(google-explicit-constructor)
  RunPart(std::string name, data::ResidentBatches& batches);
  /// A random stream. default_generator() of the calling thread is part of every run, as "rng",
  /// unless another part has that name. If ranks draw different numbers, the file has the
  /// streams of all. A rank beyond those gets the seed that seed_thread() derives from the first
  /// rank's.
  RunPart(std::string name, Generator& generator);
  /// A tensor of your own; load_run() writes into it.
  RunPart(std::string name, const Tensor& tensor);
  /// A number of your own: an epoch, the best loss so far.
  RunPart(std::string name, std::int64_t& number);
  RunPart(std::string name, double& number);

  struct Source;  ///< internal to firn

 private:
  friend struct RunAccess;
  std::shared_ptr<const Source> source_;
};

/// A part that an older file may lack: something that the program did not save at first.
///
///   io::load_run("run.safetensors", {net, opt, io::optional_part({"best_loss", best})});
///
/// load_run() leaves the part as it is if the file has no entry of it. If the file has one entry,
/// it must have them all. save_run() always saves the part. If the file has an optimizer's weights
/// under the optimizer's name ("optim.parameters.0.weight"), load_run() does not look for them
/// under a module's name.
RunPart optional_part(RunPart part);

/// Writes a run to `path`, at any time outside of backward(): in the middle of a cycle too. Save
/// after backward() has used the current batch: the loader's position is already after it, and a
/// resumed run would leave it out. The file is safetensors, which Python can open. As with
/// save_safetensors(), `path` is the old file or the new one, whole, after a failure or a crash at
/// any point. The file also has the CRC-32 of every tensor ("firn.crc32", in the order of the
/// header) and that of the header ("firn.header_crc32"). The calling thread waits for the disk.
///
/// If one of the optimizers has ranks (dist::distribute()), all ranks make the call. Rank 0 writes
/// one file with its parts and the optimizers' state and gradients of all ranks. With sharded state
/// (DistributeOptions::zero) each rank writes its shards to that file, or sends them to rank 0 if
/// it does not find the file. The others return when all is on disk, and throw Error if it could
/// not be written. load_run() can read the file on any number of ranks. In mid-cycle, rank 0 then
/// holds the gradients that all had collected. They are summed in another order, so the run
/// continues equal to rounding; between steps it continues with the same bits. In exact mode it
/// also does within a batch, if the call is made in MicroBatch::between. Loaders in the file then
/// have the position before the current batch.
///
/// Ranks that have shards of one model (dist::Mesh) write several files, each under its own path:
/// for each shard, rank 0 of its copies writes one. load_run() refuses the file of another shard.
///
/// Throws Error if ranks with shards of one model give the same path, two parts have a name in
/// common, a part is given twice or was moved from, or a graph is being captured. Also throws if a
/// backward() of an optimizer is running or has failed half-way. Throws IoError as
/// save_safetensors() does.
void save_run(const std::string& path, std::span<const RunPart> parts);
inline void save_run(const std::string& path, std::initializer_list<RunPart> parts) {
  save_run(path, std::span<const RunPart>(parts.begin(), parts.size()));
}

struct LoadRunOptions {
  /// Allows an optimizer whose settings differ from those of the file: the numbers of its rule,
  /// such as betas and weight decay, clipping, averages, how the loss scale moves. The program's
  /// then hold. The state (the learning rate's schedule, the loss scale, the cycle under way) comes
  /// from the file in any case. StepOptions::accumulate and max_skips may always differ, as may the
  /// function of optim::Custom.
  bool other_settings = false;
};

/// Restores every part to its state at save_run(): training continues with the same bits, also
/// after a backward() that failed half-way. Throws Error while a backward() of an optimizer is
/// running. The next loop over a Loader begins after the batch that was current; a loop under way
/// cannot continue (data/loader.h).
///
/// Throws IoError, before anything is written, if the file is not a saved run, a byte of it is
/// damaged, or it does not match these parts: names, shapes, dtypes, kinds and settings of
/// optimizers, sizes of data sets. Only an optional_part() may be missing.
/// One error lists all differences. If memory runs out, nothing has been written either. If an
/// optimizer has ranks, all make the call: a failure on one throws on all, and nothing is written.
/// Ranks whose group is broken each load by themselves.
void load_run(const std::string& path, std::span<const RunPart> parts,
              const LoadRunOptions& options = {});
inline void load_run(const std::string& path, std::initializer_list<RunPart> parts,
                     const LoadRunOptions& options = {}) {
  load_run(path, std::span<const RunPart>(parts.begin(), parts.size()), options);
}

}  // namespace firn::io
