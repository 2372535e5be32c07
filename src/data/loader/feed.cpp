#include "data/loader/feed.h"

#include <utility>

#include "firn/runtime/kernel_support.h"

namespace firn::data {

void Feed::forget_parent() noexcept {
  const pid_t here = getpid();
  if (process_ != 0 && process_ != here) {
    static_cast<void>(threads_.release());
    static_cast<void>(staging_.release());
    ahead_.reset();
  }
  process_ = here;
}

void Feed::close() noexcept {
  forget_parent();
  threads_.reset();
  ahead_.reset();
  staging_.reset();
}

MadeBatch Feed::make(LoaderPosition position) {
  const LoaderOptions& options = maker_->options();
  if (options.workers > 0) {
    if (!threads_) {
      const int depth = options.prefetch > 0 ? options.prefetch : 2 * options.workers;
      threads_ = std::make_unique<Prefetcher>(maker_, options.workers, depth);
    }
    if (threads_->has_threads()) return threads_->take(position);
  }
  return maker_->make(position, maker_->count_at(position));
}

void Feed::send(Ahead& ahead) {
  if (!ahead.batch.pinned) return;
  const Device device = maker_->options().device;
  if (!staging_) staging_ = std::make_unique<Staging>(device);
  ahead.batch.fields = staging_->send(ahead.batch.pinned);
  ahead.stream = current_stream(device);
}

MadeBatch Feed::take(LoaderPosition position) {
  const Device device = maker_->options().device;
  runtime::refuse_capture("Loader", device, "its batches come from the host's memory");
  forget_parent();
  if (!ahead_ || ahead_->position != position) ahead_ = Ahead{position, make(position), {}};
  // Memory is reused in the order of the stream for which it was allocated.
  if (!ahead_->stream || *ahead_->stream != current_stream(device)) send(*ahead_);
  if (staging_ && ahead_->stream) staging_->receive();
  MadeBatch made = std::move(ahead_->batch);
  ahead_.reset();
  return made;
}

void Feed::begin(LoaderPosition next) noexcept try {
  if (!staging_ || !threads_ || !threads_->ready(next)) return;
  ahead_ = Ahead{next, threads_->take(next), {}};
  send(*ahead_);
} catch (
    const std::exception&) {  // for example no memory on the device: take() tries again, and throws
}

}  // namespace firn::data
