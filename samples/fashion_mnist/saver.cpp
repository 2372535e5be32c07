#include "saver.h"

#include <cstdio>

#include "firn/firn.h"
#include "firn/optim/optim.h"

namespace sample {

Saver::Saver(const Options& options, Trainer& trainer, firn::optim::Optimizer& optimizer,
             RunLog& log, bool leads)
    : options_(options),
      optimizer_(optimizer),
      log_(log),
      leads_(leads),
      cycles_(options.checkpoint_every) {
  if (options.checkpoint.empty()) return;
  checkpoints_.emplace(options.checkpoint, firn::io::CheckpointsOptions{
                                               .keep = 3, .best = firn::io::BestMetric::lowest});
  parts_ = trainer.parts();
  parts_.emplace_back("epochs_done", epochs_done_);
  parts_.emplace_back("log_bytes", log_bytes_);
}

bool Saver::resume() {
  if (!checkpoints_) return false;
  if (!options_.resume) {
    if (!checkpoints_->list().empty())
      throw firn::IoError("checkpoint", options_.checkpoint, "has checkpoints of an earlier run",
                          "give --resume to go on with it, or another folder");
    return false;
  }
  const auto found = checkpoints_->resume(parts_);
  if (!found) return false;
  saved_ = found->step;
  if (leads_)
    std::printf("resumed after step %lld from %s\n", static_cast<long long>(found->step),
                found->path.c_str());
  return true;
}

void Saver::save(std::int64_t step, std::optional<double> metric) {
  log_bytes_ = log_.bytes();
  checkpoints_->save(step, parts_, metric);  // with ranks: that of the first one
  saved_ = step;
  cycles_ = options_.checkpoint_every;
}

void Saver::after_batch() {
  // So many steps cannot have been applied before as many cycles have ended, so the device is asked
  // no earlier: skipped steps only make it later.
  if (!checkpoints_ || options_.checkpoint_every == 0 || optimizer_.cycle_position() != 0) return;
  if (--cycles_ > 0) return;
  const std::int64_t applied = optimizer_.last_report().applied_steps();
  cycles_ = saved_ + options_.checkpoint_every - applied;
  if (cycles_ <= 0) save(applied);
}

void Saver::after_epoch(double test_loss) {
  ++epochs_done_;
  if (checkpoints_) save(optimizer_.last_report().applied_steps(), test_loss);
}

std::optional<std::string> Saver::interrupted() {
  if (!checkpoints_) return std::nullopt;
  const std::int64_t applied = optimizer_.last_report().applied_steps();
  save(applied);
  return "the run is saved in " + options_.checkpoint + " after step " + std::to_string(applied) +
         "; the same command with --resume goes on";
}

}  // namespace sample
