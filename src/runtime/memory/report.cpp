#include "firn/memory/report.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "base/check.h"
#include "base/json_string.h"
#include "firn/memory/labels.h"
#include "runtime/memory/accounts.h"
#include "runtime/memory/allocator.h"

namespace firn {
namespace {

using memory::Accounts;
using memory::TimelineLog;

std::size_t sum(const BytesByOwner& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
}

std::string json_of(const BytesByOwner& bytes) {
  std::string out = "{";
  for (std::size_t i = 0; i < bytes.size(); ++i)
    out += fmt::format("{}\"{}\": {}", i ? ", " : "", to_string(static_cast<Owner>(i)), bytes[i]);
  return out + "}";
}

/// Returns a block's members of a JSON object.
std::string members_of(const BlockReport& b) {
  return fmt::format("\"bytes\": {}, \"owner\": \"{}\", \"module\": {}, \"op\": {}", b.bytes,
                     to_string(b.owner), json_string(b.module), json_string(b.op));
}

/// "[a,\n  b]"
template <class List, class Item>
std::string json_array(const List& list, const Item& item) {
  std::string out;
  for (const auto& element : list) out += (out.empty() ? "\n  " : ",\n  ") + item(element);
  return "[" + out + "]";
}

}  // namespace

MemoryReport memory_report(Device device) try {
  require_device("memory_report", device);
  MemoryReport report;
  memory::look(device, [&](const Accounts& a) { report = a.report(); });
  return report;
}
FIRN_OUT_OF_MEMORY("memory_report")

std::string MemoryReport::table() const {
  std::string out =
      fmt::format("{}: {} in use, {} at the peak (during {}), {} held from the system{}\n",
                  to_string(device), bytes_to_string(stats.total.current),
                  bytes_to_string(stats.total.peak), peak_op, bytes_to_string(stats.reserved),
                  stats.limit ? ", limit " + bytes_to_string(stats.limit) : std::string());
  out += fmt::format("{} of it free, {} lost to rounding\n\n", bytes_to_string(cached()),
                     bytes_to_string(rounding()));
  const auto row = [&](std::string_view name, std::size_t now, std::size_t peak) {
    out += fmt::format("{:<40} {:>12} {:>12}\n", name, bytes_to_string(now), bytes_to_string(peak));
  };
  out += fmt::format("{:<40} {:>12} {:>12}\n", "owner", "now", "at the peak");
  for (std::size_t i = 0; i < kOwnerCount; ++i)
    row(to_string(static_cast<Owner>(i)), stats.by_owner[i].current, stats.at_peak[i]);
  row("total", stats.total.current, stats.total.peak);
  out += fmt::format("\n{:<40} {:>12} {:>12}\n", "module", "now", "at the peak");
  for (const Module& m : modules)
    row(m.path.empty() ? "(outside of modules)" : m.path, sum(m.now), sum(m.at_peak));
  if (!largest.empty()) out += "\nlargest blocks\n";
  for (const BlockReport& b : largest)
    out += fmt::format("{:>12}  {} of {}{}\n", bytes_to_string(b.bytes), to_string(b.owner), b.op,
                       b.module.empty() ? "" : " in " + b.module);
  return out;
}

std::string MemoryReport::json() const try {
  BytesByOwner now{};
  for (std::size_t i = 0; i < kOwnerCount; ++i) now[i] = stats.by_owner[i].current;
  std::string out = fmt::format(
      "{{\"device\": \"{}\", \"total\": {}, \"peak\": {}, \"peak_op\": {}, \"reserved\": {}, "
      "\"reserved_peak\": {}, \"limit\": {}, \"cached\": {}, \"rounding\": {},\n",
      to_string(device), stats.total.current, stats.total.peak, json_string(peak_op),
      stats.reserved, stats.reserved_peak, stats.limit, cached(), rounding());
  out += fmt::format(" \"owners\": {{\"now\": {}, \"at_peak\": {}}},\n", json_of(now),
                     json_of(stats.at_peak));
  const std::string rows = json_array(modules, [](const Module& m) {
    return fmt::format("{{\"path\": {}, \"now\": {}, \"at_peak\": {}}}", json_string(m.path),
                       json_of(m.now), json_of(m.at_peak));
  });
  const std::string blocks =
      json_array(largest, [](const BlockReport& b) { return "{" + members_of(b) + "}"; });
  return out + " \"modules\": " + rows + ",\n \"largest\": " + blocks + "}\n";
}
FIRN_OUT_OF_MEMORY("MemoryReport::json")

// ---- Timelines ----

struct MemoryTimeline::Impl {
  Device device;
  TimelineLog log;
  std::uint64_t began = 0;  ///< time by the clock of the accounts
  std::size_t total = 0;    ///< bytes in use at the beginning
};

MemoryTimeline::MemoryTimeline(Device device) try : impl_(std::make_shared<Impl>()) {
  require_device("MemoryTimeline", device);
  impl_->device = device;
  bool is_first = false;
  memory::look(device, [&](Accounts& a) {
    is_first = a.set_timeline(&impl_->log);
    impl_->began = a.clock();
    impl_->total = a.stats().total.current;
  });
  FIRN_CHECK(is_first, "MemoryTimeline", "end the other one first", "{} has a timeline already",
             device);
}
FIRN_OUT_OF_MEMORY("MemoryTimeline")

MemoryTimeline::~MemoryTimeline() {
  memory::look(impl_->device, [](Accounts& a) { a.set_timeline(nullptr); });
}

std::vector<MemoryTimeline::Block> MemoryTimeline::blocks() const try {
  std::vector<TimelineLog::Ended> all;
  bool incomplete = false;
  memory::look(impl_->device, [&](const Accounts& a) {
    all = impl_->log.ended;
    for (const auto& b : a.in_use()) all.push_back(b);
    incomplete = impl_->log.incomplete;
  });
  if (incomplete) detail::out_of_memory("a timeline of memory");
  std::vector<Block> blocks;
  for (const auto& e : all) {
    Block b;
    b.bytes = e.bytes;
    b.owner = e.owner;
    b.module = runtime::module_path(e.module);
    b.op = e.op ? e.op : "empty";
    b.born = e.born > impl_->began ? e.born - impl_->began : 0;
    b.died = e.died > 0 ? e.died - impl_->began : 0;
    blocks.push_back(std::move(b));
  }
  return blocks;
}
FIRN_OUT_OF_MEMORY("MemoryTimeline::blocks")

std::vector<std::size_t> MemoryTimeline::totals() const try {
  const std::vector<Block> all = blocks();
  std::uint64_t last = 0;
  for (const Block& b : all) last = std::max({last, b.born, b.died});
  std::vector<std::size_t> totals(last + 1, 0);
  // Differences first; a release takes away, modulo 2^64.
  totals[0] = impl_->total;
  for (const Block& b : all) {
    if (b.born > 0) totals[b.born] += b.bytes;
    if (b.died > 0) totals[b.died] -= b.bytes;
  }
  std::partial_sum(totals.begin(), totals.end(), totals.begin());
  return totals;
}
FIRN_OUT_OF_MEMORY("MemoryTimeline::totals")

std::string MemoryTimeline::json() const try {
  const std::string all = json_array(blocks(), [](const Block& b) {
    return fmt::format("{{\"born\": {}, \"died\": {}, {}}}", b.born, b.died, members_of(b));
  });
  return fmt::format("{{\"device\": \"{}\", \"total\": {}, \"blocks\": {}}}\n",
                     to_string(impl_->device), impl_->total, all);
}
FIRN_OUT_OF_MEMORY("MemoryTimeline::json")

}  // namespace firn
