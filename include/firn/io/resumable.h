// Interface of a source of batches whose position a saved run restores.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace firn::io {

struct RunAccess;

/// A place in a sequence of batches: `sample` samples of epoch `epoch` have been taken.
struct BatchPosition {
  std::int64_t epoch = 0;   ///< from 0
  std::int64_t sample = 0;  ///< samples of the epoch that were taken

  bool operator==(const BatchPosition&) const noexcept = default;
};

/// A source of batches whose position save_run() saves and load_run() restores. data::Loader and
/// data::ResidentBatches implement it.
class Resumable {
 public:
  virtual ~Resumable() = default;
  /// Returns the position after the last batch that was delivered.
  virtual BatchPosition position() const = 0;
  /// Describes everything that the order of the samples depends on. If two sources have equal
  /// texts, a position means the same place in both.
  virtual std::string order_description() const = 0;

 protected:
  Resumable() = default;
  Resumable(const Resumable&) = default;
  Resumable& operator=(const Resumable&) = default;

 private:
  friend struct RunAccess;
  /// Number of samples in an epoch's order; positions are in [0, set_size()].
  virtual std::int64_t set_size() const = 0;
  /// Returns the position before the current batch, or position() if there is none.
  virtual BatchPosition before_batch() const = 0;
  /// Checks a position and allocates the memory for going there; may throw. The function that it
  /// returns goes there and does not throw.
  virtual std::function<void()> prepare_seek(BatchPosition position) const = 0;
};

}  // namespace firn::io
