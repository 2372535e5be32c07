#include "runtime/memory/accounts.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>

#include "firn/error.h"
#include "firn/thread_context.h"
#include "runtime/memory/bytes.h"

namespace firn::memory {
namespace {

std::size_t index(Owner owner) noexcept { return static_cast<std::size_t>(owner); }

const char* name_of(const char* op) noexcept { return op ? op : "empty"; }

/// A text of fixed size, which allocates no memory.
class FixedText {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    const auto end =
        fmt::format_to_n(text_ + size_, sizeof text_ - size_, format, std::forward<Args>(args)...);
    size_ = std::min(size_ + end.size, sizeof text_);
  }
  void add_bytes(std::size_t bytes) {
    const ScaledBytes b = scaled(bytes);
    add("{:.{}f} {}", b.number, b.decimals, b.unit);
  }
  std::string_view view() const noexcept { return {text_, size_}; }

 private:
  char text_[2048];
  std::size_t size_ = 0;
};

/// Keeps the largest of the things that it is offered, largest first.
template <class T, std::size_t most = 5>
class Largest {
 public:
  void offer(std::size_t size, T what) noexcept {
    if (size == 0) return;
    Item item{size, what};
    for (std::size_t i = 0; i < count_; ++i)
      if (item.size > items_[i].size) std::swap(item, items_[i]);
    if (count_ < most) items_[count_++] = item;
  }
  /// Calls use(size, what, head), where head comes before the first, and ", " before others.
  template <class Use>
  void each(const char* head, Use&& use) const {
    for (std::size_t i = 0; i < count_; ++i)
      use(items_[i].size, items_[i].what, i == 0 ? head : ", ");
  }

 private:
  struct Item {
    std::size_t size;
    T what;
  };
  Item items_[most];
  std::size_t count_ = 0;
};

}  // namespace

void Accounts::add(const MemoryBlock& b, std::size_t size) noexcept {
  const auto raise = [size](MemoryStats::Count& c) {
    c.current += size;
    if (c.current <= c.peak) return false;
    c.peak = c.current;
    return true;
  };
  raise(stats_.by_owner[index(b.owner_)]);
  modules_[b.module_][index(b.owner_)] += size;
  if (raise(stats_.total)) {
    below_peak_ = false;
    peak_block_ = &b;
  }
}

void Accounts::subtract(const MemoryBlock& b) noexcept {
  if (!below_peak_) keep_peak();
  if (peak_block_ == &b) {
    peak_block_ = nullptr;
    peak_op_ = b.op();
  }
  stats_.by_owner[index(b.owner_)].current -= b.size_;
  modules_[b.module_][index(b.owner_)] -= b.size_;
  stats_.total.current -= b.size_;
}

void Accounts::allocated(MemoryBlock& b, void* data, std::size_t size) noexcept {
  b.data_ = data;
  b.size_ = size;
  b.module_ = thread_context.labels.module;
  b.op_.store(thread_context.labels.op, std::memory_order_relaxed);
  b.born_ = ++clock_;
  ++stats_.allocations;
  add(b, size);
  b.next_ = first_;
  b.link_ = &first_;
  if (first_) first_->link_ = &b.next_;
  first_ = &b;
}

void Accounts::released(MemoryBlock& b) noexcept {
  ++clock_;
  subtract(b);
  if (timeline_) {
    try {
      timeline_->ended.push_back({b.born_, clock_, b.size_, b.owner_, b.module_, b.op()});
    } catch (const std::bad_alloc&) {
      timeline_->incomplete = true;
    }
  }
  *b.link_ = b.next_;
  if (b.next_) b.next_->link_ = b.link_;
  b.data_ = nullptr;
  b.link_ = nullptr;
  b.next_ = nullptr;
}

void Accounts::keep_peak() noexcept {
  below_peak_ = true;
  stats_.at_peak = by_owner();
  const std::uint32_t n = runtime::module_count();
  std::copy_n(modules_.begin(), n, modules_at_peak_.begin());
}

BytesByOwner Accounts::by_owner() const noexcept {
  BytesByOwner bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = stats_.by_owner[i].current;
  return bytes;
}

void Accounts::taken_from_system(std::size_t size) noexcept {
  stats_.reserved += size;
  stats_.reserved_peak = std::max(stats_.reserved_peak, stats_.reserved);
  ++stats_.system_allocations;
}

bool Accounts::may_take(std::size_t size) {
  if (!limit_known_) read_limit();
  if (groups_) {
    const std::size_t most = groups_->most(stats_.reserved);
    stats_.limit = own_limit_ > 0 ? std::min(own_limit_, most) : most;
  }
  return stats_.limit == 0 || (size <= stats_.limit && stats_.reserved <= stats_.limit - size);
}

void Accounts::read_limit() {
  own_limit_ = stats_.limit = initial_limit();
  if (device_.is_cpu()) {
    auto groups = std::make_unique<GroupLimits>("/proc/self/cgroup", "/sys/fs/cgroup");
    if (!groups->empty()) groups_ = groups.release();
  }
  limit_known_ = true;
}

void Accounts::set_limit(std::size_t bytes) noexcept {
  stats_.limit = bytes;
  delete std::exchange(groups_, nullptr);  // a limit that was set replaces those of the groups
  limit_known_ = true;
}

void Accounts::reset_peak() noexcept {
  for (auto& c : stats_.by_owner) c.peak = c.current;
  stats_.total.peak = stats_.total.current;
  stats_.reserved_peak = stats_.reserved;
  below_peak_ = false;
  peak_block_ = nullptr;
  peak_op_ = nullptr;
}

MemoryStats Accounts::stats() const noexcept {
  MemoryStats s = stats_;
  if (!below_peak_) s.at_peak = by_owner();
  return s;
}

MemoryReport Accounts::report() const {
  MemoryReport r;
  r.device = device_;
  r.stats = stats();
  r.peak_op = name_of(peak_block_ ? peak_block_->op() : peak_op_);
  const Modules& at_peak = below_peak_ ? modules_at_peak_ : modules_;
  const BytesByOwner none{};
  for (std::uint32_t i = 0, n = runtime::module_count(); i < n; ++i)
    if (modules_[i] != none || at_peak[i] != none)
      r.modules.push_back({std::string(runtime::module_path(i)), modules_[i], at_peak[i]});
  std::sort(r.modules.begin(), r.modules.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  Largest<const MemoryBlock*> blocks;
  for (const MemoryBlock* b = first_; b; b = b->next_) {
    r.requested += b->bytes_;
    blocks.offer(b->size_, b);
  }
  blocks.each("", [&](std::size_t size, const MemoryBlock* b, const char*) {
    r.largest.push_back(
        {size, b->owner_, std::string(runtime::module_path(b->module_)), name_of(b->op())});
  });
  return r;
}

void Accounts::fail(std::size_t bytes, const char* why) const {
  FixedText text;
  text.add("{}: {} bytes on {}, with {} bytes in use and {} held from the system", why, bytes,
           to_string(device_), stats_.total.current, stats_.reserved);
  if (stats_.limit > 0) text.add(", limit {}", stats_.limit);
  Largest<Owner, kOwnerCount> owners;
  for (std::size_t i = 0; i < kOwnerCount; ++i)
    owners.offer(stats_.by_owner[i].current, static_cast<Owner>(i));
  owners.each("\n  in use: ", [&](std::size_t size, Owner owner, const char* head) {
    text.add("{}{} ", head, to_string(owner));
    text.add_bytes(size);
  });
  Largest<std::uint32_t> modules;
  for (std::uint32_t i = 1, n = runtime::module_count(); i < n; ++i)
    modules.offer(std::accumulate(modules_[i].begin(), modules_[i].end(), std::size_t{0}), i);
  modules.each("\n  by module: ", [&](std::size_t size, std::uint32_t module, const char* head) {
    text.add("{}{} ", head, runtime::module_path(module));
    text.add_bytes(size);
  });
  Largest<const MemoryBlock*> blocks;
  for (const MemoryBlock* b = first_; b; b = b->next_) blocks.offer(b->size_, b);
  blocks.each("\n  largest: ", [&](std::size_t size, const MemoryBlock* b, const char* head) {
    text.add("{}", head);
    text.add_bytes(size);
    text.add(" {} of {}", to_string(b->owner_), name_of(b->op()));
    if (b->module_) text.add(" in {}", runtime::module_path(b->module_));
  });
  throw OutOfMemory(text.view(), bytes);
}

bool Accounts::set_timeline(TimelineLog* log) noexcept {
  if (log && timeline_) return false;
  timeline_ = log;
  return true;
}

std::vector<TimelineLog::Ended> Accounts::in_use() const {
  std::vector<TimelineLog::Ended> all;
  for (const MemoryBlock* b = first_; b; b = b->next_)
    all.push_back({b->born_, 0, b->size_, b->owner_, b->module_, b->op()});
  std::reverse(all.begin(), all.end());
  return all;
}

void Accounts::begin_as(const Accounts& from) noexcept {
  stats_ = from.stats_;
  limit_known_ = from.limit_known_;
  modules_ = from.modules_;
  reset_peak();
}

void Accounts::released_elsewhere(const MemoryBlock& b) noexcept { subtract(b); }

}  // namespace firn::memory
