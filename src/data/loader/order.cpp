#include "data/loader/order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "data/scramble.h"
#include "firn/data/permutation.h"
#include "firn/runtime/stream.h"
#include "io/file/crc32.h"
#include "kernels/math/philox.h"

namespace firn::data {
namespace {

template <class T>
std::uint32_t sum_of(const std::vector<T>& values) {
  return io::crc32(0, values.data(), values.size() * sizeof(T));
}

}  // namespace

LoaderOptions checked_options(const char* op, LoaderOptions o) {
  constexpr int kMost = 1024;
  FIRN_CHECK(o.batch >= 1, op, "give the number of samples in a batch",
             "a batch has at least 1 sample, not {}", o.batch);
  FIRN_CHECK(o.workers >= 0 && o.workers <= kMost && o.prefetch >= 0 && o.prefetch <= kMost, op,
             "with 0 workers the caller makes each batch; prefetch 0 is twice the workers",
             "workers and prefetch are 0 to {}, not {} and {}", kMost, o.workers, o.prefetch);
  require_named(op, "BadSample", o.bad_sample, BadSample::skip);
  FIRN_CHECK(o.chunk >= 1, op, "give the chunk of StepOptions::exact, or leave it out",
             "a chunk of {} samples", o.chunk);
  FIRN_CHECK(!o.pad || !o.collate, op, "call collate_padded() in the function",
             "both pad and collate are given");
  require_device(op, o.device);
  return o;
}

Order::Order(const char* op, std::int64_t size, const LoaderOptions& options)
    : size_(size), options_(options) {
  FIRN_CHECK(size >= 0 && size <= Permutation::kLargest, op, "a set has 0 to 2^62 samples",
             "a set of {} samples", size);
  const auto check_count = [&](std::size_t count, const char* what) {
    FIRN_CHECK(static_cast<std::int64_t>(count) == size, op, "give one for each sample of the set",
               "{} {} for a set of {} samples", count, what, size);
  };
  if (!options.weights.empty()) {
    check_count(options.weights.size(), "weights");
    FIRN_CHECK(options.shuffle, op, "set shuffle", "weights are for a random order");
    double sum = 0;
    for (std::size_t i = 0; i < options.weights.size(); ++i) {
      const double w = options.weights[i];
      FIRN_CHECK(std::isfinite(w) && w >= 0, op, "a weight is a finite number, 0 or more",
                 "the weight of sample {} is {}", i, w);
      sums_.push_back(sum += w);
    }
    FIRN_CHECK(sum > 0 && std::isfinite(sum), op, "one weight is above 0, and their sum is finite",
               "the sum of the weights is {}", sum);
  }
  FIRN_CHECK(options.window >= 1, op, "it counts batches", "window is {}", options.window);
  if (options_.lengths.empty()) return;
  check_count(options_.lengths.size(), "lengths");
  for (std::size_t i = 0; i < options_.lengths.size(); ++i)
    FIRN_CHECK(options_.lengths[i] >= 0, op, "a length is 0 or more",
               "the length of sample {} is {}", i, options_.lengths[i]);
  FIRN_CHECK(!__builtin_mul_overflow(options_.batch, options.window, &window_), op,
             "use a smaller window", "a window of {} batches of {} samples", options.window,
             options_.batch);
}

/// Returns the sample into whose share of the sum of weights a random number falls.
std::int64_t Order::drawn(LoaderPosition at) const {
  const math::PhiloxBlock b = math::philox(static_cast<std::uint64_t>(at.sample),
                                           seed_for(options_.seed, Purpose::draw),
                                           static_cast<std::uint64_t>(at.epoch));
  const std::uint64_t bits = std::uint64_t{b.word[1]} << 32 | b.word[0];
  const double place = std::ldexp(static_cast<double>(bits >> 11), -53) * sums_.back();
  auto found = std::upper_bound(sums_.begin(), sums_.end(), place);
  // The product may be rounded up to the sum. Samples of weight 0 have the sum of the one before.
  if (found == sums_.end()) found = std::lower_bound(sums_.begin(), sums_.end(), sums_.back());
  return found - sums_.begin();
}

void Order::fill_base(LoaderPosition first, std::span<std::int64_t> ids) const {
  if (!sums_.empty()) {
    for (std::int64_t& id : ids) id = drawn({first.epoch, first.sample++});
  } else if (options_.shuffle) {
    const Permutation order(size_, options_.seed, first.epoch);
    for (std::int64_t& id : ids) id = order[first.sample++];
  } else {
    std::iota(ids.begin(), ids.end(), first.sample);
  }
}

/// Returns the window that contains the position. Its samples are cut into batches by length; with
/// shuffle, the batches come in a random order. The samples after the last whole batch stay at the
/// end, in the order of their positions. So the longest samples are not always left over.
std::shared_ptr<const Order::Window> Order::window_of(LoaderPosition at) const {
  const std::int64_t first = at.sample - at.sample % window_;
  // If another thread has the lock, skip the cache: in a child of fork() that thread may not exist.
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
    if (latest_ && latest_->epoch == at.epoch && latest_->first == first) return latest_;
  }
  const auto n = static_cast<std::size_t>(std::min(window_, size_ - first));
  std::vector<std::int64_t> base(n);
  fill_base({at.epoch, first}, base);
  const auto by_length = [&](std::int64_t a, std::int64_t b) {
    return options_.lengths[static_cast<std::size_t>(a)] <
           options_.lengths[static_cast<std::size_t>(b)];
  };
  const auto batch = static_cast<std::size_t>(options_.batch);
  const std::size_t batches = n / batch;
  const auto rest = base.begin() + static_cast<std::ptrdiff_t>(batches * batch);
  std::stable_sort(base.begin(), rest, by_length);
  const auto window = std::make_shared<Window>();
  window->epoch = at.epoch;
  window->first = first;
  window->ids.reserve(n);
  const Permutation order(
      static_cast<std::int64_t>(batches),
      seed_for(options_.seed, Purpose::window, static_cast<std::uint64_t>(first)),
      at.epoch);
  for (std::size_t k = 0; k < batches; ++k) {
    const std::size_t from =
        batch *
        (options_.shuffle ? static_cast<std::size_t>(order[static_cast<std::int64_t>(k)]) : k);
    const auto begin = base.begin() + static_cast<std::ptrdiff_t>(from);
    window->ids.insert(window->ids.end(), begin, begin + static_cast<std::ptrdiff_t>(batch));
  }
  window->ids.insert(window->ids.end(), rest, base.end());
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) latest_ = window;
  return window;
}

void Order::fill(LoaderPosition first, std::span<std::int64_t> ids) const {
  if (options_.lengths.empty()) return fill_base(first, ids);
  for (std::size_t done = 0; done < ids.size();) {
    const LoaderPosition at{first.epoch, first.sample + static_cast<std::int64_t>(done)};
    const auto window = window_of(at);
    const auto from = static_cast<std::size_t>(at.sample - window->first);
    const std::size_t n = std::min(ids.size() - done, window->ids.size() - from);
    std::copy_n(window->ids.begin() + static_cast<std::ptrdiff_t>(from), n,
                ids.begin() + static_cast<std::ptrdiff_t>(done));
    done += n;
  }
}

std::string Order::description() const {
  // The text has the number of rounds of Permutation, because the order depends on it.
  const bool permuted = options_.shuffle && (sums_.empty() || !options_.lengths.empty());
  std::string text = fmt::format("{} samples, seed {}{}", size_, options_.seed,
                                 permuted           ? ", shuffled in 16 rounds"
                                 : options_.shuffle ? ", shuffled"
                                                    : "");
  if (!sums_.empty()) text += fmt::format(", weights {:08x}", sum_of(sums_));
  if (!options_.lengths.empty())
    text += fmt::format(", batches of {} by length in windows of {}, lengths {:08x}",
                        options_.batch, window_, sum_of(options_.lengths));
  return text;
}

}  // namespace firn::data
