// Messages between two processes. First the two sides exchange their calls, so that both know of a
// mismatch; then the bytes follow.
#include <algorithm>
#include <thread>

#include "base/check.h"
#include "dist/mpi/world.h"

namespace firn::dist {
namespace {

using namespace std::chrono_literals;

constexpr int kSenderTag = 4, kReceiverTag = 5, kBytesTag = 6;
constexpr auto kBusy = 5ms;  // a longer wait naps between polls
constexpr auto kNap = 100us;
constexpr auto kLastMessages = 300ms;  // messages sent before a rank left may still arrive

}  // namespace

void MpiWorld::exchange_messages(std::span<const dist::Message> messages, double deadline) {
  call_ = messages.front().call;
  if (break_ != Break::none) throw_broken(call_.kind);
  deadline_ = deadline;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Side& side = sides_[i];
    side = {.own = messages[i].call, .other = {}, .heard = false};
    const bool sends = side.own.kind == CallKind::send;
    constexpr auto bytes = static_cast<std::int64_t>(sizeof(Call));
    receive(&side.other, bytes, side.own.root, sends ? kReceiverTag : kSenderTag, even_);
    send(&side.own, bytes, side.own.root, sends ? kSenderTag : kReceiverTag, even_);
  }
  hear_other_sides(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Call &own = sides_[i].own, &other = sides_[i].other;
    if (own.dtype == other.dtype && own.count == other.count) continue;
    break_ = Break::different;
    throw_unlike(rank_, own, other, of_all_);
  }
  std::int64_t most = 0;
  for (const dist::Message& t : messages)
    most = std::max(most, static_cast<std::int64_t>(t.call.bytes()));
  for (std::int64_t at = 0; at < most; at += mpi_sizes().message) {
    for (const dist::Message& t : messages) {
      const auto bytes = static_cast<std::int64_t>(t.call.bytes());
      const std::int64_t n = std::clamp<std::int64_t>(bytes - at, 0, mpi_sizes().message);
      if (t.call.kind == CallKind::send)
        send(static_cast<const std::byte*>(t.from) + at, n, t.call.root, kBytesTag, even_);
      else
        receive(static_cast<std::byte*>(t.to) + at, n, t.call.root, kBytesTag, even_);
    }
    // Both sides have come: the bytes arrive, even if the other rank has ended since.
    const auto end = Clock::now() + seconds(deadline_);
    for (;;) {
      int done = 0;
      ok(MPI_Testall(static_cast<int>(even_.size()), even_.data(), &done, MPI_STATUSES_IGNORE),
         "MPI_Testall");
      if (done) break;
      heed();
      if (Clock::now() > end) be_late_to(messages.front().call.root);
      std::this_thread::yield();
    }
    even_.clear();
  }
}

/// Waits until the other rank of each message has sent its call.
void MpiWorld::hear_other_sides(std::size_t sides) {
  const auto begin = Clock::now();
  const auto end = begin + seconds(deadline_);
  Clock::time_point gone_since = Clock::time_point::max();
  for (;;) {
    int done = 0;
    ok(MPI_Testall(static_cast<int>(even_.size()), even_.data(), &done, MPI_STATUSES_IGNORE),
       "MPI_Testall");
    if (done) return even_.clear();
    refuse_same_way(sides);
    // MPI_Testall() frees either all requests or none, so each side is asked by itself.
    for (std::size_t i = 0; i < sides; ++i) {
      int heard = 0;
      ok(MPI_Request_get_status(even_[2 * i], &heard, MPI_STATUS_IGNORE), "MPI_Request_get_status");
      sides_[i].heard = heard != 0;
    }
    heed();
    require_peers(sides, gone_since);
    const auto now = Clock::now();
    if (now > end) {
      const Side& late = sides_[sides == 2 && sides_[0].heard ? 1 : 0];
      be_late_to(late.own.root);
    }
    if (now - begin < kBusy) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

/// Throws if another rank waits for this one while this one waits for it: both send, or both
/// receive. The other rank's call then has a tag that this rank does not receive.
void MpiWorld::refuse_same_way(std::size_t sides) {
  for (std::size_t i = 0; i < sides; ++i) {
    Side& side = sides_[i];
    const int peer = side.own.root;
    if (side.heard || (sides == 2 && sides_[1 - i].own.root == peer)) continue;
    const int tag = side.own.kind == CallKind::send ? kSenderTag : kReceiverTag;
    int there = 0, heard = 0;
    ok(MPI_Iprobe(peer, tag, data_, &there, MPI_STATUS_IGNORE), "MPI_Iprobe");
    if (!there) continue;
    // If the awaited call has arrived before, this one belongs to the other rank's next message.
    ok(MPI_Request_get_status(even_[2 * i], &heard, MPI_STATUS_IGNORE), "MPI_Request_get_status");
    if (heard) continue;
    ok(MPI_Recv(&side.other, sizeof(Call), MPI_BYTE, peer, tag, data_, MPI_STATUS_IGNORE),
       "MPI_Recv");
    break_ = Break::different;
    pending_ = true;
    throw_unlike(rank_, side.own, side.other, of_all_);
  }
}

/// Throws if the group is invalid, or if a rank whose call has not arrived has ended.
void MpiWorld::require_peers(std::size_t sides, Clock::time_point& gone_since) {
  if (broken_.news == News::broken) {
    break_ = broken_.why;
    pending_ = true;
    throw_broken(call_.kind);
  }
  for (std::size_t i = 0; i < sides; ++i) {
    const int peer = sides_[i].own.root;
    if (sides_[i].heard || left_[static_cast<std::size_t>(peer)] < 0) continue;
    gone_since = std::min(gone_since, Clock::now());
    if (Clock::now() - gone_since < kLastMessages) continue;
    break_ = Break::gone;
    broken_.blamed = peer;
    pending_ = true;
    throw_broken(sides_[i].own.kind);
  }
}

void MpiWorld::be_late_to(int peer) {
  break_ = Break::late;
  broken_ = {.news = News::broken,
             .why = break_,
             .finder = rank_,
             .blamed = peer,
             .number = 0,  // holds for any collective of the others
             .deadline = deadline_,
             .kind = call_.kind};
  pending_ = true;
  tell_all(notice_, broken_);
  throw_broken(call_.kind);
}

}  // namespace firn::dist
