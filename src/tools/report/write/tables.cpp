#include "tools/report/write/tables.h"

#include <algorithm>
#include <cmath>

#include "tools/report/log/facts.h"
#include "tools/report/log/format.h"
#include "tools/report/write/file.h"

namespace firn::report {
namespace {

class Csv {
 public:
  explicit Csv(const std::string& path) : file_(path) {}

  void field(const std::string& text) {
    if (!first_) row_ += ',';
    first_ = false;
    if (text.find_first_of(",\"\r\n") == std::string::npos) {
      row_ += text;
      return;
    }
    row_ += '"';
    for (const char c : text) {
      if (c == '"') row_ += '"';
      row_ += c;
    }
    row_ += '"';
  }
  void field(double x) { field(std::isfinite(x) ? full(x) : std::string()); }
  void end_row() {
    row_ += "\r\n";
    file_.write(row_);
    row_.clear();
    first_ = true;
  }
  void commit() { file_.commit(); }

 private:
  OutputFile file_;
  std::string row_;
  bool first_ = true;
};

/// Returns the member as a text, with all digits if it is a number.
std::string scalar(const Json& record, const char* name) {
  const auto it = record.find(name);
  if (it == record.end() || it->is_null()) return {};
  if (it->is_string()) return it->get<std::string>();
  return it->is_structured() ? std::string() : it->dump();
}

void write_steps(const Run& run, const std::string& path) {
  Csv csv(path);
  constexpr const char* kNames[] = {
      "optimizer", "step", "epoch",      "samples",     "applied",       "loss",  "weight",
      "norm",      "lr",   "loss_scale", "micro_steps", "skipped_steps", "cause", "parameter"};
  for (const char* name : kNames) csv.field(name);
  csv.field(std::string("seconds"));
  csv.end_row();
  read_records(run.log, [&](const std::string& kind, const Json& record, std::uint64_t) {
    if (kind != "step") return;
    for (const char* name : kNames) csv.field(scalar(record, name));
    csv.field(scalar(object_of(record, "measured"), "seconds"));
    csv.end_row();
  });
  csv.commit();
}

void write_epochs(const Run& run, const std::string& path) {
  Csv csv(path);
  struct Column {
    const char* name;
    double Epoch::*value;
  };
  constexpr Column kColumns[] = {{"epoch", &Epoch::epoch},
                                 {"samples", &Epoch::samples},
                                 {"train_loss", &Epoch::train_loss},
                                 {"validation_loss", &Epoch::validation_loss},
                                 {"applied_steps", &Epoch::applied_steps},
                                 {"skipped_steps", &Epoch::skipped_steps},
                                 {"seconds", &Epoch::seconds},
                                 {"data_seconds", &Epoch::data_seconds},
                                 {"validation_seconds", &Epoch::validation_seconds},
                                 {"saving_seconds", &Epoch::saving_seconds},
                                 {"samples_per_second", &Epoch::samples_per_second},
                                 {"peak_bytes", &Epoch::peak_bytes},
                                 {"training_peak_bytes", &Epoch::training_peak_bytes},
                                 {"peak_rss_bytes", &Epoch::peak_rss_bytes}};
  struct Group {
    const char* prefix;
    std::vector<NamedNumber> Epoch::*values;
    std::vector<std::string> names;
  };
  Group groups[] = {{"train_losses.", &Epoch::train_losses, {}},
                    {"metrics.", &Epoch::metrics, metric_names(run.epochs)},
                    {"training_bytes_at_peak.", &Epoch::bytes_at_peak, owner_names(run.epochs)}};
  for (const Epoch& e : run.epochs)
    for (const NamedNumber& n : e.train_losses)
      if (auto& names = groups[0].names;
          std::find(names.begin(), names.end(), n.name) == names.end())
        names.push_back(n.name);
  for (const Column& c : kColumns) csv.field(std::string(c.name));
  for (const Group& g : groups)
    for (const std::string& name : g.names) csv.field(g.prefix + name);
  csv.end_row();
  for (const Epoch& e : run.epochs) {
    for (const Column& c : kColumns) csv.field(e.*c.value);
    for (const Group& g : groups)
      for (const std::string& name : g.names) csv.field(find(e.*g.values, name));
    csv.end_row();
  }
  csv.commit();
}

}  // namespace

std::vector<std::string> write_csv(const Run& run, const std::string& folder) {
  make_folder(folder);
  const std::vector<std::string> paths = {folder + "/steps.csv", folder + "/epochs.csv"};
  write_steps(run, paths[0]);
  write_epochs(run, paths[1]);
  return paths;
}

}  // namespace firn::report
