#include "train/fit/output.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <vector>

#include "base/check.h"
#include "firn/device.h"
#include "firn/environment.h"
#include "firn/nn/module.h"
#include "firn/train/progress.h"
#include "io/json.h"
#include "optim/inside.h"

namespace firn::train {
namespace {

constexpr int kSchema = 1;

std::string now_utc() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

/// Returns the peak memory of the process, in bytes.
std::size_t peak_rss_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

Record values_of(const std::vector<metrics::Value>& values) {
  Record out;
  for (const metrics::Value& v : values) out.add(v.name, v.value);
  return out;
}

template <class Bytes>
Record by_owner(const Bytes& bytes_of) {
  Record out;
  for (int i = 0; i < kOwnerCount; ++i)
    out.add(to_string(static_cast<Owner>(i)), bytes_of(static_cast<std::size_t>(i)));
  return out;
}

Device device_of(const Parts& parts) { return optim::device_of(parts.optimizers[0].object); }

}  // namespace

void Table::print(const EpochReport& r) {
  const std::size_t shown = std::min<std::size_t>(r.metrics.size(), 3);
  if (!headed_ || columns_ != shown) {
    std::string head = "epoch  train loss";
    if (r.validated) head += "  val. loss";
    for (std::size_t i = 0; i < shown; ++i)
      head += fmt::format("  {:>9}", io::name_for_message(r.metrics[i].name));
    fmt::print("{}  samples/s  peak memory        lr     scale    steps  skipped\n", head);
    headed_ = true;
    columns_ = shown;
  }
  std::string row = fmt::format("{:5}  {:10.4f}", r.epoch, r.train_loss);
  if (r.validated) row += fmt::format("  {:9.4f}", r.validation_loss);
  for (std::size_t i = 0; i < shown; ++i) {
    const metrics::Value& m = r.metrics[i];
    row += fmt::format("  {:{}.4f}", m.value, std::max<std::size_t>(m.name.size(), 9));
  }
  fmt::print("{}  {:>9}  {:7.1f} MiB  {:8.3g}  {:8.8g}  {:>7}  {:>7}\n", row,
             grouped(static_cast<std::int64_t>(r.samples_per_second)),
             static_cast<double>(r.peak_bytes) / (1024.0 * 1024.0), r.lr, r.loss_scale,
             grouped(r.applied_steps), grouped(r.skipped_steps));
  std::fflush(stdout);
}

Record run_record(const Parts& parts, std::int64_t epoch_samples, const dist::Group& group,
                  const FitOptions& options) {
  std::vector<Record> optimizers, modules;
  for (const auto& [name, object] : parts.optimizers) {
    Record r;
    if (!name.empty()) r.add("name", name);
    r.add("kind", optim::name_of(object))
        .add("description", optim::describe(object))
        .add("accumulate", object.get().cycle_length())
        .add("clip_norm", optim::options_of(object).clip_norm)
        .add("device", to_string(optim::device_of(object)));
    optimizers.push_back(std::move(r));
  }
  for (const auto& [name, object] : parts.modules) {
    const nn::Module& m = object;
    Record r;
    if (!name.empty()) r.add("name", name);
    r.add("type", m.type_name()).add("parameters", m.num_parameters()).add("summary", m.summary());
    modules.push_back(std::move(r));
  }
  Record out("run");
  out.add("schema", kSchema)
      .add("epochs", options.epochs)
      .add("epoch_samples", epoch_samples)
      .add("ranks", group.size())
      .add("modules", std::span<const Record>(modules))
      .add("optimizers", std::span<const Record>(optimizers));
  if (options.validate) out.add("validation_samples", options.validate->samples());
  if (options.micro_batch) out.add("micro_batch", options.micro_batch->size);
  out.add("settings", options.log.settings);
  const bool asks_driver = !device_of(parts).is_cpu();
  return out.add("measured",
                 Record()
                     .add("time", now_utc())
                     .add("threads", num_threads())
                     .add_json("environment", to_json(environment({.open = asks_driver}))));
}

Record step_record(const optim::StepReport& r, const std::string& optimizer, std::int64_t epoch,
                   std::int64_t samples, double seconds) {
  Record out("step");
  if (!optimizer.empty()) out.add("optimizer", optimizer);
  out.add("step", r.applied_steps())
      .add("epoch", epoch)
      .add("samples", samples)
      .add("applied", r.applied())
      .add("loss", r.loss())
      .add("weight", r.weight())
      .add("norm", r.norm())
      .add("lr", r.lr())
      .add("loss_scale", r.loss_scale())
      .add("micro_steps", r.micro_steps())
      .add("skipped_steps", r.skipped_steps());
  if (r.skipped()) {
    out.add("cause", to_string(r));
    if (r.culprit() >= 0) out.add("parameter", r.culprit_name());
  }
  return out.add("measured", Record().add("seconds", seconds));
}

Record epoch_record(const EpochReport& r) {
  const MemoryStats& memory = r.training_memory;
  Record out("epoch");
  out.add("epoch", r.epoch).add("samples", r.samples).add("train_loss", r.train_loss);
  if (r.train_losses.size() > 1) out.add("train_losses", values_of(r.train_losses));
  if (r.validated) out.add("validation_loss", r.validation_loss);
  if (!r.details.empty()) out.add("details", r.details);
  if (!r.metrics.empty()) out.add("metrics", values_of(r.metrics));
  return out.add("lr", r.lr)
      .add("loss_scale", r.loss_scale)
      .add("applied_steps", r.applied_steps)
      .add("skipped_steps", r.skipped_steps)
      .add("measured", Record()
                           .add("seconds", r.seconds)
                           .add("data_seconds", r.data_seconds)
                           .add("validation_seconds", r.validation_seconds)
                           .add("saving_seconds", r.saving_seconds)
                           .add("samples_per_second", r.samples_per_second)
                           .add("peak_bytes", r.peak_bytes)
                           .add("training_peak_bytes", memory.total.peak)
                           .add("training_peak_by_owner",
                                by_owner([&](std::size_t i) { return memory.by_owner[i].peak; }))
                           .add("training_bytes_at_peak",
                                by_owner([&](std::size_t i) { return memory.at_peak[i]; }))
                           .add("peak_rss_bytes", peak_rss_bytes()));
}

Record end_record(const FitReport& report, const std::string& value, double saving_seconds) {
  Record out("end");
  out.add("ended", to_string(report.ended))
      .add("epochs", report.epochs)
      .add("applied_steps", report.applied_steps);
  if (report.best)
    out.add("best", *report.best).add("best_of", value).add("best_epoch", report.best_epoch);
  return out.add("measured", Record().add("saving_seconds", saving_seconds));
}

}  // namespace firn::train
