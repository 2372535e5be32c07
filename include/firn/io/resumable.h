// The interface of a source of batches that a saved run can continue, since its order is known.
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
  /// The position behind the last batch that was delivered.
  virtual BatchPosition position() const = 0;
  /// Describes all that the order of the samples depends on: positions of another source mean the
  /// same here if the texts are equal.
  virtual std::string order_description() const = 0;

 protected:
  Resumable() = default;
  Resumable(const Resumable&) = default;
  Resumable& operator=(const Resumable&) = default;

 private:
  friend struct RunAccess;
  /// Samples of an epoch's order; positions reach from 0 to this number.
  virtual std::int64_t set_size() const = 0;
  /// The position in front of the batch in hand; without one, position().
  virtual BatchPosition before_batch() const = 0;
  /// Checks a position and takes the memory that going there needs; may throw. The function that it
  /// returns goes there and does not throw.
  virtual std::function<void()> prepare_seek(BatchPosition position) const = 0;
};

}  // namespace firn::io
