#include "coalescing.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <tuple>
#include <vector>

#include "symbols.h"

namespace cusim::check {
namespace {

struct Line {
  std::uint64_t requests = 0, sectors = 0, bytes = 0;
};

/// A warp's threads make one request where they run the same instruction for the k-th time.
struct Request {
  std::vector<std::uintptr_t> sectors;
};
using Key = std::tuple<const void*, std::uint32_t, std::uint32_t>;  // instruction, warp, k

bool enabled() {
  static const bool on = std::getenv("CUSIM_COALESCING") != nullptr;
  return on;
}

std::map<Key, Request> requests;
std::map<std::pair<const void*, std::uint32_t>, std::uint32_t>
    times;  // instruction, thread: so far

class Table {
 public:
  ~Table() {
    for (const auto& [pc, line] : lines_) {
      std::printf(
          "cusim: %5.1f sectors a request, %3.0f %% used, %8llu requests: %s\n",
          static_cast<double>(line.sectors) / static_cast<double>(line.requests),
          100. * static_cast<double>(line.bytes) / (32. * static_cast<double>(line.sectors)),
          static_cast<unsigned long long>(line.requests), source_line(pc).c_str());
    }
  }
  Line& operator[](const void* pc) { return lines_[pc]; }

 private:
  std::map<const void*, Line> lines_;
};
Table table;

}  // namespace

void note_coalescing(const Access& a, std::uint32_t thread) {
  if (!enabled()) return;
  Request& request = requests[{a.pc, thread / 32, times[{a.pc, thread}]++}];
  const auto address = reinterpret_cast<std::uintptr_t>(a.p);
  table[a.pc].bytes += a.bytes;
  for (std::uintptr_t s = address / 32; s <= (address + a.bytes - 1) / 32; ++s) {
    bool known = false;
    for (std::uintptr_t have : request.sectors) known |= have == s;
    if (!known) request.sectors.push_back(s);
  }
}

void end_requests() {
  if (!enabled()) return;
  for (const auto& [key, request] : requests) {
    Line& line = table[std::get<0>(key)];
    ++line.requests;
    line.sectors += request.sectors.size();
  }
  requests.clear();
  times.clear();
}

}  // namespace cusim::check
