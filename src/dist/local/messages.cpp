// Messages between two ranks that are threads: each rank posts its side, and the one that comes
// second copies.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "dist/local/world.h"

namespace firn::dist {
namespace {

bool share_bytes(const void* a, const void* b, std::size_t bytes) noexcept {
  const auto* x = static_cast<const std::byte*>(a);
  const auto* y = static_cast<const std::byte*>(b);
  return bytes > 0 && std::less<>()(x, y + bytes) && std::less<>()(y, x + bytes);
}

}  // namespace

void LocalWorld::exchange_messages(int rank, std::span<const Message> messages) {
  std::unique_lock lock(mutex_);
  const CallKind kind = messages.front().call.kind;
  enter(rank, kind);
  Place& place = places_[static_cast<std::size_t>(rank)];
  // After a rank has ended, only the calls that need it fail.
  if (break_ != Break::none && break_ != Break::gone) {
    place.inside = false;
    throw_broken(rank, kind, false);
  }
  Post posts[] = {{rank, messages.front()}, {rank, messages.back()}};
  const std::span<Post> used(posts, messages.size());
  for (Post& post : used) meet_partner(lock, post);
  refuse_same_way(used);
  try {
    wait_for(lock, rank, used);
  } catch (...) {
    place.inside = false;
    throw;
  }
  place.inside = false;
}

LocalWorld::Post* LocalWorld::partner_of(const Post& post) noexcept {
  const auto at = std::find_if(posts_.begin(), posts_.end(), [&](const Post* other) {
    return other->rank == post.message.call.root && other->message.call.root == post.rank &&
           other->message.call.kind != post.message.call.kind;
  });
  if (at == posts_.end()) return nullptr;
  Post* const found = *at;
  posts_.erase(at);
  return found;
}

/// Copies if the other rank is there already; else leaves the post for it.
void LocalWorld::meet_partner(std::unique_lock<std::mutex>& lock, Post& post) noexcept {
  Post* const partner = partner_of(post);
  if (!partner) return posts_.push_back(&post);  // memory was reserved
  const bool sends = post.message.call.kind == CallKind::send;
  const Message& from = sends ? post.message : partner->message;
  const Message& to = sends ? partner->message : post.message;
  const std::size_t bytes = from.call.bytes();
  post.other = partner->message.call;
  partner->other = post.message.call;
  Post::State state = Post::done;
  if (from.call.dtype != to.call.dtype || from.call.count != to.call.count) {
    state = Post::unlike;
    break_up(Break::different, partner->rank, post.rank, post.message.call.kind);
  } else if (share_bytes(from.from, to.to, bytes)) {
    state = Post::overlap;
    break_up(Break::overlap, partner->rank, post.rank, post.message.call.kind);
  } else if (bytes > 0) {
    post.state = partner->state = Post::copying;  // keeps the partner in its call
    lock.unlock();
    std::memcpy(to.to, from.from, bytes);
    lock.lock();
  }
  post.state = partner->state = state;
  met_.notify_all();
}

/// Invalidates the group if another rank waits for this one while this one waits for it: both send,
/// or both receive. Neither would end its call.
void LocalWorld::refuse_same_way(std::span<Post> posts) noexcept {
  for (Post& post : posts) {
    if (post.state != Post::waiting) continue;
    const auto at = std::find_if(posts_.begin(), posts_.end(), [&](const Post* other) {
      return other->rank == post.message.call.root && other->message.call.root == post.rank &&
             other->message.call.kind == post.message.call.kind;
    });
    if (at == posts_.end()) continue;
    Post& other = **at;
    post.other = other.message.call;
    other.other = post.message.call;
    post.state = other.state = Post::unlike;
    break_up(Break::different, other.rank, post.rank, post.message.call.kind);
    return met_.notify_all();
  }
}

void LocalWorld::wait_for(std::unique_lock<std::mutex>& lock, int rank, std::span<Post> posts) {
  const auto some = [&](Post::State state) {
    return std::find_if(posts.begin(), posts.end(),
                        [&](const Post& p) { return p.state == state; });
  };
  const auto lost = [&] {
    return std::find_if(posts.begin(), posts.end(), [&](const Post& p) {
      return p.state == Post::waiting && is_gone(p.message.call.root);
    });
  };
  const auto end = std::chrono::steady_clock::now() + seconds(deadline_);
  const auto decided = [&] {
    if (some(Post::copying) != posts.end()) return false;
    return some(Post::waiting) == posts.end() || lost() != posts.end() ||
           some(Post::unlike) != posts.end() || some(Post::overlap) != posts.end() ||
           (break_ != Break::none && break_ != Break::gone);
  };
  const bool in_time = met_.wait_until(lock, end, decided);
  while (some(Post::copying) != posts.end()) met_.wait(lock);
  for (const Post& post : posts) std::erase(posts_, &post);

  if (const auto p = some(Post::unlike); p != posts.end())
    throw_unlike(rank, p->message.call, p->other, of_all_);
  if (const auto p = some(Post::overlap); p != posts.end())
    throw RankError(to_string(p->message.call.kind), rank, p->message.call.root,
                    fmt::format("{} and {} gave the same memory to a message", name(rank),
                                name(p->message.call.root)),
                    "each rank needs a tensor of its own to write to");
  const auto waiting = some(Post::waiting);
  if (waiting == posts.end()) return;
  const Call& call = waiting->message.call;
  if (break_ != Break::none && break_ != Break::gone) throw_broken(rank, call.kind, false);
  if (const auto p = lost(); p != posts.end()) {
    // The first rank that has thrown is the cause of all that followed.
    if (break_ == Break::gone && threw_) throw_broken(rank, call.kind, false);
    throw RankError(
        to_string(p->message.call.kind), rank, p->message.call.root,
        fmt::format("{} ended before it came to this call", name(p->message.call.root)));
  }
  if (in_time) return;
  break_up(Break::late, rank, call.root, call.kind);
  throw RankError(to_string(call.kind), rank, call.root,
                  fmt::format("{} did not come to this call within {} s; {} waited for it",
                              name(call.root), deadline_, name(rank)),
                  "LocalOptions::deadline is how long the other side may take");
}

}  // namespace firn::dist
