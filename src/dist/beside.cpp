#include "dist/beside.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "dist/transport.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/storage.h"
#include "firn/runtime/stream.h"

namespace firn::dist {
namespace {

class OnThread final : public Beside {
 public:
  /// Of ranks of one color, so the group is the same once more.
  explicit OnThread(const Group& group)
      : group_(group.split(0, group.rank())), thread_([this] { work(); }) {}
  ~OnThread() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void begin_all_reduce(const Tensor& x) override {
    if (runtime::dry_run()) return;
    {
      const std::lock_guard lock(mutex_);
      begun_.push_back({x, x.mutable_view().data});
    }
    changed_.notify_all();
  }

  void end() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return begun_.size() == done_; });
    begun_.clear();
    done_ = 0;
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Begun {
    Tensor x;
    void* data;
  };

  void work() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || done_ < begun_.size(); });
      if (stop_) return;
      const Begun& next = begun_[done_];  // of a deque: it stays where it is
      if (!failure_) {
        lock.unlock();
        std::exception_ptr thrown = exchange(next);
        lock.lock();
        failure_ = std::move(thrown);
      }
      ++done_;
      changed_.notify_all();
    }
  }

  /// By the transport itself: the rank's thread may look at a tensor's counters meanwhile.
  std::exception_ptr exchange(const Begun& begun) const noexcept {
    Transport& transport = *GroupAccess::transport(group_);
    try {
      transport.run(
          {.kind = CallKind::all_reduce, .dtype = begun.x.dtype(), .count = begun.x.numel()},
          begun.data, begun.data);
    } catch (...) {
      if (transport.keeps_memory()) begun.x.storage()->retain();  // nobody gives it back
      return std::current_exception();
    }
    return nullptr;
  }

  const Group group_;
  std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  std::deque<Begun> begun_;
  std::size_t done_ = 0;  // of these
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

class OnStream final : public Beside {
 public:
  explicit OnStream(const Group& group) : group_(group), side_(group.device()) {}

  void begin_all_reduce(const Tensor& x) override {
    if (runtime::dry_run()) return group_.all_reduce(x);  // which plans its memory
    Event computed;
    computed.record(current_stream(group_.device()));
    computed.block(side_);
    const StreamScope scope(side_);
    x.storage()->record_use(side_);
    group_.all_reduce(x);
  }

  void end() override {
    if (runtime::dry_run()) return;
    Event exchanged;
    exchanged.record(side_);
    exchanged.block(current_stream(group_.device()));
  }

 private:
  const Group group_;
  const SideStream side_;
};

}  // namespace

bool can_exchange_beside(const Group& group) noexcept {
  return !group.device().is_cpu() || GroupAccess::transport(group)->is_concurrent();
}

std::unique_ptr<Beside> exchange_beside(const Group& group) {
  if (group.device().is_cpu()) return std::make_unique<OnThread>(group);
  return std::make_unique<OnStream>(group);
}

}  // namespace firn::dist
