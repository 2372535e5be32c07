#include "train/fit/step_memory.h"

#include <algorithm>
#include <array>

#include "firn/error.h"

namespace firn::train {
namespace {

constexpr std::size_t kPoints = 48;  // for any number of allocations

using Owners = std::array<std::int64_t, kOwnerCount>;

/// Returns the bytes by owner after each event.
std::vector<Owners> by_event(const MemoryTimeline& timeline) {
  std::vector<Owners> out(timeline.totals().size(), Owners{});
  for (const MemoryTimeline::Block& b : timeline.blocks()) {
    const auto owner = static_cast<std::size_t>(b.owner);
    const auto bytes = static_cast<std::int64_t>(b.bytes);
    if (b.born < out.size()) out[b.born][owner] += bytes;
    if (b.died > 0 && b.died < out.size()) out[b.died][owner] -= bytes;
  }
  for (std::size_t i = 1; i < out.size(); ++i)
    for (std::size_t o = 0; o < out[i].size(); ++o) out[i][o] += out[i - 1][o];
  return out;
}

std::int64_t total(const Owners& bytes) {
  std::int64_t sum = 0;
  for (const std::int64_t b : bytes) sum += b;
  return sum;
}

/// Returns, for each range of events, the event with the most bytes, so the peak is among them.
std::vector<Record> records_of(const MemoryTimeline& timeline, std::int64_t cycle) {
  const std::vector<Owners> events = by_event(timeline);
  std::vector<Record> out;
  for (std::size_t point = 0; point < kPoints; ++point) {
    const std::size_t begin = point * events.size() / kPoints;
    const std::size_t end = std::max(begin + 1, (point + 1) * events.size() / kPoints);
    std::size_t most = begin;
    for (std::size_t i = begin; i < end; ++i)
      if (total(events[i]) > total(events[most])) most = i;
    Record owners;
    for (std::size_t o = 0; o < events[most].size(); ++o)
      owners.add(to_string(static_cast<Owner>(o)), events[most][o]);
    out.push_back(Record("memory")
                      .add("cycle", cycle)
                      .add("point", point + 1)
                      .add("measured", Record()
                                           .add("event", most)
                                           .add("bytes", total(events[most]))
                                           .add("by_owner", owners)));
  }
  return out;
}

}  // namespace

std::vector<Record> StepMemory::after_batch(std::int64_t cycles, bool within, Device device) {
  if (cycles == 1 && within && !timeline_) {
    try {
      timeline_.emplace(device);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error&) {  // the program records its memory itself: no records
    }
    return {};
  }
  if (cycles < 2 || !timeline_) return {};
  std::vector<Record> out;
  if (cycles == 2) out = records_of(*timeline_, cycles);
  timeline_.reset();
  return out;
}

}  // namespace firn::train
