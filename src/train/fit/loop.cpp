#include "train/fit/loop.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>

#include "base/check.h"
#include "firn/nn/module.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"
#include "optim/inside.h"
#include "train/fit/kept_report.h"

namespace firn::train {
namespace {

constexpr const char* kOp = "fit";
constexpr std::string_view kLogBegin = "{\"record\":\"run\"";

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Throws Error if two objects have a name in common, or one of several has no name.
template <class T>
void check_names(const std::vector<Named<T>>& all, const char* what) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    FIRN_CHECK(all.size() == 1 || !all[i].name.empty(), kOp,
               "log and checkpoints tell them apart by their names", "{} {} of {} has no name",
               what, i, all.size());
    for (std::size_t k = 0; k < i; ++k)
      FIRN_CHECK(all[k].name != all[i].name, kOp, "name each once", "two {}s are called \"{}\"",
                 what, all[i].name);
  }
}

/// Returns the options; throws Error if they contradict each other.
const FitOptions& checked(const Parts& parts, const FitOptions& o, const dist::Group& group) {
  FIRN_CHECK(!parts.optimizers.empty(), kOp, "give the optimizers that step",
             "there is no optimizer");
  check_names(parts.modules, "module");
  check_names(parts.optimizers, "optimizer");
  require_named(kOp, "Partial", o.partial, optim::Partial::drop);
  FIRN_CHECK(o.epochs >= 1, kOp, "give 1 or more", "epochs is {}", o.epochs);
  FIRN_CHECK(o.log.every >= 0, kOp, "0: no records of steps", "log.every is {}", o.log.every);
  FIRN_CHECK(!o.log.path.empty() || (o.log.every == 0 && o.log.settings.empty()), kOp,
             "give log.path too", "log.{} says what is written, but not where",
             o.log.every > 0 ? "every" : "settings");
  FIRN_CHECK(!o.validate || !o.evaluate, kOp, "give one of them",
             "both validate and evaluate say how an epoch is evaluated");
  FIRN_CHECK(o.metrics.empty() || o.validate, kOp, "give validate, a Loader",
             "there are metrics, and nothing to compute them on");
  std::vector<std::string> values = {"loss"};
  for (std::size_t i = 0; i < o.metrics.size(); ++i) {
    FIRN_CHECK(o.metrics[i], kOp, "give std::make_shared of a metric",
               "metric {} is a null pointer", i);
    for (const metrics::Value& v : o.metrics[i]->values()) {
      FIRN_CHECK(std::find(values.begin(), values.end(), v.name) == values.end(), kOp,
                 "leave one of them out", "two metrics have a value \"{}\"", v.name);
      values.push_back(v.name);
    }
  }
  FIRN_CHECK(o.early_stop.patience >= 0 && o.early_stop.least_gain >= 0, kOp, "both are 0 or more",
             "early_stop has patience {} and least_gain {}", o.early_stop.patience,
             o.early_stop.least_gain);
  // evaluate and callbacks say only later what they add.
  FIRN_CHECK(o.evaluate || o.callbacks.on_epoch_end ||
                 std::find(values.begin(), values.end(), o.early_stop.value) != values.end(),
             kOp, fmt::format("there is {}", fmt::join(values, ", ")),
             "early_stop looks at \"{}\", which no metric has", o.early_stop.value);
  FIRN_CHECK(o.limit.steps >= 0 && o.limit.seconds >= 0, kOp, "0: no limit",
             "limit is {} steps and {} seconds", o.limit.steps, o.limit.seconds);
  for (std::size_t i = 0; i < parts.optimizers.size(); ++i) {
    const auto& [name, optimizer] = parts.optimizers[i];
    for (std::size_t k = 0; k < i; ++k)
      FIRN_CHECK(&parts.optimizers[k].object.get() != &optimizer.get(), kOp, "give it once",
                 "optimizers {} and {} are the same one", k, i);
    const auto ranks = optim::ranks_of(optimizer);
    const bool distributed = ranks.copies || ranks.model;
    FIRN_CHECK(distributed == (group.size() > 1), kOp,
               distributed ? "give the Loader, or FitOptions, the group"
                           : "call dist::distribute() for each optimizer first",
               "the optimizer {} {} other ranks, and the group has {}",
               name.empty() ? optim::name_of(optimizer) : name, distributed ? "has" : "has no",
               group.size());
  }
  return o;
}

}  // namespace

const char* to_string(Ended ended) noexcept {
  switch (ended) {
    case Ended::epochs:
      return "epochs";
    case Ended::early_stop:
      return "early_stop";
    case Ended::limit:
      return "limit";
    case Ended::interrupted:
      return "interrupted";
    default:
      return "asked";
  }
}

namespace {

const char* reason_in_words(Ended ended) {
  switch (ended) {
    case Ended::early_stop:
      return "early_stop: the value got no better";
    case Ended::limit:
      return "the limit";
    case Ended::interrupted:
      return "a signal";
    default:
      return "a callback";
  }
}

}  // namespace

double EpochReport::value(const std::string& name) const {
  if (name == "loss") return validated ? validation_loss : train_loss;
  std::string names = "loss";
  for (const metrics::Value& m : metrics) {
    if (m.name == name) return m.value;
    names += ", " + m.name;
  }
  detail::fail(kOp, "give one of: " + names, "an epoch has no value \"{}\"", name);
}

FitLoop::FitLoop(const Parts& parts, Feed& feed, Objective objective, const FitOptions& options,
                 const dist::Group& group)
    : parts_(parts),
      feed_(feed),
      objective_(std::move(objective)),
      options_(checked(parts, options, group)),
      group_(group),
      interrupts_(options.handle_interrupts),
      at_{.before = std::vector<optim::LossTotals>(parts.optimizers.size()),
          .last = room_for_report()},
      saver_(options, parts, feed.part(), at_, log_, group.rank() == 0) {}

double FitLoop::seconds() const { return seconds_between(begin_, Clock::now()); }

std::int64_t FitLoop::applied_steps() const {
  return parts_.optimizers[0].object.get().last_report().applied_steps();
}

std::int64_t FitLoop::ended_cycles() const {
  return optim::progress_of(parts_.optimizers[0].object).cycles;
}

Device FitLoop::device() const { return optim::device_of(parts_.optimizers[0].object); }

void FitLoop::start() {
  // Sets a model that was just evaluated to training. Submodules of one in training do not change.
  for (const auto& module : parts_.modules)
    if (!module.object.get().training()) module.object.get().train();
  for (std::size_t i = 0; i < parts_.optimizers.size(); ++i)
    at_.before[i] = parts_.optimizers[i].object.get().loss_totals();
  result_.resumed = saver_.resume();
  if (!result_.resumed)
    for (const auto& [name, optimizer] : parts_.optimizers) {
      FIRN_CHECK(optim::progress_of(optimizer).micro_steps == 0, kOp,
                 "call flush() or zero_grad() before",
                 "the optimizer {} is in the middle of a cycle",
                 name.empty() ? optim::name_of(optimizer) : name);
    }
  if (leads()) open_log();
  if (result_.resumed && leads() && options_.progress) {
    fmt::print("resumed after step {} from {}\n", grouped(applied_steps()), *result_.resumed);
    std::fflush(stdout);
  }
  const bool steps = (options_.log.every > 0 && log_.is_open()) || options_.callbacks.on_step;
  if (steps)
    for (std::size_t i = 0; i < parts_.optimizers.size(); ++i)
      listeners_.emplace_back(parts_.optimizers[i].object, [this, i, cpu = device().is_cpu()](
                                                               const optim::StepReport& report) {
        // On a device the next step overwrites the report of the last one.
        if (!cpu) std::erase_if(steps_, [i](const auto& s) { return s.first == i; });
        steps_.emplace_back(i, report);
      });
  if (options_.callbacks.on_start) options_.callbacks.on_start(*this);
}

void FitLoop::open_log() {
  const std::string& path = options_.log.path;
  if (path.empty()) return;
  std::error_code none;
  const auto size = std::filesystem::file_size(path, none);
  // If the log was removed, it begins anew, with the record "run".
  const bool there = result_.resumed && !none && size > 0;
  if (there) {
    std::ifstream file(path, std::ios::binary);
    std::string begin(kLogBegin.size(), '\0');
    file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
    const char* const hint = "give its log, another path, or take the file away";
    if (begin != kLogBegin) throw IoError(kOp, path, "is no log of a run", hint);
    if (at_.log_bytes == 0 || size < static_cast<std::uintmax_t>(at_.log_bytes))
      throw IoError(
          kOp, path,
          fmt::format("has {} bytes, and the checkpoint knows of {}", size, at_.log_bytes), hint);
  }
  log_ = RunLog(path, there ? at_.log_bytes : 0);
  if (!there) log_.write(run_record(parts_, feed_.epoch_samples(), group_, options_));
}

void FitLoop::write(const Record& record) {
  FIRN_CHECK(!record.kind().empty(), kOp, "make it as Record(\"kind\")",
             "the record {} has no kind", record.text());
  for (const char* own : {"run", "step", "memory", "epoch", "end"})
    FIRN_CHECK(record.kind() != own, kOp, "give it another kind", "records \"{}\" are fit()'s own",
               own);
  log_.write(record);
}

void FitLoop::report_steps() {
  const auto steps = std::exchange(steps_, {});
  for (const auto& [i, report] : steps) {
    const std::string& name = parts_.optimizers[i].name;
    if (options_.log.every > 0 &&
        (report.skipped() || report.applied_steps() % options_.log.every == 0))
      log_.write(step_record(report, name, epoch(), at_.samples, seconds()));
    if (options_.callbacks.on_step) options_.callbacks.on_step(*this, name, report);
  }
}

void FitLoop::note_memory() {
  if (options_.log.every == 0 || !log_.is_open()) return;
  for (const Record& r :
       step_memory_.after_batch(ended_cycles(), at_.samples < epoch_samples(), device()))
    log_.write(r);
}

std::optional<Ended> FitLoop::reason_to_end() const {
  const Limit& limit = options_.limit;
  std::int64_t reason = 0;  // the most urgent one of all ranks
  // No more steps were applied than cycles have ended, so a device is asked no earlier.
  if ((limit.steps > 0 && ended_cycles() >= limit.steps && applied_steps() >= limit.steps) ||
      (limit.seconds > 0 && seconds() >= limit.seconds))
    reason = 1;
  if (asked_) reason = 2;
  if (interrupts_.came()) reason = 3;
  if (group_.size() > 1) {
    const Tensor all = full({1}, static_cast<double>(reason), i64, Device::cpu());
    group_.host().all_reduce(all, dist::Reduce::max);
    reason = static_cast<std::int64_t>(all.item());
  }
  constexpr Ended kReasons[] = {Ended::limit, Ended::asked, Ended::interrupted};
  if (reason == 0) return {};
  return kReasons[reason - 1];
}

bool FitLoop::after_batch(std::int64_t samples) {
  at_.samples += samples;
  trained_ += samples;
  report_steps();
  note_memory();
  if (options_.callbacks.on_batch) options_.callbacks.on_batch(*this);
  const auto end = reason_to_end();
  // A limit that is reached at the end of an epoch is checked when the epoch is finished.
  if (end && (*end == Ended::interrupted || at_.samples < epoch_samples())) {
    result_.ended = *end;
    save(applied_steps());
    return false;
  }
  // No more steps were applied than cycles have ended, so a device is asked no earlier.
  if (saver_.due(ended_cycles())) {
    const std::int64_t applied = applied_steps();
    if (saver_.due(applied)) save(applied);
  }
  if (progress_) progress_->update(at_.samples);
  return true;
}

void FitLoop::save(std::int64_t applied, std::optional<double> value) {
  const auto start = Clock::now();
  saver_.save(applied, value);
  const double seconds = seconds_between(start, Clock::now());
  saving_ += seconds;
  saving_within_ += seconds;
}

bool FitLoop::train(EpochReport& report) {
  for (const auto& optimizer : parts_.optimizers) optimizer.object.get().set_epoch(at_.epochs);
  reset_peak_memory(device());
  if (options_.callbacks.on_epoch_start && at_.samples == 0)
    options_.callbacks.on_epoch_start(*this);
  if (leads() && options_.progress)
    progress_.emplace(fmt::format("epoch {}/{}", epoch(), epochs()), epoch_samples(), at_.samples);
  trained_ = 0;
  saving_within_ = 0;
  const double data_before = feed_.seconds();
  const auto start = Clock::now();
  const bool whole = feed_.run(at_.epochs, [this](std::int64_t n) { return after_batch(n); });
  step_memory_.drop();
  if (whole) {
    for (const auto& optimizer : parts_.optimizers) optimizer.object.get().flush(options_.partial);
    report_steps();
  }
  report.seconds = seconds_between(start, Clock::now()) - saving_within_;
  report.data_seconds = feed_.seconds() - data_before;
  if (progress_) progress_->finish();
  progress_.reset();
  return whole;
}

void FitLoop::complete(EpochReport& report) {
  report.saving_seconds = std::exchange(saving_, 0.0);
  report.epoch = epoch();
  report.samples = at_.samples;
  if (report.seconds > 0)
    report.samples_per_second = static_cast<double>(trained_) / report.seconds;
  for (std::size_t i = 0; i < parts_.optimizers.size(); ++i) {
    const auto& [name, optimizer] = parts_.optimizers[i];
    const optim::LossTotals now = optimizer.get().loss_totals();
    const double weight = now.weight - at_.before[i].weight;  // if 0, the mean is NaN
    report.train_losses.push_back(
        {name.empty() ? "loss" : name, (now.loss - at_.before[i].loss) / weight});
  }
  report.train_loss = report.train_losses[0].value;
  const optim::StepReport last = parts_.optimizers[0].object.get().last_report();
  report.lr = last.lr();
  report.loss_scale = last.loss_scale();
  report.applied_steps = last.applied_steps();
  report.skipped_steps = last.skipped_steps();
  report.training_memory = memory_stats(device());
  report.validation_loss = std::numeric_limits<double>::quiet_NaN();
  const auto start = Clock::now();
  if (result_.ended != Ended::interrupted) evaluate_into(report, parts_, objective_, options_);
  report.validation_seconds = seconds_between(start, Clock::now());
  report.peak_bytes = memory_stats(device()).total.peak;
}

void FitLoop::note_value(const EpochReport& report) {
  const EarlyStop& stop = options_.early_stop;
  const double value = report.value(stop.value);
  if (std::isnan(value)) return;  // never better
  const auto gain = [&](double before) { return stop.highest ? value - before : before - value; };
  if (at_.best_epoch == 0 || gain(at_.best) > 0) {
    at_.best = value;
    at_.best_epoch = report.epoch;
  }
  if (at_.gained_epoch == 0 || gain(at_.gained) > stop.least_gain) {
    at_.gained = value;
    at_.gained_epoch = report.epoch;
  }
}

void FitLoop::finish_epoch(EpochReport& report) {
  complete(report);
  if (options_.callbacks.on_epoch_end) {
    const std::int64_t number = report.epoch, samples = report.samples;
    options_.callbacks.on_epoch_end(*this, report);
    report.epoch = number;
    report.samples = samples;
  }
  note_value(report);
  if (leads() && options_.progress) table_.print(report);
  log_.write(epoch_record(report));
  ++at_.epochs;
  at_.samples = 0;
  for (std::size_t i = 0; i < parts_.optimizers.size(); ++i)
    at_.before[i] = parts_.optimizers[i].object.get().loss_totals();
  const double value = report.value(options_.early_stop.value);
  keep_report(report, at_.last);
  save(report.applied_steps, std::isnan(value) ? std::nullopt : std::optional<double>(value));
}

/// If patience or the limit of steps ended the run, the same program would end again at once.
const char* FitLoop::how_to_go_on() const {
  if (result_.ended == Ended::early_stop)
    return "; the run is saved, and goes on with more patience";
  if (const std::int64_t steps = options_.limit.steps;
      result_.ended == Ended::limit && steps > 0 && result_.applied_steps >= steps)
    return "; the run is saved, and goes on with a higher limit";
  return "; the run is saved, and the same program goes on with it";
}

FitReport FitLoop::run() {
  FIRN_CHECK(!runtime::planning(), "fit", "plan one step: plan_memory([&] { ... })",
             "a plan is made of one step, and changes nothing");
  start();
  const std::int64_t patience = options_.early_stop.patience;
  const auto gets_no_better = [&] {
    return patience > 0 && at_.gained_epoch > 0 && at_.epochs - at_.gained_epoch >= patience;
  };
  bool within = false;
  while (!within && at_.epochs < options_.epochs) {
    // This applies to a resumed run too, and to a request by evaluation or a callback.
    if (gets_no_better()) {
      result_.ended = Ended::early_stop;
      break;
    }
    if (const auto end = reason_to_end()) {
      result_.ended = *end;
      break;
    }
    EpochReport report;
    within = !train(report);
    if (within)
      complete(report);
    else
      finish_epoch(report);
    result_.last = std::move(report);
  }
  if (!within && gets_no_better()) result_.ended = Ended::early_stop;
  listeners_.clear();
  if (result_.last.epoch == 0) result_.last = kept_report(at_.last);  // no epoch was left to train
  result_.epochs = at_.epochs;
  result_.applied_steps = applied_steps();
  if (at_.best_epoch > 0) {
    result_.best = at_.best;
    result_.best_epoch = at_.best_epoch;
  }
  log_.write(end_record(result_, options_.early_stop.value, saving_));
  saver_.wait();
  if (result_.ended != Ended::epochs && leads() && options_.progress) {
    fmt::print("ended by {} after {} epochs, at step {}{}\n", reason_in_words(result_.ended),
               result_.epochs, grouped(result_.applied_steps), saver_.on() ? how_to_go_on() : "");
    std::fflush(stdout);
  }
  return std::move(result_);
}

}  // namespace firn::train
