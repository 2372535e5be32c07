#include "happens_before.h"

#include <algorithm>
#include <cstring>

namespace cusim::check {

void HappensBefore::begin_launch() {
  block_ = ~0u;
  releases_.clear();
  acquires_.clear();
}

void HappensBefore::begin_block(std::uint32_t threads) {
  ++block_;
  threads_ = threads;
  clock_ = 0;
  barriers_ = 0;
  fences_ = 0;
  all_fenced_below_ = 0;
  std::memset(syncs_, 0, sizeof syncs_);
  std::fill_n(fence_clock_, threads, 0u);
  std::fill_n(fence_barriers_, threads, std::uint16_t{0});
  acquires_.clear();
}

void HappensBefore::after_barrier() {
  if (fences_ == threads_) all_fenced_below_ = static_cast<std::uint16_t>(barriers_ + 1);
  fences_ = 0;
  ++barriers_;
  ++clock_;
}

void HappensBefore::after_fence(std::uint32_t thread) {
  const auto now = static_cast<std::uint16_t>(barriers_ + 1);
  if (fence_barriers_[thread] != now) ++fences_;
  fence_barriers_[thread] = now;
  fence_clock_[thread] = ++clock_;
}

void HappensBefore::after_atomic(const void* address, std::uint32_t thread) {
  // A thread's fence covers what it did, and what the others did before the last barrier. Where all
  // threads have a fence before a barrier, any of them may release it all after.
  const std::uint16_t own = fence_barriers_[thread];
  const auto below =
      std::max<std::uint16_t>(all_fenced_below_, own > 0 ? static_cast<std::uint16_t>(own - 1) : 0);
  Releases& here = releases_[address];
  const auto earlier = static_cast<std::uint16_t>(thread);
  const bool known = std::any_of(acquires_.begin(), acquires_.end(), [&](const Acquire& a) {
    return a.address == address && a.thread == earlier;
  });
  if (!known) acquires_.push_back({address, &here, earlier, barriers_, ++clock_});
  if (own == 0 && below == 0) return;
  Release& release = here.try_emplace(block_, Release{below, earlier, own}).first->second;
  release.below = std::max(release.below, below);
}

bool HappensBefore::visible(const Acquire& acquire, const Stamp& me) const {
  if (acquire.thread == me.thread) return fence_clock_[me.thread] > acquire.clock;
  if (me.barriers == acquire.barriers) return false;
  return fence_clock_[me.thread] > acquire.clock || fence_clock_[acquire.thread] > acquire.clock;
}

bool HappensBefore::ordered(const Stamp& before, const Stamp& me) const {
  if (before.block != me.block) {
    for (const Acquire& acquire : acquires_) {
      if (!visible(acquire, me)) continue;
      const auto found = acquire.releases->find(before.block);
      if (found == acquire.releases->end()) continue;
      const Release& release = found->second;
      if (before.barriers < release.below) return true;
      if (before.thread == release.thread && before.barriers < release.own_below) return true;
    }
    return false;
  }
  if (before.thread == me.thread || before.barriers != me.barriers) return true;
  return before.thread / 32 == me.thread / 32 && before.syncs != me.syncs;
}

bool HappensBefore::after_all_blocks(const Stamp& me) const {
  for (const Acquire& acquire : acquires_) {
    if (visible(acquire, me) && acquire.releases->size() >= me.block) return true;
  }
  return me.block == 0;
}

bool HappensBefore::took_part(const void* address, const Stamp& me) const {
  return std::any_of(acquires_.begin(), acquires_.end(), [&](const Acquire& a) {
    return a.address == address && a.thread == me.thread;
  });
}

}  // namespace cusim::check
