#include "train/fit/saver.h"

#include "base/check.h"
#include "firn/nn/module.h"

namespace firn::train {

Saver::Saver(const FitOptions& options, const Parts& parts, io::RunPart data, Position& position,
             const RunLog& log, bool leads)
    : plan_(options.checkpoint), position_(position), log_(log) {
  const char* const op = "fit";
  if (plan_.folder.empty()) {
    FIRN_CHECK(plan_.every == 0 && plan_.parts.empty(), op, "give checkpoint.folder too",
               "checkpoint.{} says what is saved, but not where",
               plan_.every != 0 ? "every" : "parts");
    return;
  }
  FIRN_CHECK(plan_.every >= 0, op, "0: at the end of an epoch alone", "checkpoint.every is {}",
             plan_.every);
  checkpoints_.emplace(plan_.folder, io::CheckpointsOptions{.keep = plan_.keep,
                                                            .best = options.early_stop.highest
                                                                        ? io::BestMetric::highest
                                                                        : io::BestMetric::lowest,
                                                            .async = plan_.async});
  if (leads) lock_.emplace(op, plan_.folder, io::LockedFolder::IfLocked::fail);
  for (const auto& [name, module] : parts.modules)
    parts_.push_back(name.empty() ? io::RunPart(module) : io::RunPart(name, module));
  for (const auto& [name, optimizer] : parts.optimizers)
    parts_.push_back(name.empty() ? io::RunPart(optimizer)
                                  : io::RunPart("optim." + name, optimizer));
  parts_.push_back(std::move(data));
  parts_.insert(parts_.end(), plan_.parts.begin(), plan_.parts.end());
  parts_.emplace_back("fit.epochs", position_.epochs);
  parts_.emplace_back("fit.samples", position_.samples);
  parts_.emplace_back("fit.log_bytes", position_.log_bytes);
  parts_.emplace_back("fit.best", position_.best);
  parts_.emplace_back("fit.best_epoch", position_.best_epoch);
  parts_.emplace_back("fit.last", position_.last);
  parts_.emplace_back("fit.gained", position_.gained);
  parts_.emplace_back("fit.gained_epoch", position_.gained_epoch);
  for (std::size_t i = 0; i < position_.before.size(); ++i) {
    const std::string name = "fit.before." + std::to_string(i);
    parts_.emplace_back(name + ".loss", position_.before[i].loss);
    parts_.emplace_back(name + ".weight", position_.before[i].weight);
  }
}

std::optional<std::string> Saver::resume() {
  if (!checkpoints_) return {};
  if (!plan_.resume) {
    if (!checkpoints_->list().empty())
      throw IoError("fit", plan_.folder, "has checkpoints of an earlier run",
                    "let checkpoint.resume go on with it, or give another folder");
    return {};
  }
  const auto found = checkpoints_->resume(parts_);
  if (!found) return {};
  saved_ = found->step;
  return found->path;
}

void Saver::save(std::int64_t applied, std::optional<double> metric) {
  if (!checkpoints_) return;
  position_.log_bytes = log_.bytes();
  checkpoints_->save(applied, parts_, metric);
  saved_ = applied;
}

void Saver::wait() {
  if (checkpoints_) checkpoints_->wait();
}

}  // namespace firn::train
