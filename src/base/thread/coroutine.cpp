#include "base/thread/coroutine.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/thread/inherited.h"

namespace firn {
namespace {

/// Unwinds a function whose coroutine is destroyed.
struct Destroyed {};

}  // namespace

struct Coroutine::Impl {
  explicit Impl(std::function<void()> f) : function(std::move(f)) {}

  /// Lets the other side run until it hands back.
  void hand_over(bool to_function) {
    std::unique_lock lock(mutex);
    runs = to_function;
    changed.notify_one();
    changed.wait(lock, [&] { return runs != to_function; });
  }
  void thread_main(const std::vector<Inherited::Set>& inherited);

  std::function<void()> function;
  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  bool runs = false;  ///< true while the function runs, false while its caller does
  bool ended = false, destroyed = false;
  std::exception_ptr error;

  static inline thread_local constinit Impl* current = nullptr;
};

void Coroutine::Impl::thread_main(const std::vector<Inherited::Set>& inherited) {
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return runs; });
  }
  current = this;
  try {
    for (const auto& set : inherited) set();
    if (!destroyed) function();
  } catch (const Destroyed&) {  // NOLINT: the function is unwound
  } catch (...) {
    error = std::current_exception();
  }
  function = nullptr;  // releases its captures here, where they were used
  const std::lock_guard lock(mutex);
  ended = true;
  runs = false;
  changed.notify_one();
}

Coroutine::Coroutine(std::function<void()> function)
    : impl_(std::make_unique<Impl>(std::move(function))) {}

Coroutine::~Coroutine() {
  if (!impl_->thread.joinable()) return;
  impl_->destroyed = true;
  impl_->hand_over(true);
  impl_->thread.join();
}

bool Coroutine::resume(const char* op) {
  Impl& impl = *impl_;
  if (!impl.thread.joinable()) {
    try {
      impl.thread = std::thread(
          [&impl, inherited = Inherited::of_this_thread()] { impl.thread_main(inherited); });
    } catch (const std::system_error& e) {
      detail::fail(op, "raise the limit of threads", "the system has no further thread: {}",
                   e.what());
    }
  }
  impl.hand_over(true);
  if (!impl.ended) return true;
  impl.thread.join();
  if (impl.error) std::rethrow_exception(std::exchange(impl.error, nullptr));
  return false;
}

void Coroutine::stop() {
  Impl& impl = *Impl::current;
  if (!impl.destroyed) impl.hand_over(false);
  if (impl.destroyed) throw Destroyed();
}

}  // namespace firn
