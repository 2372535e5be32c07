// Maps each position of a Loader's epochs to a sample: a pure function, called by any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "firn/data/loader.h"

namespace firn::data {

/// Throws Error in the name of `op` unless these options are valid for every set.
LoaderOptions checked_options(const char* op, LoaderOptions options);

class Order {
 public:
  /// Throws Error unless the options are valid for a set of `size` samples. They must outlive it.
  Order(const char* op, std::int64_t size, const LoaderOptions& options);

  /// Numbers of samples and batches of an epoch: the whole set, less a dropped last batch. The
  /// dropped samples are left out even if a seek() has moved the batches.
  std::int64_t samples() const noexcept {
    return options_.drop_last ? size_ - size_ % options_.batch : size_;
  }
  std::int64_t batches() const noexcept {
    return samples() / options_.batch + (samples() % options_.batch != 0 ? 1 : 0);
  }
  /// Fills `ids` with the samples at the positions from `first` on, which must be in the set.
  void fill(LoaderPosition first, std::span<std::int64_t> ids) const;
  /// Describes everything that the order depends on except the epoch. Equal texts mean equal
  /// orders.
  std::string description() const;

 private:
  /// The samples at the positions [first, first + ids.size()) of an epoch, ordered by length.
  struct Window {
    std::int64_t epoch = -1, first = 0;
    std::vector<std::int64_t> ids;
  };

  void fill_base(LoaderPosition first, std::span<std::int64_t> ids) const;
  std::int64_t drawn(LoaderPosition at) const;
  std::shared_ptr<const Window> window_of(LoaderPosition at) const;

  std::int64_t size_;
  const LoaderOptions& options_;
  std::int64_t window_ = 0;   ///< number of samples that are sorted together; 0: no sorting
  std::vector<double> sums_;  ///< sum of the weights up to each sample; empty: no weights
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Window> latest_;  ///< neighbouring batches share a window
};

}  // namespace firn::data
