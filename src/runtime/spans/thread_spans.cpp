// ThreadSpans: the records of one thread.
#include <algorithm>
#include <new>
#include <utility>

#include "runtime/cuda/cuda.h"
#include "runtime/spans/recorder.h"

namespace firn::runtime {

std::size_t ThreadSpans::Hash::operator()(const Key& k) const noexcept {
  const auto mix = [](std::size_t h, std::size_t v) {
    return (h ^ v) * std::size_t{0x9E3779B97F4A7C15};
  };
  std::size_t h =
      mix(reinterpret_cast<std::uintptr_t>(k.name), reinterpret_cast<std::uintptr_t>(k.op));
  h = mix(h, std::size_t{k.module} << 32 | std::size_t(k.kind) << 24 | std::size_t(k.dtype) << 16 |
                 std::size_t(k.device.index) << 2 | std::size_t(k.device.is_cuda()) << 1 |
                 std::size_t{k.backward});
  return h ^ h >> 29;
}

SpanTotal& ThreadSpans::total_of(const SpanRecord& r) {
  return totals_[{r.name, r.op, r.module, r.kind, r.backward, r.dtype, r.device}];
}

std::size_t ThreadSpans::keep(const SpanRecord& r) {
  if (!take_place()) {
    ++left_out_;
    return kNone;
  }
  kept_.push_back(r);
  return kept_.size() - 1;
}

void ThreadSpans::wait(const SpanRecord& kernel, void* first_event, void* last_event) {
  waiting_.push_back({kernel, first_event, last_event});
  waiting_ns_ += kernel.end - kernel.start;
}

std::size_t ThreadSpans::count(SpanRecord& r) {
  r.thread = number_;
  SpanTotal& total = total_of(r);
  total.like = r;
  ++total.calls;
  const std::uint64_t ns = r.end - r.start;
  if (!r.again) total.ns += ns;
  total.self_ns += ns - std::min(ns, r.inside);
  total.work.flops += r.work.flops;
  total.work.bytes += r.work.bytes;
  return keep(r);
}

void ThreadSpans::settle(const char* op) {
  for (Waiting& w : waiting_) {
    if (op) w.record.op = op;
    try {
      const std::size_t place = count(w.record);
      if (!w.first_event) continue;
      timed_.push_back({w.first_event, w.last_event, w.record.device, place, &total_of(w.record)});
    } catch (const std::bad_alloc&) {  // the others are not lost, and none counts twice
      ++lost_;
      if (w.first_event) give_timers_back(w.first_event, w.last_event, w.record.device);
    }
  }
  waiting_.clear();
  waiting_ns_ = 0;
}

void ThreadSpans::open(std::uint64_t session, std::uint32_t number, const void* thread) noexcept {
  session_ = session;
  number_ = number;
  thread_ = thread;
}

void ThreadSpans::close() noexcept {
  for (const Timed& t : timed_) give_timers_back(t.first, t.last, t.device);
  for (const Waiting& w : waiting_)
    if (w.first_event) give_timers_back(w.first_event, w.last_event, w.record.device);
  session_ = 0;
  thread_ = nullptr;
  waiting_ = {};
  kept_ = {};
  totals_.clear();
  timed_ = {};
  waiting_ns_ = left_out_ = lost_ = 0;
}

void ThreadSpans::give_timers_back([[maybe_unused]] void* first, [[maybe_unused]] void* last,
                                   [[maybe_unused]] Device device) noexcept {
  if constexpr (kHasCuda) {
    memory::cuda::give_timer(device.index, first);
    memory::cuda::give_timer(device.index, last);
  }
}

void ThreadSpans::read_timers() {
  if constexpr (kHasCuda) {
    for (Timed& t : timed_) {
      const double start = memory::cuda::seconds_at(t.device.index, t.first);
      const double seconds = memory::cuda::seconds_between(t.device.index, t.first, t.last);
      if (start < 0 || seconds < 0) continue;
      t.total->device_seconds += seconds;
      ++t.total->device_calls;
      if (t.kept == kNone) continue;
      kept_[t.kept].device_start = start;
      kept_[t.kept].device_seconds = seconds;
    }
  }
}

void ThreadSpans::move_into(SpanLog& log) {
  read_timers();
  // An outer span ends after those within. By start, and the longer first, it comes before them.
  std::stable_sort(kept_.begin(), kept_.end(), [](const SpanRecord& a, const SpanRecord& b) {
    return a.start != b.start ? a.start < b.start
           : a.end != b.end   ? a.end > b.end
                              : a.kind < b.kind;
  });
  log.left_out += left_out_;
  log.lost += lost_;
  try {
    for (const auto& [key, total] : totals_) log.totals.push_back(total);
    if (log.spans.empty()) {
      log.spans.swap(kept_);
    } else {
      log.spans.insert(log.spans.end(), kept_.begin(), kept_.end());
    }
  } catch (const std::bad_alloc&) {
    log.lost += kept_.size();
  }
}

}  // namespace firn::runtime
