// Makes the batches of a Loader: a pure function of a position, called by any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/share.h"
#include "data/loader/order.h"
#include "data/loader/staging.h"
#include "firn/data/loader.h"

namespace firn::data {

/// Reason why a batch could not be made. It is a value, not an exception, since threads pass it on.
struct Failure {
  enum class Kind : std::uint8_t { sample, batch, memory };
  Kind kind = Kind::memory;
  std::int64_t index = 0;     ///< number of the sample, if one is to blame
  std::size_t requested = 0;  ///< bytes requested, if memory ran out
  std::string text, hint;

  /// Throws SampleError, Error or OutOfMemory for the batch at `position`.
  [[noreturn]] void raise(LoaderPosition position, BadSample bad_sample) const;
};

struct MadeBatch {
  Sample fields;                                         ///< on the CPU; empty if `pinned` is set
  std::shared_ptr<const PinnedFields> pinned = nullptr;  ///< fields for another device
  Tensor ids;  ///< i64 [n]; undefined if every sample was left out
  std::int64_t skipped = 0;
  std::string why_skipped = {};  ///< reason for the first one
  std::optional<Failure> failure;
};

class BatchMaker {
 public:
  /// Throws Error unless the options make sense for the set.
  BatchMaker(Dataset set, LoaderOptions options);

  const Dataset& set() const noexcept { return set_; }
  const LoaderOptions& options() const noexcept { return options_; }
  const Order& order() const noexcept { return order_; }
  /// Returns the number of samples in the batch at `position`; 0 at the end of an epoch.
  std::int64_t count_at(LoaderPosition position) const noexcept;
  /// Returns this rank's share of a batch of `count` samples.
  Share part_of(std::int64_t count) const noexcept {
    return share_of(count, options_.group.rank(), options_.group.size(), options_.chunk);
  }
  /// Makes this rank's share of the batch of `count` samples from `position` on, in host memory.
  MadeBatch make(LoaderPosition position, std::int64_t count) const noexcept;

 private:
  MadeBatch try_make(LoaderPosition position, std::int64_t count) const;
  Sample collate(std::span<const Sample> samples, std::span<const std::int64_t> ids) const;
  Sample each(std::span<const std::int64_t> ids, const DrawContext& context) const;
  MadeBatch without_bad(std::span<const std::int64_t> ids, const DrawContext& context) const;
  Sample make_fields(std::span<const std::int64_t> ids, const DrawContext& context) const;

  Dataset set_;
  LoaderOptions options_;
  std::int64_t size_;
  Order order_;
};

}  // namespace firn::data
