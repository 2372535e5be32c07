// Random streams of several ranks in a saved run: seed and offset, [2], or [ranks, 2] if ranks draw
// other numbers.
#pragma once

#include <vector>

#include "autograd/peers.h"
#include "firn/tensor.h"

namespace firn::io {

/// What the file has of all ranks' streams. It is made, and exchanged, by all ranks with as many
/// streams.
class StreamsOfRanks {
 public:
  /// Takes all memory that it needs. `copies` may be null.
  StreamsOfRanks(const autograd::Peers* copies, std::size_t streams);
  /// Stream i of this rank, [2] on the CPU.
  void set_own(std::size_t i, const Tensor& stream) const;
  void exchange() const;
  /// [ranks, 2], or undefined if all ranks have the same numbers.
  Tensor rows(std::size_t i) const;

 private:
  const autograd::Peers* copies_;  ///< null: there is nothing to exchange
  Tensor own_, all_;               ///< [streams, 2], [ranks, streams, 2]
  std::vector<Tensor> rows_;       ///< of each stream [ranks, 2]
};

/// Whether a file's entry is such a stream.
bool is_stream(const Tensor& read) noexcept;

/// The stream [2] that a rank goes on with. A rank beyond those of the file gets the seed that
/// seed_thread() derives from the first rank's.
Tensor stream_of_rank(const Tensor& read, int rank);

}  // namespace firn::io
