#include "dist/nccl/world.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "firn/tensor.h"

namespace firn::dist {
namespace {

using namespace std::chrono_literals;

constexpr auto kBusy = 2ms;  // a longer wait for NCCL naps between polls
constexpr auto kNap = 100us;
constexpr auto kLook = 10ms;  // time between two looks at what is queued
constexpr const char* kConnect = "nccl_group";
constexpr const char* kNoReplay = "a replay could not compare the ranks' calls";
constexpr const char* kLateHint =
    "all ranks make the same calls in the same order; NcclOptions::deadline is how long they may "
    "take";

}  // namespace

NcclWorld::NcclWorld(int rank, int size, Device device, const NcclOptions& options,
                     std::optional<Group> bootstrap, std::vector<int> of_all)
    : rank_(rank),
      size_(size),
      device_(device),
      options_(options),
      lib_(nccl()),
      of_all_(std::move(of_all)),
      bootstrap_(std::move(bootstrap)),
      calls_(static_cast<std::size_t>(size)) {
  if (!bootstrap_) return;
  mine_ = empty({sizeof(Call)}, DType::u8, Device::cpu());
  other_ = empty({sizeof(Call)}, DType::u8, Device::cpu());
  all_ = empty({static_cast<std::int64_t>(sizeof(Call)) * size_}, DType::u8, Device::cpu());
}

NcclWorld::~NcclWorld() {
  check_.reset();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (watchdog_.joinable()) watchdog_.join();
  if (std::uncaught_exceptions() > 0) {  // others may wait for this rank
    if (comm_) lib_.ncclCommAbort(comm_);
    return;
  }
  if (comm_) leave();
  if (broken_ && !broken_->told) leave_word();
}

/// Waits for NCCL's work, and destroys the communicator.
void NcclWorld::leave() noexcept {
  const auto end = Clock::now() + seconds(options_.deadline);
  std::optional<Call> last;
  if (!queued_.empty()) last = queued_.front().call;
  ncclResult_t state = lib_.ncclCommFinalize(comm_);
  while (state == ncclSuccess || state == ncclInProgress) {
    if (lib_.ncclCommGetAsyncError(comm_, &state) != ncclSuccess) state = ncclInternalError;
    if (state == ncclSuccess) {
      const ncclResult_t r = lib_.ncclCommDestroy(comm_);
      if (r == ncclSuccess || r == ncclInProgress) return;
      state = r;
    }
    if (state != ncclInProgress || Clock::now() > end) break;
    std::this_thread::sleep_for(kNap);
  }
  const std::lock_guard lock(mutex_);
  const char* const op = last ? to_string(last->kind) : kConnect;
  try {
    break_up(op,
             state == ncclInProgress
                 ? fmt::format("{} did not end within {} s after the last handle of the group",
                               last ? describe(*last) : "NCCL's work", options_.deadline)
                 : fmt::format("the end of the group failed: {}", failure("NCCL", state)),
             kLateHint, -1);
  } catch (const std::bad_alloc&) {
    break_up(op, {}, {}, -1);  // the error has no text
  }
}

/// Makes the host's next wait for the device throw the group's error, though the group is gone: the
/// results are undefined.
void NcclWorld::leave_word() noexcept {
  struct Word {
    std::optional<runtime::WaitCheck> check;
  };
  try {
    const auto word = std::make_shared<Word>();
    word->check.emplace(device_, [word, error = RankError(broken_->op, rank_, broken_->peer,
                                                          broken_->text, broken_->hint)] {
      const RankError thrown = error;
      const std::shared_ptr<Word> own = word;
      own->check.reset();  // throws once; this destroys the function
      throw thrown;
    });
  } catch (const std::bad_alloc&) {  // NOLINT: it cannot be reported
  }
}

void NcclWorld::connect(const ncclUniqueId& id) {
  idle_.push_back(take_events({}));
  idle_.back().begin.record(current_stream(device_));  // makes the device current in this thread
  step(kConnect, "the rendezvous of the ranks", [&](Results& results) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    results.add("ncclCommInitRankConfig",
                lib_.ncclCommInitRankConfig(&comm_, size_, id, rank_, &config));
  });
  try {
    watchdog_ = std::thread([this] { watch(); });
  } catch (const std::system_error& e) {
    const std::lock_guard lock(mutex_);
    break_up(kConnect, fmt::format("the system gave no thread: {}", e.what()), kNcclHint, rank_);
    throw_broken(kConnect);
  }
  check_.emplace(device_, [this] {
    const std::lock_guard lock(mutex_);
    if (broken_ && !broken_->told) throw_broken(broken_->op.c_str());
  });
}

void NcclWorld::give_up(int peer) {
  const std::lock_guard lock(mutex_);
  break_up(kConnect, fmt::format("{} has not connected", name_of(peer, of_all_)), kNcclHint, peer);
  throw_broken(kConnect);
}

void NcclWorld::require_whole(const char* op) {
  const std::lock_guard lock(mutex_);
  if (broken_) throw_broken(op);
}

void NcclWorld::run(const Call& call, const void* from, void* to) {
  const char* const op = to_string(call.kind);
  require_whole(op);
  runtime::refuse_capture(op, device_, kNoReplay);
  const Stream stream = current_stream(device_);
  // A rank that has no memory must not compare its call.
  const runtime::Workspace scratch(static_cast<std::size_t>(scratch_bytes(call)), stream);
  Queued queued = take_events(call);
  compare(call);
  if (call.count == 0 && call.kind != CallKind::barrier) return;
  queue_watched(std::move(queued), stream, [&] {
    queue(call, static_cast<const std::byte*>(from), static_cast<std::byte*>(to),
          scratch.as<std::byte>(), stream);
  });
  if (call.kind == CallKind::barrier) synchronize(stream);
}

void NcclWorld::exchange_messages(std::span<const Message> messages) {
  const Call& call = messages.front().call;
  const char* const op = to_string(call.kind);
  require_whole(op);
  runtime::refuse_capture(op, device_, kNoReplay);
  const Stream stream = current_stream(device_);
  Queued queued = take_events(call);
  compare_sides(messages);
  if (std::all_of(messages.begin(), messages.end(),
                  [](const Message& t) { return t.call.count == 0; }))
    return;
  queue_watched(std::move(queued), stream, [&] { queue_messages(messages, stream); });
}

/// Runs fn(), which queues the work of one call.
void NcclWorld::queue_watched(Queued queued, Stream stream, const std::function<void()>& fn) {
  const char* const op = to_string(queued.call.kind);
  try {
    watch_from(std::move(queued), stream, fn);
  } catch (const RankError&) {
    throw;
  } catch (const std::exception& e) {  // an error of CUDA: this rank has begun, and cannot go on
    const std::lock_guard lock(mutex_);
    break_up(op, e.what(), kNcclHint, rank_);
    throw_broken(op);
  }
}

/// Watches the call from its beginning: the host may hang while it queues the rest. CUDA is not
/// called with the lock held, which the watching thread needs.
void NcclWorld::watch_from(Queued queued, Stream stream, const std::function<void()>& fn) {
  const char* const op = to_string(queued.call.kind);
  Event end = std::move(queued.end);
  queued.begin.record(stream);  // makes the device current in this thread, too
  {
    const std::lock_guard lock(mutex_);
    if (broken_) throw_broken(op);
    queued_.push_back(std::move(queued));
  }
  wake_.notify_all();
  fn();
  end.record(stream);
  const std::lock_guard lock(mutex_);
  if (broken_) throw_broken(op);
  queued_.back().end = std::move(end);
  queued_.back().whole = true;
}

void NcclWorld::plan(const Call& call) const {
  const runtime::Workspace scratch(static_cast<std::size_t>(scratch_bytes(call)),
                                   current_stream(device_));
}

void NcclWorld::step(const char* op, const std::string& what,
                     const std::function<void(Results&)>& fn) {
  {
    const std::lock_guard lock(mutex_);
    if (broken_) throw_broken(op);
    Results results;
    fn(results);
    if (results.first != ncclSuccess) {
      break_up(op, failure(results.function, results.first), kNcclHint,
               results.first == ncclRemoteError ? -1 : rank_);
      throw_broken(op);
    }
  }
  settle(op, what);
}

/// Waits for NCCL: until then the work may not be in the stream, and NCCL takes no other call.
void NcclWorld::settle(const char* op, const std::string& what) {
  const auto begin = Clock::now(), end = begin + seconds(options_.deadline);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (broken_) throw_broken(op);
      ncclResult_t state = ncclSuccess;
      if (const auto r = lib_.ncclCommGetAsyncError(comm_, &state); r != ncclSuccess) {
        break_up(op, failure("ncclCommGetAsyncError", r), kNcclHint, rank_);
        throw_broken(op);
      }
      if (state == ncclSuccess) return;
      if (state != ncclInProgress) {
        break_up(op, fmt::format("{} ended with {}", what, failure("NCCL", state)), kNcclHint, -1);
        throw_broken(op);
      }
      if (Clock::now() > end) {
        break_up(op,
                 fmt::format("{} waited {} s for the other ranks in {}", name_of(rank_, of_all_),
                             options_.deadline, what),
                 kLateHint, -1);
        throw_broken(op);
      }
    }
    if (Clock::now() - begin < kBusy) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

void NcclWorld::watch() noexcept {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (queued_.empty()) {
      wake_.wait(lock, [this] { return stop_ || !queued_.empty(); });
    } else {
      wake_.wait_for(lock, kLook, [this] { return stop_; });
    }
    try {
      if (!stop_ && !broken_) look();
    } catch (const std::bad_alloc&) {  // NOLINT: the next look reports it
    }
  }
}

/// Removes finished calls, and invalidates the group if one can no longer finish.
void NcclWorld::look() {
  while (!queued_.empty()) {
    Queued& first = queued_.front();
    const char* const op = to_string(first.call.kind);
    try {
      if (first.whole && first.end.done()) {
        idle_.push_back(std::move(first));
        idle_.back().since.reset();
        idle_.back().whole = false;
        queued_.pop_front();
        continue;
      }
      if (!first.since && first.begin.done()) first.since = Clock::now();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& e) {
      return break_up(op, e.what(), kNcclHint, rank_);
    }
    ncclResult_t state = ncclSuccess;
    if (const auto r = lib_.ncclCommGetAsyncError(comm_, &state); r != ncclSuccess)
      return break_up(op, failure("ncclCommGetAsyncError", r), kNcclHint, rank_);
    if (state != ncclSuccess && state != ncclInProgress)
      return break_up(op,
                      fmt::format("{} ended with {}", describe(first.call), failure("NCCL", state)),
                      kNcclHint, -1);
    if (first.since && Clock::now() - *first.since > seconds(options_.deadline))
      break_up(op,
               fmt::format("{} did not end within {} s on {} of {}", describe(first.call),
                           options_.deadline, device_, name_of(rank_, of_all_)),
               kLateHint, -1);
    return;
  }
}

/// Notes the error before NCCL's work ends, so that a caller that waits for the work sees it.
void NcclWorld::break_up(const char* op, std::string text, std::string hint, int peer) noexcept {
  if (broken_) return;
  broken_ = {.op = op, .text = std::move(text), .hint = std::move(hint), .peer = peer};
  if (comm_) lib_.ncclCommAbort(std::exchange(comm_, nullptr));
  queued_.clear();
}

void NcclWorld::throw_broken(const char* op) {
  broken_->told = true;
  throw RankError(op, rank_, broken_->peer, broken_->text, broken_->hint);
}

std::string NcclWorld::failure(const char* function, ncclResult_t result) const {
  const char* const more = comm_ ? lib_.ncclGetLastError(comm_) : nullptr;
  return fmt::format("{} answered {}{}{}", function, describe(lib_, result),
                     more && *more ? ": " : "", more ? more : "");
}

NcclWorld::Queued NcclWorld::take_events(const Call& call) {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return {.call = call, .begin = {}, .end = {}};
  Queued queued = std::move(idle_.back());
  idle_.pop_back();
  queued.call = call;
  return queued;
}

}  // namespace firn::dist
