// The trace of a profile in Chrome's format, which Perfetto reads too: a JSON object with a list of
// events. Times are in us.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "firn/memory/labels.h"
#include "firn/version.h"
#include "io/file/text_file.h"
#include "io/json.h"
#include "profile/parts.h"

namespace firn::profile_parts {
namespace {

using runtime::SpanKind;
using runtime::SpanRecord;

constexpr const char* kOp = "Profile::write_trace";

/// Returns a name as a JSON string; a Range may have any name.
std::string json_name(std::string_view name) {
  return io::json_string(io::is_utf8(name) ? std::string(name) : io::quoted_for_message(name));
}
constexpr int kHost = 0;  // the process that stands for the host; 1 + n is CUDA device n

std::string microseconds(std::uint64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

class Trace {
 public:
  Trace(const runtime::SpanLog& log, const std::string& path) : log_(log), file_(kOp, path) {}

  void write() {
    file_.write(fmt::format(
        R"({{"displayTimeUnit":"ms","otherData":{{"firn":{},"wall_ns":{},"left_out":{},"lost":{}}},"traceEvents":[)",
        io::json_string(version()), log_.ns, log_.left_out, log_.lost));
    name_host();
    for (const SpanRecord& s : log_.spans) {
      add(s);
      if (s.device_seconds >= 0) add_on_device(s);
    }
    add_memory();
    for (const auto& c : log_.counters) counter(c.name, c.time, c.value);
    file_.write("\n]}\n");
    file_.commit();
  }

 private:
  void event(std::string_view text) {
    file_.write(first_ ? "\n" : ",\n");
    first_ = false;
    file_.write(text);
  }

  void name(const char* what, int process, std::size_t thread, std::string_view name) {
    event(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":{}}}}})", process,
                      thread, what, io::json_string(name)));
  }

  void name_host() {
    name("process_name", kHost, 0, "host");
    std::uint32_t threads = 0;
    for (const SpanRecord& s : log_.spans) threads = std::max(threads, s.thread);
    for (std::uint32_t t = 0; t <= threads; ++t)
      name("thread_name", kHost, t, t == 0 ? "main" : fmt::format("thread {}", t));
  }

  static std::string arguments(const SpanRecord& s) {
    std::string out;
    const auto add = [&out](std::string_view key, std::string_view json) {
      out += fmt::format(R"({}"{}":{})", out.empty() ? "" : ",", key, json);
    };
    if (s.op) add("operation", io::json_string(s.op));
    if (s.module != 0 && s.kind != SpanKind::module_call)
      add("module", io::json_string(runtime::module_path(s.module)));
    if (s.backward || s.kind == SpanKind::gradient) add("backward", "true");
    if (s.kind == SpanKind::kernel) {
      add("dtype", io::json_string(to_string(s.dtype)));
      if (s.work.flops > 0) add("flops", fmt::format("{:.0f}", s.work.flops));
      add("bytes", fmt::format("{:.0f}", s.work.bytes));
    }
    return out;
  }

  static std::string_view name_of(const SpanRecord& s) {
    return s.kind == SpanKind::module_call ? runtime::module_path(s.module)
                                           : std::string_view(s.name);
  }

  void complete(int process, std::size_t thread, const SpanRecord& s, std::uint64_t start,
                std::uint64_t length) {
    const std::string_view name = name_of(s);
    event(fmt::format(
        R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"cat":"{}","name":{},"args":{{{}}}}})",
        process, thread, microseconds(start), microseconds(length), to_string(s.kind),
        json_name(name), arguments(s)));
  }

  void add(const SpanRecord& s) { complete(kHost, s.thread, s, s.start, s.end - s.start); }

  void add_on_device(const SpanRecord& s) {
    const int process = 1 + s.device.index;
    const auto [stream, is_new] = streams_.try_emplace({process, s.stream}, streams_.size());
    if (is_new) {
      name("process_name", process, 0, to_string(s.device));
      name("thread_name", process, stream->second, fmt::format("stream {}", stream->second));
    }
    complete(process, stream->second, s,
             static_cast<std::uint64_t>(1e9 * std::max(0.0, s.device_start)),
             static_cast<std::uint64_t>(1e9 * s.device_seconds));
  }

  void counter(const char* name, std::uint64_t time, double value) {
    event(fmt::format(R"({{"ph":"C","pid":{},"tid":0,"ts":{},"name":{},"args":{{"value":{}}}}})",
                      kHost, microseconds(time), io::json_string(name),
                      std::isfinite(value) ? fmt::format("{}", value) : "0"));
  }

  void add_memory() {
    std::vector<std::tuple<std::uint64_t, int, std::int64_t>> samples;  // time, process, bytes
    for (const SpanRecord& s : log_.spans)
      if (s.memory >= 0)
        samples.emplace_back(s.end, s.device.is_cuda() ? 1 + s.device.index : kHost, s.memory);
    std::sort(samples.begin(), samples.end());
    std::map<int, std::int64_t> last;
    for (const auto& [time, process, bytes] : samples) {
      const auto [at, is_new] = last.try_emplace(process, bytes);
      if (!is_new && at->second == bytes) continue;
      at->second = bytes;
      counter(process == kHost ? "memory cpu" : fmt::format("memory cuda:{}", process - 1).c_str(),
              time, static_cast<double>(bytes));
    }
  }

  const runtime::SpanLog& log_;
  io::TextFile file_;
  bool first_ = true;
  std::map<std::pair<int, const void*>, std::size_t> streams_;
};

}  // namespace

void check_trace_path(const std::string& path) { io::TextFile file(kOp, path); }

void write_trace(const runtime::SpanLog& log, const std::string& path) { Trace(log, path).write(); }

}  // namespace firn::profile_parts
