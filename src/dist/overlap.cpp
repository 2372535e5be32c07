#include "dist/overlap.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "dist/transport.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/storage.h"
#include "firn/runtime/stream.h"

namespace firn::dist {
namespace {

class OnThread final : public Overlap {
 public:
  explicit OnThread(const Group& group) : group_(group), thread_([this] { work(); }) {}
  ~OnThread() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  const Group& group() const noexcept override { return group_; }
  void begin_all_reduce(const Tensor& x) override { add({.x = x, .data = x.mutable_view().data}); }
  void begin(std::function<void(const autograd::Peers&)> calls,
             const autograd::Peers& peers) override {
    add({.calls = std::move(calls), .peers = &peers});
  }

  void end() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return begun_.size() == done_; });
    begun_.clear();
    done_ = 0;
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  /// An all_reduce() of x, or `calls` if these are given.
  struct Exchange {
    std::function<void(const autograd::Peers&)> calls = {};
    const autograd::Peers* peers = nullptr;
    Tensor x = {};
    void* data = nullptr;
  };

  void add(Exchange exchange) {
    if (runtime::dry_run()) return;
    {
      std::unique_lock lock(mutex_);
      try {
        begun_.push_back(std::move(exchange));
      } catch (const std::bad_alloc&) {  // other ranks will wait for this exchange
        changed_.wait(lock, [this] { return begun_.size() == done_; });
        if (!failure_) failure_ = failure_in(exchange);
        return;
      }
    }
    changed_.notify_all();
  }

  /// Makes the exchange. Returns what it throws, or null.
  std::exception_ptr failure_in(const Exchange& exchange) const noexcept {
    try {
      exchange.calls ? exchange.calls(*exchange.peers) : all_reduce(exchange);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  /// Calls the transport directly: the rank's thread may read the tensor's counters meanwhile.
  void all_reduce(const Exchange& exchange) const {
    const Tensor& x = exchange.x;
    Transport& transport = *GroupAccess::transport(group_);
    try {
      transport.run({.kind = CallKind::all_reduce, .dtype = x.dtype(), .count = x.numel()},
                    exchange.data, exchange.data);
    } catch (...) {
      if (transport.keeps_memory()) x.storage()->retain();  // the memory is never freed
      throw;
    }
  }

  void work() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || done_ < begun_.size(); });
      if (stop_) return;
      const Exchange& next = begun_[done_];  // a deque's elements do not move
      if (!failure_) {
        lock.unlock();
        std::exception_ptr thrown = failure_in(next);
        lock.lock();
        failure_ = std::move(thrown);
      }
      ++done_;
      changed_.notify_all();
    }
  }

  const Group group_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Exchange> begun_;
  std::size_t done_ = 0;  // number of finished calls in begun_
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

class OnStream final : public Overlap {
 public:
  explicit OnStream(const Group& group) : group_(group), side_(group.device()) {}
  const Group& group() const noexcept override { return group_; }

  void begin_all_reduce(const Tensor& x) override {
    if (runtime::dry_run()) return group_.all_reduce(x);  // plans its memory
    Event computed;
    computed.record(current_stream(group_.device()));
    computed.block(side_);
    const StreamScope scope(side_);
    x.storage()->record_use(side_);
    group_.all_reduce(x);
  }
  void begin(std::function<void(const autograd::Peers&)> calls,
             const autograd::Peers& peers) override {
    if (runtime::dry_run()) return calls(peers);
    Event computed;
    computed.record(current_stream(group_.device()));
    computed.block(side_);
    const StreamScope scope(side_);
    calls(peers);
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

bool can_overlap(const Group& group) noexcept {
  return !group.device().is_cpu() || GroupAccess::transport(group)->is_concurrent();
}

Group group_to_overlap(const Group& group) {
  // One color for all ranks gives a second group of the same ranks.
  return group.device().is_cpu() ? group.split(0, group.rank()) : group;
}

std::unique_ptr<Overlap> start_overlap(const Group& group) {
  if (group.device().is_cpu()) return std::make_unique<OnThread>(group);
  return std::make_unique<OnStream>(group);
}

}  // namespace firn::dist
