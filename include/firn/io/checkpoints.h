// A folder of saved runs that keeps the newest few and the best one. A run that was stopped
// continues from the newest.
//
//   io::Checkpoints checkpoints("run", {.keep = 3});
//   std::int64_t step = 0;
//   const std::vector<io::RunPart> parts = {net, opt, loader, {"step", step}};
//   checkpoints.resume(parts);  // starts fresh if there is none
//   ...
//   if (step % 1000 == 0) checkpoints.save(step, parts);
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "firn/io/run.h"

namespace firn::io {

/// Selects the checkpoint that is kept at any age: the one with the lowest or highest metric, or
/// none.
enum class BestMetric : std::uint8_t { none, lowest, highest };

struct CheckpointsOptions {
  int keep = 3;  ///< number of newest checkpoints to keep; at least 1
  /// Selects the best metric; with `none` no checkpoint counts as the best.
  BestMetric best = BestMetric::none;
  /// save() copies the run to memory of the CPU and returns; a thread writes the file. The copy
  /// stays allocated for the next save().
  bool async = false;
};

/// A file of save_run() in the folder, named "step-000000001000.safetensors".
struct Checkpoint {
  std::string path;       ///< path of the file, the folder included
  std::int64_t step = 0;  ///< step that save() was given
  /// Metric that save() was given, for instance a validation loss; NaN if save() was given none.
  double metric = std::numeric_limits<double>::quiet_NaN();
};

/// Saves runs to a folder and resumes from it. One object at a time writes to a folder, and one
/// thread at a time uses the object.
///
/// save() writes the file as save_run() does, then removes older ones. So a crash at any point
/// leaves at least the checkpoints that were kept before. There may be one more, which the next
/// save removes. The disk needs room for keep + 1 files, and for one more with BestMetric. Save
/// after backward() has used the current batch: see save_run(). resume() overwrites learning rate,
/// loss scale and counters with those of the file, so change them after it. Options outside the
/// state, such as Adam's betas, clipping and averages, must equal the file's, unless
/// LoadRunOptions::other_settings is set.
class Checkpoints {
 public:
  /// Makes the folder if it is missing; its parent must exist. A relative name is resolved now, so
  /// a later chdir() does not change it. Throws IoError if the folder cannot be made or read, and
  /// Error unless keep >= 1.
  explicit Checkpoints(std::string folder, const CheckpointsOptions& options = {});
  /// Waits for a running save. Warns (firn/warning.h) if it failed and no call has thrown its
  /// error.
  ~Checkpoints();
  Checkpoints(Checkpoints&&) noexcept;
  Checkpoints& operator=(Checkpoints&&) noexcept;

  // After an object is moved from, each of its functions throws Error.

  /// Loads the newest checkpoint into the parts, as load_run() does, and returns it. Returns
  /// nullopt if the folder has no checkpoint. Skips a damaged checkpoint, with a warning that names
  /// it. Throws IoError if all are damaged, or if the newest undamaged one belongs to another run.
  std::optional<Checkpoint> resume(std::span<const RunPart> parts,
                                   const LoadRunOptions& options = {});
  std::optional<Checkpoint> resume(std::initializer_list<RunPart> parts,
                                   const LoadRunOptions& options = {}) {
    return resume(std::span<const RunPart>(parts.begin(), parts.size()), options);
  }

  /// Saves the run as the checkpoint of `step`, with an optional `metric` for BestMetric. Steps
  /// must increase, but the last one may be saved again. Waits first if another save is running.
  ///
  /// Throws Error if step < 0. Throws Error if the folder had checkpoints and neither resume() nor
  /// discard_after() was called: they belong to another run. Throws as save_run() does. With
  /// `async`, the next save(), wait() or resume() throws an error of the disk. save() still starts
  /// its own write then.
  ///
  /// If an optimizer has ranks, all of them make the call, as with save_run(), each with the
  /// Checkpoints of one common folder. With `async`, rank 0 copies the state of all ranks, and only
  /// rank 0 throws an error of the disk.
  void save(std::int64_t step, std::span<const RunPart> parts, std::optional<double> metric = {});
  void save(std::int64_t step, std::initializer_list<RunPart> parts,
            std::optional<double> metric = {}) {
    save(step, std::span<const RunPart>(parts.begin(), parts.size()), metric);
  }

  /// Waits until the last save() is on disk. Throws its error if it failed.
  void wait();

  /// Removes the checkpoints of later steps, so that a run continues from an older one:
  ///
  ///   const auto best = checkpoints.best();
  ///   io::load_run(best->path, parts);
  ///   checkpoints.discard_after(best->step);
  ///
  /// Waits for a running save. Throws IoError if a checkpoint cannot be removed.
  void discard_after(std::int64_t step);

  /// Returns the checkpoints on disk, by step. A damaged one has the metric NaN. Waits for a
  /// running save. Throws IoError if the folder cannot be read.
  std::vector<Checkpoint> list() const;
  /// Returns the checkpoint with the best metric (BestMetric), or nullopt if none has a metric.
  /// load_run() loads it. Throws Error if CheckpointsOptions::best is none.
  std::optional<Checkpoint> best() const;

  const std::string& folder() const;  ///< folder of the checkpoints

 private:
  struct State;
  State& state() const;
  std::unique_ptr<State> state_;
};

}  // namespace firn::io
