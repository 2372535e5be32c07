// A training run in one file: everything that a continued run needs to go on with the same bits.
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
  /// The position of a data::Loader or of data::ResidentBatches, as "loader". The size of the set,
  /// seed and shuffling must be those of the file; batch size and threads may differ.
  RunPart(Resumable& batches);  // NOLINT(google-explicit-constructor)
  RunPart(std::string name, Resumable& batches);
  /// A random stream. default_generator() of the calling thread is part of every run, as "rng",
  /// unless another part has that name. If ranks draw other numbers, the file has the streams of
  /// all. A rank beyond those gets the seed that seed_thread() derives from the first rank's.
  RunPart(std::string name, Generator& generator);
  /// A tensor of your own; load_run() writes into it.
  RunPart(std::string name, const Tensor& tensor);
  /// A number of your own: an epoch, the best loss so far.
  RunPart(std::string name, std::int64_t& number);
  RunPart(std::string name, double& number);

  struct Source;  ///< firn's own

 private:
  friend struct RunAccess;
  std::shared_ptr<const Source> source_;
};

/// A part that an older file may lack: something that the program did not save at first.
///
///   io::load_run("run.safetensors", {net, opt, io::optional_part({"best_loss", best})});
///
/// load_run() leaves the part as it is if the file has no entry of it. If it has one, it must have
/// them all. save_run() always saves the part. An optimizer's weights that the file has under the
/// optimizer's name ("optim.parameters.0.weight") are not looked for under that of a module.
RunPart optional_part(RunPart part);

/// Writes a run to `path`, at any time outside of backward(): in the middle of a cycle too. A
/// loader's position is behind the batch in hand, so save when that was given to backward(), not
/// before: a resumed run would leave it out. The file is safetensors, which Python can open. As
/// with save_safetensors(), `path` is the old file or the new one, whole, after a failure or a
/// crash at any point. Beside the parts it has the CRC-32 of every tensor ("firn.crc32", in the
/// order of the header) and of the header
/// ("firn.header_crc32"). The calling thread waits for the disk.
///
/// If one of the optimizers has ranks (dist::distribute()), all ranks make the call. Rank 0 writes
/// its file: what it has, with the optimizers' state and gradients of all ranks. Of divided state
/// (DistributeOptions::zero) each rank writes its parts to that file, or sends them to rank 0 if it
/// does not find the file. The others return when all is on disk, and throw Error if it could not
/// be written. load_run() reads it on each rank of any number. In mid-cycle, rank 0 then goes on
/// with what all had collected. Its sums are added in another order then, so the run goes on to
/// rounding; between steps it goes on to the bit. In exact mode it also does within a batch, if the
/// call is made in MicroBatch::between. Loaders in the file then stand in front of the batch in
/// hand.
///
/// Ranks that have parts of one model (dist::Mesh) each write a file of their own, by another path:
/// rank 0 of the copies of a part does it. load_run() refuses the file of another part.
///
/// Throws Error if ranks with parts of one model give the same path, two parts have a name in
/// common, a part is given twice or was moved from, a graph is being captured, or a backward() of
/// an optimizer is running or has failed half-way; IoError as save_safetensors() does.
void save_run(const std::string& path, std::span<const RunPart> parts);
inline void save_run(const std::string& path, std::initializer_list<RunPart> parts) {
  save_run(path, std::span<const RunPart>(parts.begin(), parts.size()));
}

struct LoadRunOptions {
  /// Allows an optimizer whose settings are not those of the file: the numbers of its rule, such as
  /// betas and weight decay, clipping, averages, how the loss scale moves. The program's then hold.
  /// What its state has (the learning rate's schedule, the loss scale, the cycle under way) is the
  /// file's in any case. StepOptions::accumulate and max_skips may always differ, as may the
  /// function of optim::Custom.
  bool other_settings = false;
};

/// Puts every part back where save_run() found it: training goes on with the same bits, also after
/// a backward() that failed half-way. Throws Error while one of an optimizer is running. The next
/// loop over a Loader begins behind the batch that was in hand; one that is under way does not go
/// on (data/loader.h).
///
/// Throws IoError, before anything is written, if the file is not a saved run, a byte of it is
/// damaged, or it is not of these parts: names, shapes, dtypes, kinds and settings of optimizers,
/// sizes of data sets. Only an optional_part() may be missing.
/// One error lists all differences. If memory runs out, nothing has been written either. If an
/// optimizer has ranks, all make the call: what fails on one throws on all, and nothing is written.
/// Ranks whose group is broken load each by itself.
void load_run(const std::string& path, std::span<const RunPart> parts,
              const LoadRunOptions& options = {});
inline void load_run(const std::string& path, std::initializer_list<RunPart> parts,
                     const LoadRunOptions& options = {}) {
  load_run(path, std::span<const RunPart>(parts.begin(), parts.size()), options);
}

}  // namespace firn::io
