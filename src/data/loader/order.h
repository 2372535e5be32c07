// Which sample is at each position of a Loader's epochs: a pure function, called by any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "firn/data/loader.h"

namespace firn::data {

/// Throws Error in the name of `op` unless these options make sense for any set.
LoaderOptions checked_options(const char* op, LoaderOptions options);

class Order {
 public:
  /// Throws Error unless the options make sense for a set of `size` samples. They must outlive it.
  Order(const char* op, std::int64_t size, const LoaderOptions& options);

  /// Samples and batches of an epoch: all of the set, less a dropped last batch. What is dropped
  /// stays out also if a seek() has moved the batches.
  std::int64_t samples() const noexcept {
    return options_.drop_last ? size_ - size_ % options_.batch : size_;
  }
  std::int64_t batches() const noexcept {
    return samples() / options_.batch + (samples() % options_.batch != 0 ? 1 : 0);
  }
  /// The samples at the positions from `first` on. They must be in the set.
  void fill(LoaderPosition first, std::span<std::int64_t> ids) const;
  /// What the order depends on, besides the epoch: equal texts are equal orders.
  std::string description() const;

 private:
  /// The positions [first, first + ids.size()) of an epoch by their lengths.
  struct Window {
    std::int64_t epoch = -1, first = 0;
    std::vector<std::int64_t> ids;
  };

  void fill_base(LoaderPosition first, std::span<std::int64_t> ids) const;
  std::int64_t drawn(LoaderPosition at) const;
  std::shared_ptr<const Window> window_of(LoaderPosition at) const;

  std::int64_t size_;
  const LoaderOptions& options_;
  std::int64_t window_ = 0;   ///< samples that are sorted by length together; 0: none are
  std::vector<double> sums_;  ///< of the weights up to each sample; empty: no weights
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Window> latest_;  ///< neighbouring batches are of one window
};

}  // namespace firn::data
