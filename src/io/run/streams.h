// Random streams of several ranks in a saved run: seed and offset, [2], or [ranks, 2] if the ranks'
// streams differ.
#pragma once

#include <vector>

#include "autograd/peers.h"
#include "firn/tensor.h"

namespace firn::io {

/// The streams of all ranks for the file. All ranks make it and call exchange(), with equal numbers
/// of streams.
class StreamsOfRanks {
 public:
  /// Allocates all memory that it needs. `copies` may be null.
  StreamsOfRanks(const autograd::Peers* copies, std::size_t streams);
  /// Sets stream i of this rank, [2] on the CPU.
  void set_own(std::size_t i, const Tensor& stream) const;
  void exchange() const;
  /// Returns [ranks, 2], or an undefined tensor if all ranks' streams are equal.
  Tensor rows(std::size_t i) const;

 private:
  const autograd::Peers* copies_;  ///< null: there is nothing to exchange
  Tensor own_, all_;               ///< [streams, 2], [ranks, streams, 2]
  std::vector<Tensor> rows_;       ///< [ranks, 2] for each stream
};

/// Returns true if a file's entry is such a stream.
bool is_stream(const Tensor& read) noexcept;

/// Returns the stream [2] with which a rank continues. A rank beyond those of the file gets the
/// seed that seed_thread() derives from the first rank's.
Tensor stream_of_rank(const Tensor& read, int rank);

}  // namespace firn::io
