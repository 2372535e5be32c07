// Ranks compare their calls on the host before they queue work. A device that has begun a call
// which the others do not make cannot be stopped without losing the group.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "dist/nccl/world.h"
#include "firn/tensor.h"

namespace firn::dist {

/// Runs fn(), which uses the bootstrap group. If it throws, this group becomes invalid too.
void NcclWorld::on_host(const Call& call, const std::function<void()>& fn) {
  if (!bootstrap_ || !options_.compare) return;
  const char* const op = to_string(call.kind);
  try {
    fn();
  } catch (const RankError& e) {
    const std::lock_guard lock(mutex_);
    if (broken_) throw_broken(op);
    const bool differ = e.op() == op;
    break_up(op,
             differ ? e.message()
                    : fmt::format("the ranks compare their calls before {}: {}", describe(call),
                                  e.message()),
             differ ? e.hint() : kNcclHint, e.peer());
    throw_broken(op);
  }
}

void NcclWorld::compare(const Call& call) {
  on_host(call, [&] {
    std::memcpy(mine_.mutable_view().data, &call, sizeof call);
    bootstrap_->all_gather(mine_, all_);
    std::memcpy(calls_.data(), all_.view().data, all_.bytes());
    check_same(rank_, calls_, of_all_);
  });
}

void NcclWorld::announce(const Call& call) {
  require_whole(to_string(call.kind));
  compare(call);
}

/// A sender sends its call and receives the receiver's. So both know of a mismatch.
void NcclWorld::compare_sides(std::span<const Message> messages) {
  on_host(messages.front().call, [&] {
    const Call *send = nullptr, *recv = nullptr;
    for (const Message& t : messages) (t.call.kind == CallKind::send ? send : recv) = &t.call;
    Call sender, receiver;
    exchange(send, recv, sender);
    exchange(recv, send, receiver);
    const auto require_alike = [&](const Call* own, const Call& other) {
      if (own && (own->dtype != other.dtype || own->count != other.count))
        throw_unlike(rank_, *own, other, of_all_);
    };
    require_alike(send, receiver);
    require_alike(recv, sender);
  });
}

/// Sends `mine` to its other side, and receives `theirs` from that of `own`; null: neither.
void NcclWorld::exchange(const Call* mine, const Call* own, Call& theirs) {
  if (mine) std::memcpy(mine_.mutable_view().data, mine, sizeof *mine);
  if (mine && own)
    bootstrap_->send_recv(mine_, mine->root, other_, own->root);
  else if (mine)
    bootstrap_->send(mine_, mine->root);
  else
    bootstrap_->recv(other_, own->root);
  if (own) std::memcpy(&theirs, other_.view().data, sizeof theirs);
}

}  // namespace firn::dist
