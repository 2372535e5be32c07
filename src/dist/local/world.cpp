#include "dist/local/world.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "dist/combine.h"

namespace firn::dist {
namespace {

const std::byte* at(const void* p, std::size_t bytes) noexcept {
  return static_cast<const std::byte*>(p) + bytes;
}

void copy(void* to, std::size_t offset, const void* from, std::size_t bytes) noexcept {
  std::byte* const target = static_cast<std::byte*>(to) + offset;
  if (bytes > 0 && target != from) std::memcpy(target, from, bytes);
}

}  // namespace

LocalWorld::LocalWorld(int ranks, double deadline, std::shared_ptr<LocalWorld> parent,
                       std::vector<int> of_all)
    : deadline_(deadline),
      parent_(std::move(parent)),
      of_all_(std::move(of_all)),
      places_(static_cast<std::size_t>(ranks)),
      calls_(places_.size()),
      from_(places_.size()),
      to_(places_.size()),
      ranges_(2 * places_.size()) {
  posts_.reserve(2 * places_.size());
}

std::shared_ptr<LocalWorld> LocalWorld::split(const SplitPart& part) {
  const std::lock_guard lock(mutex_);
  // All ranks have made the same collectives, and none begins another one before all have split.
  std::erase_if(parts_, [this](const auto& old) { return old.first.first < opened_; });
  const std::pair key(opened_, part.index);
  std::shared_ptr<LocalWorld>& entry = parts_[key];
  if (!entry) {
    std::vector<int> of_all;
    for (const int m : part.members)
      of_all.push_back(of_all_.empty() ? m : of_all_[static_cast<std::size_t>(m)]);
    auto world = std::make_shared<LocalWorld>(static_cast<int>(part.members.size()), deadline_,
                                              shared_from_this(), std::move(of_all));
    std::erase_if(children_, [](const Child& child) { return child.world.expired(); });
    children_.push_back({world, part.members});
    for (std::size_t i = 0; i < part.members.size(); ++i)
      if (is_gone(part.members[i])) world->leave(static_cast<int>(i), nullptr);
    entry = std::move(world);
  }
  return entry;
}

void LocalWorld::run(int rank, const Call& call, const void* from, void* to) {
  std::unique_lock lock(mutex_);
  enter(rank, call.kind);
  Place& place = places_[static_cast<std::size_t>(rank)];
  try {
    meet(lock, rank, call, from, to);
  } catch (...) {
    place.inside = false;
    throw;
  }
  const std::uint64_t round = closed_;
  lock.unlock();
  work(rank, call);
  lock.lock();
  if (++finished_ == size()) {
    finished_ = 0;
    ++closed_;
    met_.notify_all();
  } else {
    met_.wait(lock, [&] { return closed_ > round; });
  }
  place.inside = false;
}

void LocalWorld::meet(std::unique_lock<std::mutex>& lock, int rank, const Call& call,
                      const void* from, void* to) {
  if (break_ != Break::none) throw_broken(rank, call.kind, false);
  const auto i = static_cast<std::size_t>(rank);
  calls_[i] = call;
  from_[i] = from;
  to_[i] = to;
  const std::uint64_t round = opened_;
  places_[i].came = round + 1;
  if (++arrived_ == size()) {
    agree();
    if (break_ == Break::none) {
      arrived_ = 0;
      ++opened_;
    }
    met_.notify_all();
  } else {
    const auto end = std::chrono::steady_clock::now() + seconds(deadline_);
    const auto decided = [&] { return opened_ > round || break_ != Break::none; };
    if (!met_.wait_until(lock, end, decided)) {
      const auto missing = std::find_if(places_.begin(), places_.end(),
                                        [&](const Place& place) { return place.came <= round; });
      break_up(Break::late, rank, static_cast<int>(missing - places_.begin()), call.kind);
    }
  }
  // A later collective may have failed already. This one has failed only if it was not opened.
  if (opened_ == round) throw_broken(rank, call.kind, true);
}

void LocalWorld::agree() {
  const Call& call = calls_[0];
  const auto other =
      std::find_if(calls_.begin(), calls_.end(), [&](const Call& c) { return c != call; });
  if (other != calls_.end())
    return break_up(Break::different, 0, static_cast<int>(other - calls_.begin()), call.kind);
  const std::size_t part = call.bytes(), all = part * calls_.size();
  ranges_.clear();
  for (int r = 0; r < size(); ++r) {
    const void* from = from_[static_cast<std::size_t>(r)];
    const void* to = to_[static_cast<std::size_t>(r)];
    switch (call.kind) {
      case CallKind::all_reduce:
        ranges_.add(r, to, part, true);
        break;
      case CallKind::reduce_scatter:
        ranges_.add(r, from, all, false);
        ranges_.add(r, to, part, true);
        break;
      case CallKind::all_gather:
        ranges_.add(r, from, part, false);
        ranges_.add(r, to, all, true);
        break;
      case CallKind::all_to_all:
        ranges_.add(r, from, all, false);
        ranges_.add(r, to, all, true);
        break;
      case CallKind::broadcast:
        ranges_.add(r, to, part, r != call.root);
        break;
      default:
        break;
    }
  }
  if (const auto ranks = ranges_.conflict())
    break_up(Break::overlap, ranks->first, ranks->second, call.kind);
}

void LocalWorld::break_up(Break why, int finder, int blamed, CallKind call) noexcept {
  if (break_ != Break::none) return;
  break_ = why;
  finder_ = finder;
  blamed_ = blamed;
  broken_call_ = call;
  met_.notify_all();
}

void LocalWorld::enter(int rank, CallKind kind) {
  Place& place = places_[static_cast<std::size_t>(rank)];
  const char* const op = to_string(kind);
  FIRN_CHECK(!place.inside, op, "use a group from one thread at a time",
             "rank {} is in a collective already, in another thread", rank);
  if (place.gone)
    throw RankError(op, rank, rank, fmt::format("{} has ended", name(rank)),
                    "use the group only in the function that was given to run_local()");
  place.inside = true;
}

void LocalWorld::leave(int rank, const char* thrown) noexcept {
  const std::lock_guard lock(mutex_);
  places_[static_cast<std::size_t>(rank)].gone = true;
  if (std::all_of(places_.begin(), places_.end(), [](const Place& p) { return p.gone; }))
    parts_.clear();  // parts that no rank took refer to this world
  met_.notify_all();
  for (const Child& child : children_) {
    const auto at = std::find(child.members.begin(), child.members.end(), rank);
    const auto world = child.world.lock();
    if (world && at != child.members.end())
      world->leave(static_cast<int>(at - child.members.begin()), thrown);
  }
  if (break_ != Break::none) return;
  if (thrown) note_thrown(thrown);
  break_up(Break::gone, rank, rank, CallKind::barrier);
  threw_ = thrown != nullptr;
}

void LocalWorld::give_up(int rank, std::string_view why) noexcept {
  const std::lock_guard lock(mutex_);
  if (break_ != Break::none) return;
  note_thrown(why);
  break_up(Break::failed, rank, rank, CallKind::barrier);
}

void LocalWorld::note_thrown(std::string_view what) noexcept {
  try {
    thrown_ = std::string(": ").append(what);
  } catch (const std::bad_alloc&) {
    thrown_.clear();
  }
}

void LocalWorld::throw_broken(int rank, CallKind kind, bool met) const {
  const char* const op = to_string(kind);
  const char* const broken = to_string(broken_call_);
  switch (break_) {
    case Break::late:
      if (blamed_ == rank)
        throw RankError(op, rank, rank,
                        fmt::format("{} waited {} s for {} in {}", name(finder_), deadline_,
                                    name(rank), broken),
                        "a group is broken once a deadline has passed");
      throw RankError(op, rank, blamed_,
                      fmt::format("{} did not come to {} within {} s; {} waited for it",
                                  name(blamed_), broken, deadline_, name(finder_)),
                      "all ranks make the same calls in the same order; LocalOptions::deadline is "
                      "how long they may take");
    case Break::gone:
      throw RankError(
          op, rank, blamed_,
          fmt::format("{} ended {}{}", name(blamed_),
                      threw_ ? "by an exception" : "before it came to this call", thrown_));
    case Break::failed:
      throw RankError(op, rank, blamed_, fmt::format("{} has failed{}", name(blamed_), thrown_),
                      "a group is broken once a rank has given up what others wait for");
    case Break::different:
      if (met) check_same(rank, calls_, of_all_);
      break;
    default:
      break;
  }
  const std::string both = of_all_.empty() ? fmt::format("ranks {} and {}", finder_, blamed_)
                                           : name(finder_) + " and " + name(blamed_);
  throw RankError(op, rank, rank == blamed_ ? finder_ : blamed_,
                  break_ == Break::overlap
                      ? fmt::format("{} gave the same memory to {}", both, broken)
                      : fmt::format("{} have made different calls before", both),
                  break_ == Break::overlap ? "each rank needs a tensor of its own to write to"
                                           : "a group is broken once calls have differed");
}

void LocalWorld::work(int rank, const Call& call) const noexcept {
  const std::size_t part = call.bytes();
  const auto own = static_cast<std::size_t>(rank);
  switch (call.kind) {
    case CallKind::all_reduce: {
      const std::int64_t first = share_begin(call.count, call.dtype, rank, size());
      const std::int64_t end = share_begin(call.count, call.dtype, rank + 1, size());
      return combine_all(call.dtype, call.reduce, from_, first, to_, first, end - first);
    }
    case CallKind::reduce_scatter:
      return combine_all(call.dtype, call.reduce, from_, call.count * rank,
                         std::span(to_).subspan(own, 1), 0, call.count);
    case CallKind::all_gather:
      for (std::size_t r = 0; r < from_.size(); ++r) copy(to_[own], r * part, from_[r], part);
      return;
    case CallKind::all_to_all:
      for (std::size_t r = 0; r < from_.size(); ++r)
        copy(to_[own], r * part, at(from_[r], own * part), part);
      return;
    case CallKind::broadcast:
      copy(to_[own], 0, from_[static_cast<std::size_t>(call.root)], part);
      return;
    default:
      return;
  }
}

}  // namespace firn::dist
