#include "tools/report/log/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "firn/error.h"

namespace firn::report {
namespace {

constexpr std::size_t kMostOptimizers = 16;
constexpr std::size_t kMostClasses = 1000;
constexpr std::size_t kMostPictureBytes = 120'000;  // limit for one record

class Builder {
 public:
  explicit Builder(LogPart log) { run_.log = std::move(log); }

  void take(const std::string& kind, const Json& record, std::uint64_t at) {
    if (kind == "run") {
      begin(record, at);
    } else if (kind == "step") {
      step(record);
    } else if (kind == "memory") {
      moment(record);
    } else if (kind == "epoch") {
      epoch(record);
    } else if (kind == "end") {
      run_.end = End{.ended = text_of(record, "ended"),
                     .best_of = text_of(record, "best_of"),
                     .epochs = number_of(record, "epochs"),
                     .applied_steps = number_of(record, "applied_steps"),
                     .best = number_of(record, "best"),
                     .best_epoch = number_of(record, "best_epoch")};
    } else {
      return;
    }
    known_ = true;
  }

  Run finish(const Reading& reading) {
    if (!known_)
      throw IoError(
          "report", run_.log.path,
          fmt::format("has no record of a run among {} lines that are records and {} that "
                      "are none",
                      reading.records, reading.broken + (reading.cut_off ? 1 : 0)),
          "name a file that train::fit() or train::RunLog has written");
    auto& notes = run_.notes;
    if (reading.broken > 0)
      notes.push_back(
          fmt::format("{} lines are no records and were passed over. The first is line {}.",
                      reading.broken, reading.first_broken));
    if (reading.cut_off) notes.push_back("The last line is cut off and was passed over.");
    if (heads_ == 0)
      notes.push_back("The record \"run\" is missing: model and settings are unknown.");
    if (heads_ > 1)
      notes.push_back(fmt::format("The file holds {} runs. This is the last one.", heads_));
    const double schema = number_of(run_.head, "schema");
    if (schema > 1)
      notes.push_back(fmt::format(
          "The log has schema {}. This program knows schema 1 and passes over what is new.",
          schema));
    if (left_out_ > 0)
      notes.push_back(
          fmt::format("{} step records of further optimizers were passed over.", left_out_));
    return std::move(run_);
  }

 private:
  void begin(const Json& record, std::uint64_t at) {
    ++heads_;
    Run fresh;
    fresh.log = {.path = run_.log.path, .begin = at, .end = run_.log.end};
    fresh.head = record;
    run_ = std::move(fresh);
    const auto list = record.find("optimizers");
    if (list == record.end() || !list->is_array()) return;
    for (const Json& o : *list)
      if (o.is_object() && run_.steps.size() < kMostOptimizers) steps_of(text_of(o, "name"));
  }

  Steps* steps_of(const std::string& optimizer) {
    for (Steps& s : run_.steps)
      if (s.optimizer == optimizer) return &s;
    if (run_.steps.size() == kMostOptimizers) return nullptr;
    run_.steps.emplace_back().optimizer = optimizer;
    return &run_.steps.back();
  }

  void step(const Json& r) {
    Steps* const s = steps_of(text_of(r, "optimizer"));
    if (s == nullptr) {
      ++left_out_;
      return;
    }
    const double at = number_of(r, "step");
    const double loss = number_of(r, "loss"), scale = number_of(r, "loss_scale");
    if (++s->records == 1) {
      s->first_samples = number_of(r, "samples");
      s->micro_steps = number_of(r, "micro_steps");
      const double skipped = number_of(r, "skipped_steps");
      s->first_cycles =
          number_of(r, "epoch") == 1 ? at + (std::isnan(skipped) ? 0 : skipped) : kNoNumber;
    }
    s->last_step = at;
    s->seconds = number_of(object_of(r, "measured"), "seconds");
    s->loss.add(at, loss);
    s->norm.add(at, number_of(r, "norm"));
    s->lr.add(at, number_of(r, "lr"));
    s->loss_scale.add(at, scale);
    if (applied(r)) return;
    ++s->skipped;
    s->skips.add(at);
    Skip skip{.step = at,
              .epoch = number_of(r, "epoch"),
              .samples = number_of(r, "samples"),
              .loss = loss,
              .loss_scale = scale,
              .cause = text_of(r, "cause"),
              .parameter = text_of(r, "parameter")};
    if (s->first_skips.size() < Steps::kSkips) {
      s->first_skips.push_back(std::move(skip));
      return;
    }
    s->last_skips.push_back(std::move(skip));
    if (s->last_skips.size() > Steps::kSkips) s->last_skips.pop_front();
  }

  void moment(const Json& r) {
    if (run_.moments.size() == Run::kMoments) return;
    const Json& measured = object_of(r, "measured");
    run_.moments.push_back({.point = number_of(r, "point"),
                            .event = number_of(measured, "event"),
                            .bytes = number_of(measured, "bytes"),
                            .by_owner = numbers_of(object_of(measured, "by_owner"))});
  }

  void epoch(const Json& r) {
    const Json& measured = object_of(r, "measured");
    run_.epochs.push_back(
        {.epoch = number_of(r, "epoch"),
         .samples = number_of(r, "samples"),
         .train_loss = number_of(r, "train_loss"),
         .validation_loss = number_of(r, "validation_loss"),
         .applied_steps = number_of(r, "applied_steps"),
         .skipped_steps = number_of(r, "skipped_steps"),
         .seconds = number_of(measured, "seconds"),
         .validation_seconds = number_of(measured, "validation_seconds"),
         .samples_per_second = number_of(measured, "samples_per_second"),
         .data_seconds = number_of(measured, "data_seconds"),
         .saving_seconds = number_of(measured, "saving_seconds"),
         .peak_bytes = number_of(measured, "peak_bytes"),
         .training_peak_bytes = number_of(measured, "training_peak_bytes"),
         .peak_rss_bytes = number_of(measured, "peak_rss_bytes"),
         .train_losses = numbers_of(object_of(r, "train_losses")),
         .metrics = numbers_of(object_of(r, "metrics")),
         .bytes_at_peak = numbers_of(object_of(measured, "training_bytes_at_peak"))});
    confusion(r);
    mistakes(r);
  }

  void confusion(const Json& r) {
    const Json& details = object_of(r, "details");
    const auto table = details.find("confusion");
    if (table == details.end() || !table->is_array() || table->size() > kMostClasses) return;
    Confusion c{.epoch = number_of(r, "epoch"), .rows = {}, .classes = {}};
    for (const Json& row : *table) {
      if (!row.is_array() || row.size() != table->size()) return;
      std::vector<double>& counts = c.rows.emplace_back();
      for (const Json& n : row) counts.push_back(n.is_number() ? n.get<double>() : kNoNumber);
    }
    c.classes = classes_of(details);
    if (c.classes.size() != c.rows.size()) c.classes.clear();
    if (!c.rows.empty()) run_.confusion = std::move(c);
  }

  static std::vector<std::string> classes_of(const Json& details) {
    std::vector<std::string> out;
    const auto names = details.find("classes");
    if (names == details.end() || !names->is_array() || names->size() > kMostClasses) return out;
    for (const Json& name : *names)
      out.push_back(name.is_string() ? name.get<std::string>() : name.dump());
    return out;
  }

  void mistakes(const Json& r) {
    const Json& details = object_of(r, "details");
    const auto list = details.find("mistakes");
    if (list == details.end() || !list->is_array()) return;
    Mistakes m{.epoch = number_of(r, "epoch"), .list = {}, .classes = classes_of(details)};
    std::size_t bytes = 0;
    for (const Json& entry : *list) {
      if (!entry.is_object()) continue;
      const auto image = entry.find("image");
      if (image == entry.end() || !image->is_string()) continue;
      const auto& uri = image->get_ref<const std::string&>();
      bytes += uri.size();
      if (!is_picture(uri) || bytes > kMostPictureBytes) continue;
      m.list.push_back({number_of(entry, "true"), number_of(entry, "predicted"),
                        number_of(entry, "probability"), uri});
    }
    run_.mistakes = std::move(m);
  }

  /// Returns true for the data URI of a picture that contains nothing that could end an attribute.
  static bool is_picture(const std::string& uri) {
    for (const std::string_view type : {"data:image/bmp;base64,", "data:image/png;base64,"})
      if (uri.starts_with(type) && uri.size() > type.size())
        return std::all_of(uri.begin() + static_cast<std::ptrdiff_t>(type.size()), uri.end(),
                           [](char c) {
                             return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                                    (c >= '0' && c <= '9') || c == '+' || c == '/' || c == '=';
                           });
    return false;
  }

  Run run_;
  bool known_ = false;
  int heads_ = 0;
  std::int64_t left_out_ = 0;
};

}  // namespace

Run read_run(const std::string& path) {
  const LogPart log = log_at(path);
  Builder builder(log);
  const Reading reading =
      read_records(log, [&](const std::string& kind, const Json& record, std::uint64_t at) {
        builder.take(kind, record, at);
      });
  return builder.finish(reading);
}

void name_runs(std::vector<Run>& runs) {
  std::set<std::string> names;
  for (Run& run : runs) {
    run.label = std::filesystem::path(run.log.path).stem().string();
    names.insert(run.label);
  }
  if (names.size() == runs.size()) return;
  names.clear();
  for (Run& run : runs) {
    run.label = run.log.path;
    for (int i = 2; !names.insert(run.label).second; ++i)
      run.label = fmt::format("{} ({})", run.log.path, i);
  }
}

}  // namespace firn::report
