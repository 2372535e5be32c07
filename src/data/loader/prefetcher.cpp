#include "data/loader/prefetcher.h"

#include <system_error>
#include <utility>

namespace firn::data {

Prefetcher::Prefetcher(std::shared_ptr<const BatchMaker> maker, int workers, int depth)
    : maker_(std::move(maker)), depth_(depth), slots_(static_cast<std::size_t>(depth)) {
  threads_.reserve(static_cast<std::size_t>(workers));
  try {
    for (int i = 0; i < workers; ++i) threads_.emplace_back(&Prefetcher::work, this);
  } catch (const std::system_error&) {  // the system has no more threads
  } catch (const std::bad_alloc&) {     // or no memory for them
  }
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& t : threads_) t.join();
}

LoaderPosition Prefetcher::position_of(std::int64_t batch) const noexcept {
  return {start_->epoch, start_->sample + batch * maker_->options().batch};
}

void Prefetcher::work() {
  const NumThreadsScope one(1);  // the training needs the other threads
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stop_ || (begun_ < batches_ && begun_ < taken_ + depth_); });
    if (stop_) return;
    const std::int64_t batch = begun_++;
    const std::uint64_t run = run_;
    const LoaderPosition position = position_of(batch);
    lock.unlock();
    MadeBatch made = maker_->make(position, maker_->count_at(position));
    lock.lock();
    if (run != run_) {
      lock.unlock();
      made = {};
      lock.lock();
      continue;
    }
    slots_[static_cast<std::size_t>(batch % depth_)] = std::move(made);
    ready_.notify_one();
  }
}

void Prefetcher::restart(LoaderPosition position) {
  const LoaderOptions& options = maker_->options();
  const std::int64_t left = maker_->order().samples() - position.sample;
  for (auto& slot : slots_) slot.reset();
  ++run_;
  start_ = position;
  batches_ = left / options.batch + (left % options.batch != 0 ? 1 : 0);
  begun_ = taken_ = 0;
  work_.notify_all();
}

bool Prefetcher::ready(LoaderPosition position) {
  const std::lock_guard lock(mutex_);
  return start_ && taken_ < batches_ && position_of(taken_) == position &&
         slots_[static_cast<std::size_t>(taken_ % depth_)].has_value();
}

MadeBatch Prefetcher::take(LoaderPosition position) {
  std::unique_lock lock(mutex_);
  if (!start_ || position_of(taken_) != position || taken_ >= batches_) restart(position);
  auto& slot = slots_[static_cast<std::size_t>(taken_ % depth_)];
  ready_.wait(lock, [&] { return slot.has_value(); });
  MadeBatch made = std::move(*slot);
  slot.reset();
  ++taken_;
  work_.notify_one();
  return made;
}

}  // namespace firn::data
