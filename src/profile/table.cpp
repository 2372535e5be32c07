// The tables of a profile: totals of spans, grouped by ProfileBy.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/check.h"
#include "firn/memory/labels.h"
#include "io/json.h"
#include "profile/parts.h"

namespace firn::profile_parts {
namespace {

using runtime::SpanKind;
using runtime::SpanTotal;

double in_seconds(std::uint64_t ns) { return 1e-9 * static_cast<double>(ns); }

bool is_backward(const SpanTotal& t) {
  return t.like.backward || t.like.kind == SpanKind::gradient;
}

/// A row, and the values from which its share of the peak is computed.
struct Sum {
  ProfileRow row;
  std::int64_t kernel_calls = 0;
  double least_seconds = 0, kernel_seconds = 0;
};

class Table {
 public:
  Table(const runtime::SpanLog& log, ProfileBy by) : by_(by) {
    std::uint64_t covered = 0;  // time of the first thread
    for (const SpanTotal& t : log.totals) {
      if (t.like.thread == 0) covered += t.self_ns;
      add(t);
    }
    if (by != ProfileBy::phase && log.ns > covered)
      sums_[{"(outside of spans)", "", false}].row.seconds += in_seconds(log.ns - covered);
  }

  std::vector<ProfileRow> rows() {
    std::vector<ProfileRow> out;
    for (auto& [key, sum] : sums_) {
      ProfileRow& r = sum.row;
      std::tie(r.name, r.detail, r.backward) = key;
      if (r.calls == 0 && by_ == ProfileBy::operation) r.calls = sum.kernel_calls;
      r.of_peak = sum.least_seconds > 0 && sum.kernel_seconds > 0
                      ? sum.least_seconds / sum.kernel_seconds
                      : std::numeric_limits<double>::quiet_NaN();
      out.push_back(std::move(r));
    }
    std::stable_sort(out.begin(), out.end(), [](const ProfileRow& a, const ProfileRow& b) {
      return std::max(a.seconds, a.device_seconds) > std::max(b.seconds, b.device_seconds);
    });
    return out;
  }

 private:
  using Key = std::tuple<std::string, std::string, bool>;

  Key key_of(const SpanTotal& t) const {
    const runtime::SpanRecord& s = t.like;
    const bool backward = is_backward(t);
    switch (by_) {
      case ProfileBy::module_path: {
        const std::string_view path = runtime::module_path(s.module);
        return {path.empty() ? "(no module)" : std::string(path), "", backward};
      }
      case ProfileBy::kernel:
        if (s.kind == SpanKind::kernel)
          return {s.name, fmt::format("{}{}", s.op ? fmt::format("{}, ", s.op) : "", s.dtype),
                  backward};
        return {"(no kernel)", "", backward};
      case ProfileBy::phase:
        return {s.name, "", false};
      case ProfileBy::operation:
        break;
    }
    switch (s.kind) {
      case SpanKind::phase:
        return {fmt::format("({})", s.name), "", false};
      case SpanKind::module_call:
        return {"(calls of modules)", "", false};
      case SpanKind::kernel:
        return {s.op ? s.op : s.name, "", backward};
      default:
        return {s.name, "", backward};
    }
  }

  /// Returns true if the rows count spans of this kind.
  bool counts(SpanKind kind) const {
    switch (by_) {
      case ProfileBy::module_path:
        return kind == SpanKind::module_call;
      case ProfileBy::kernel:
        return kind == SpanKind::kernel;
      case ProfileBy::phase:
        return kind == SpanKind::phase;
      case ProfileBy::operation:
        break;
    }
    return kind != SpanKind::kernel;
  }

  void add(const SpanTotal& t) {
    const SpanKind kind = t.like.kind;
    if (by_ == ProfileBy::phase && kind != SpanKind::phase) return;
    Sum& sum = sums_[key_of(t)];
    sum.row.seconds += in_seconds(by_ == ProfileBy::phase ? t.ns : t.self_ns);
    const auto calls = static_cast<std::int64_t>(t.calls);
    if (counts(kind)) sum.row.calls += calls;
    if (kind != SpanKind::kernel) return;
    sum.kernel_calls += calls;
    sum.row.device_seconds += t.device_seconds;
    sum.row.flops += t.work.flops;
    sum.row.bytes += t.work.bytes;
    add_least_time(sum, t);
  }

  /// Adds a kernel's least time. Kernels on a device without a measured time do not count for the
  /// share.
  void add_least_time(Sum& sum, const SpanTotal& t) {
    const Device device = t.like.device;
    if (t.work.bytes <= 0 && t.work.flops <= 0) return;
    double measured = in_seconds(t.self_ns), part = 1;
    if (device.is_cuda()) {
      if (t.device_calls == 0) return;
      measured = t.device_seconds;
      part = static_cast<double>(t.device_calls) / static_cast<double>(t.calls);
    }
    const MachinePeak peak = peak_of(device, is_floating(t.like.dtype) ? t.like.dtype : f32);
    if (peak.flops == 0) return;
    sum.least_seconds +=
        part * std::max(t.work.flops / peak.flops, t.work.bytes / peak.bytes_per_second);
    sum.kernel_seconds += measured;
  }

  /// Returns the peak; zeros if there is no memory to measure it.
  static MachinePeak peak_of(Device device, DType dtype) {
    try {
      return machine_peak(device, dtype);
    } catch (const OutOfMemory&) {
      return {};
    }
  }

  ProfileBy by_;
  std::map<Key, Sum> sums_;
};

std::string duration(double seconds) {
  if (seconds <= 0) return "0";
  if (seconds < 1e-3) return fmt::format("{:.1f} us", 1e6 * seconds);
  if (seconds < 1) return fmt::format("{:.2f} ms", 1e3 * seconds);
  return fmt::format("{:.3f} s", seconds);
}

std::string rate(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? fmt::format("{:.1f}", 1e-9 * amount / seconds) : "";
}

const char* heading(ProfileBy by) {
  switch (by) {
    case ProfileBy::operation:
      return "operation";
    case ProfileBy::module_path:
      return "module";
    case ProfileBy::phase:
      return "phase";
    case ProfileBy::kernel:
      return "kernel";
  }
  return "";
}

std::string title(const ProfileRow& r) {
  return fmt::format("{}{}{}", io::name_for_message(r.name), r.backward ? " backward" : "",
                     r.detail.empty() ? "" : fmt::format(" ({})", r.detail));
}

}  // namespace

std::vector<ProfileRow> rows_of(const runtime::SpanLog& log, ProfileBy by) {
  return Table(log, by).rows();
}

std::string table_of(const runtime::SpanLog& log, ProfileBy by, int most) {
  std::vector<ProfileRow> rows = rows_of(log, by);
  const double whole = in_seconds(log.ns);
  std::set<std::uint32_t> threads{0};
  bool on_device = false;
  for (const SpanTotal& t : log.totals) threads.insert(t.like.thread);
  for (const ProfileRow& r : rows) on_device |= r.device_seconds > 0;
  if (rows.size() > static_cast<std::size_t>(most)) {
    ProfileRow others;
    for (std::size_t i = static_cast<std::size_t>(most); i < rows.size(); ++i) {
      others.calls += rows[i].calls;
      others.seconds += rows[i].seconds;
      others.device_seconds += rows[i].device_seconds;
      others.flops += rows[i].flops;
      others.bytes += rows[i].bytes;
    }
    others.name = fmt::format("{} more", rows.size() - static_cast<std::size_t>(most));
    others.of_peak = std::numeric_limits<double>::quiet_NaN();
    rows.resize(static_cast<std::size_t>(most));
    rows.push_back(std::move(others));
  }
  std::size_t width = 12;
  for (const ProfileRow& r : rows) width = std::max(width, title(r).size());
  std::string out =
      fmt::format("{:<{}} {:>9} {:>10} {:>6} {:>10}{} {:>9} {:>8} {:>8}\n", heading(by), width,
                  "calls", "time", "%", "a call", on_device ? fmt::format(" {:>10}", "device") : "",
                  "GFLOP/s", "GB/s", "of peak");
  for (const ProfileRow& r : rows) {
    const double busy = r.device_seconds > 0 ? r.device_seconds : r.seconds;
    out += fmt::format(
        "{:<{}} {:>9} {:>10} {:>6.1f} {:>10}{} {:>9} {:>8} {:>8}\n", title(r), width,
        r.calls > 0 ? fmt::to_string(r.calls) : "", duration(r.seconds),
        whole > 0 ? 100 * r.seconds / whole : 0.0,
        r.calls > 0 ? duration(r.seconds / static_cast<double>(r.calls)) : "",
        on_device ? fmt::format(" {:>10}", r.device_seconds > 0 ? duration(r.device_seconds) : "")
                  : "",
        by == ProfileBy::phase ? "" : rate(r.flops, busy),
        by == ProfileBy::phase ? "" : rate(r.bytes, busy),
        std::isnan(r.of_peak) ? "" : fmt::format("{:.0f} %", 100 * r.of_peak));
  }
  out +=
      fmt::format("wall time {}, {} thread{}{}{}\n", duration(whole), threads.size(),
                  threads.size() == 1 ? "" : "s, whose times are added up",
                  log.left_out > 0 ? fmt::format("; {} spans are in no trace", log.left_out) : "",
                  log.lost > 0 ? fmt::format("; {} were lost for want of memory", log.lost) : "");
  return out;
}

}  // namespace firn::profile_parts
