#include "tools/report/write/events.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/protobuf.h"
#include "tools/report/log/facts.h"
#include "tools/report/log/format.h"
#include "tools/report/write/file.h"

namespace firn::report {
namespace {

using protobuf::little_endian;
using protobuf::Message;

constexpr std::size_t kLongestText = 2000;

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? 0x82f63b78u ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}

/// Makes a Summary.Value: tag 1, simple_value 2.
Message scalar(const std::string& tag, double value) {
  const double finite = std::isfinite(value) ? value : kNoNumber;
  return Message().text(1, tag).f32(2, static_cast<float>(finite));
}

/// Makes a Summary.Value for the plugin `text`: tag 1, tensor 8 (dtype 1 = DT_STRING, shape 2 =
/// [1], string_val 8), metadata 9 (plugin_data 1: plugin_name 1).
Message note(const std::string& tag, const std::string& value) {
  constexpr int kString = 7;
  const Message shape = Message().message(2, Message().integer(1, 1));
  const Message tensor = Message().integer(1, kString).message(2, shape).text(8, value);
  const Message metadata = Message().message(1, Message().text(1, "text"));
  return Message().text(1, tag).message(8, tensor).message(9, metadata);
}

// ---- Events
// --------------------------------------------------------------------------------------

double start_of(const Run& run) {
  const std::string time = text_of(object_of(run.head, "measured"), "time");
  std::tm utc{};
  if (std::sscanf(time.c_str(), "%d-%d-%dT%d:%d:%d", &utc.tm_year, &utc.tm_mon, &utc.tm_mday,
                  &utc.tm_hour, &utc.tm_min, &utc.tm_sec) != 6)
    return 0;
  utc.tm_year -= 1900;
  utc.tm_mon -= 1;
  const double out = static_cast<double>(::timegm(&utc));
  return out >= 0 && out < 1e12 ? out : 0;
}

class Events {
 public:
  Events(const std::string& path, double start) : file_(path), start_(start), now_(start) {
    write(Message().f64(1, start).text(3, "brain.Event:2"));
  }

  /// Sets the time in seconds since fit() was called. A resumed process counts from 0 again.
  void at(double seconds) {
    if (!std::isfinite(seconds)) return;
    if (start_ + seconds < now_) start_ = now_;
    now_ = start_ + seconds;
  }
  /// Adds an Event: wall_time 1, step 2, summary 5 (value 1).
  void add(double step, const Message& summary_values) {
    const bool whole = step >= 0 && step < 9e18;
    Message event = Message().f64(1, now_);
    if (whole) event.integer(2, static_cast<std::int64_t>(step));
    write(event.message(5, summary_values));
  }
  void commit() { file_.commit(); }

 private:
  void write(const Message& event) {
    const std::string length = little_endian(event.bytes().size(), 8);
    file_.write(length);
    file_.write(little_endian(masked_crc32c(length), 4));
    file_.write(event.bytes());
    file_.write(little_endian(masked_crc32c(event.bytes()), 4));
  }

  OutputFile file_;
  double start_, now_;
};

void add_step(Events& events, const Json& r) {
  const std::string optimizer = visible(text_of(r, "optimizer"), kLongestText);
  const auto tag = [&](const char* name) {
    return "step/" + (optimizer.empty() ? std::string() : optimizer + "/") + name;
  };
  events.at(number_of(object_of(r, "measured"), "seconds"));
  Message values;
  for (const char* name : {"loss", "norm", "lr", "loss_scale"})
    if (r.contains(name)) values.message(1, scalar(tag(name), number_of(r, name)));
  if (!applied(r))
    values.message(
        1, note(tag("skipped"), fmt::format("cause: {}\n\nparameter: {}",
                                            visible(text_of(r, "cause"), kLongestText),
                                            visible(text_of(r, "parameter"), kLongestText))));
  events.add(number_of(r, "step"), values);
}

void add_epoch(Events& events, const Json& r) {
  const Json& measured = object_of(r, "measured");
  Message values;
  const auto put = [&](const Json& from, const char* name, const std::string& tag) {
    if (from.contains(name)) values.message(1, scalar(tag, number_of(from, name)));
  };
  put(r, "train_loss", "epoch/train_loss");
  put(r, "validation_loss", "epoch/validation_loss");
  for (const auto& [name, value] : numbers_of(object_of(r, "train_losses")))
    values.message(1, scalar("epoch/train_loss/" + visible(name, kLongestText), value));
  for (const auto& [name, value] : numbers_of(object_of(r, "metrics")))
    values.message(1, scalar("metrics/" + visible(name, kLongestText), value));
  put(measured, "seconds", "time/training_seconds");
  put(measured, "data_seconds", "time/data_seconds");
  put(measured, "validation_seconds", "time/validation_seconds");
  put(measured, "saving_seconds", "time/saving_seconds");
  put(measured, "samples_per_second", "time/samples_per_second");
  put(measured, "training_peak_bytes", "memory/training_peak_bytes");
  for (const auto& [name, value] : numbers_of(object_of(measured, "training_bytes_at_peak")))
    values.message(1, scalar("memory/at_peak/" + visible(name, kLongestText), value));
  const double step = number_of(r, "applied_steps");
  events.add(std::isnan(step) ? number_of(r, "epoch") : step, values);
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view data) {
  static constexpr std::array<std::uint32_t, 256> table = crc_table();
  std::uint32_t c = 0xffffffffu;
  for (const char byte : data) c = table[(c ^ static_cast<std::uint8_t>(byte)) & 0xff] ^ (c >> 8);
  return std::rotr(c ^ 0xffffffffu, 15) + 0xa282ead8u;
}

std::string write_events(const Run& run, const std::string& folder) {
  make_folder(folder);
  const double start = start_of(run);
  const std::string path = fmt::format("{}/events.out.tfevents.{:010.0f}.firn", folder, start);
  Events events(path, start);
  read_records(run.log, [&](const std::string& kind, const Json& record, std::uint64_t) {
    if (kind == "step") add_step(events, record);
    if (kind == "epoch") add_epoch(events, record);
  });
  events.commit();
  return path;
}

}  // namespace firn::report
