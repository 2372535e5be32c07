// The table and the JSON lines.
#include "output/report.h"

#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "firn/environment.h"
#include "firn/error.h"
#include "output/drawing.h"

namespace sample {
namespace {

using Json = nlohmann::ordered_json;

std::string now_utc() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

/// 60000 as "60,000".
std::string grouped(std::int64_t n) {
  std::string s = std::to_string(n);
  for (auto i = static_cast<std::int64_t>(s.size()) - 3; i > 0; i -= 3)
    s.insert(static_cast<std::size_t>(i), ",");
  return s;
}

/// One line with the optimizer's description of a step and its changes in later epochs.
std::string step_summary(const Options& o, const firn::optim::Optimizer& optimizer) {
  std::string text = firn::optim::describe(optimizer, o.batch > 0 ? o.batch : o.micro_batch);
  if (o.ranks > 1) text += ", " + std::to_string(o.ranks) + " ranks";
  if (o.tensor_parallel > 1) text += ", " + std::to_string(o.tensor_parallel) + " divide a layer";
  if (o.pipeline > 1) text += ", " + std::to_string(o.pipeline) + " stages";
  constexpr const char* kDivided[] = {"", "state", "state and gradients",
                                      "state, gradients and weights"};
  if (o.zero > 0) text += std::string(", ") + kDivided[o.zero] + " divided among them";
  for (std::size_t i = 1; i < o.accumulate.size(); ++i) {
    const auto& [epoch, steps] = o.accumulate[i];
    text += "; from epoch " + std::to_string(epoch + 1) + " on " + std::to_string(o.micro_batch) +
            " x " + std::to_string(steps) + " = " + std::to_string(o.micro_batch * steps);
  }
  return text;
}

}  // namespace

std::size_t peak_rss_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

void print_start(const Options& o, const firn::data::FashionMnist& set, std::int64_t parameters,
                 const firn::optim::Optimizer& optimizer) {
  std::printf("data   %s: %s training and %s test images\n", set.folder.c_str(),
              grouped(set.train.size()).c_str(), grouped(set.test.size()).c_str());
  std::printf("model  %s, %s parameters\n", o.model.c_str(), grouped(parameters).c_str());
  std::printf("run    %s, %s schedule, seed %llu, %s, %d threads\n", o.precision.c_str(),
              o.schedule.c_str(), static_cast<unsigned long long>(o.seed), o.device.c_str(),
              o.threads);
  std::printf("step   %s\n\n", step_summary(o, optimizer).c_str());
  std::printf(
      "epoch  train loss  test loss  accuracy  samples/s  peak memory  batch     scale  skipped\n");
  std::fflush(stdout);
}

void print_epoch(const EpochReport& r) {
  std::printf("%5d  %10.4f  %9.4f  %8.4f  %9s  %7.1f MiB  %5lld  %8g  %7lld\n", r.epoch,
              r.train_loss, r.test_loss, r.accuracy,
              grouped(static_cast<std::int64_t>(r.samples_per_s)).c_str(),
              static_cast<double>(r.peak_bytes) / (1024.0 * 1024.0),
              static_cast<long long>(r.effective_batch), r.loss_scale,
              static_cast<long long>(r.skipped_steps));
  std::fflush(stdout);
}

void print_end(const EpochReport& last, const std::string& hash) {
  std::printf("\ntest images by true class (rows) and predicted class (columns)\n%s",
              confusion_table(last.confusion, firn::data::FashionMnist::kClassNames).c_str());
  if (!hash.empty()) std::printf("\nweights %s", hash.c_str());
  std::printf("\ntest accuracy %.4f\n", last.accuracy);
  std::fflush(stdout);
}

void print_graph(const std::vector<std::string>& nodes) {
  for (std::size_t i = 0; i < nodes.size(); ++i) std::printf("%3zu  %s\n", i + 1, nodes[i].c_str());
  std::printf("%zu nodes in the graph of a step\n", nodes.size());
  std::fflush(stdout);
}

void RunLog::open(std::int64_t keep) {
  if (path_.empty()) return;
  std::error_code none;
  const auto size = std::filesystem::file_size(path_, none);
  const bool kept = !none && keep > 0 && size >= static_cast<std::uintmax_t>(keep);
  if (kept) std::filesystem::resize_file(path_, static_cast<std::uintmax_t>(keep), none);
  file_.open(path_, std::ios::out | (kept ? std::ios::app : std::ios::trunc));
  if (!file_ || (kept && none))
    throw firn::IoError("run log", path_, "cannot be created", "see --log");
}

std::int64_t RunLog::bytes() {
  return path_.empty() ? 0 : static_cast<std::int64_t>(file_.tellp());
}

void RunLog::start(const Options& o, const firn::data::FashionMnist& set, std::int64_t parameters) {
  if (path_.empty()) return;
  // A run on the CPU opens none of CUDA's libraries.
  const firn::Environment environment = firn::environment({.open = o.device != "cpu"});
  Json accumulate = Json::array();
  for (const auto& [epoch, steps] : o.accumulate)
    accumulate.push_back({{"epoch", epoch}, {"steps", steps}});
  const Json record = {
      {"record", "run"},
      {"time", now_utc()},
      {"settings",
       {{"model", o.model},
        {"epochs", o.epochs},
        {"precision", o.precision},
        {"micro_batch", o.micro_batch},
        {"ranks", o.ranks},
        {"tensor_parallel", o.tensor_parallel},
        {"pipeline", o.pipeline},
        {"exact", o.exact},
        {"zero", o.zero},
        {"accumulate", accumulate},
        {"batch", o.effective_batch(0)},
        {"loss_scale", o.loss_scale},
        {"clip", o.clip},
        {"ema", o.ema},
        {"label_smoothing", o.label_smoothing},
        {"weight_decay", o.weight_decay ? Json(*o.weight_decay) : Json(nullptr)},
        {"augment",
         {{"crop_padding", o.augment.crop_padding},
          {"flip", o.augment.flip},
          {"erase", o.augment.erase}}},
        {"schedule", o.schedule},
        {"warmup", o.warmup},
        {"lr", o.lr},
        {"optimizer", o.optimizer},
        {"seed", o.seed},
        {"threads", o.threads},
        {"device", o.device},
        {"data", set.folder},
        {"log", o.log},
        {"save", o.save},
        {"load", o.load}}},
      {"environment", Json::parse(firn::to_json(environment))},
      {"parameters", parameters},
      {"train_samples", set.train.size()},
      {"test_samples", set.test.size()},
  };
  write_line(record.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void RunLog::epoch(const EpochReport& r) {
  if (path_.empty()) return;
  Json peaks = Json::object();
  for (int i = 0; i < firn::kOwnerCount; ++i)
    peaks[firn::to_string(static_cast<firn::Owner>(i))] =
        r.training_memory.by_owner[static_cast<std::size_t>(i)].peak;
  peaks["total"] = r.training_memory.total.peak;
  const Json record = {
      {"record", "epoch"},
      {"epoch", r.epoch},
      {"train_loss", r.train_loss},
      {"test_loss", r.test_loss},
      {"accuracy", r.accuracy},
      {"samples_per_s", r.samples_per_s},
      {"seconds", r.seconds},
      {"test_seconds", r.test_seconds},
      {"effective_batch", r.effective_batch},
      {"lr", r.lr},
      {"loss_scale", r.loss_scale},
      {"applied_steps", r.applied_steps},
      {"skipped_steps", r.skipped_steps},
      {"peak_bytes", r.peak_bytes},
      {"training_peak_bytes", peaks},
      {"peak_rss_bytes", r.peak_rss_bytes},
      {"class_accuracy", r.class_accuracy},
      {"confusion", r.confusion},
  };
  write_line(record.dump());
}

void RunLog::write_line(const std::string& line) {
  file_ << line << '\n' << std::flush;
  if (!file_) throw firn::IoError("run log", path_, "cannot be written", "is the disk full?");
}

}  // namespace sample
