// Random streams of several ranks in a saved run: seed and offset, [2], or [ranks, 2] if ranks draw
// other numbers.
#pragma once

#include <vector>

#include "autograd/peers.h"
#include "firn/tensor.h"

namespace firn::io {

/// What the file has of streams [2] of this rank. A call of all ranks with as many streams.
/// `copies` may be null.
std::vector<Tensor> streams_of_ranks(const autograd::Peers* copies, std::vector<Tensor> mine);

/// Whether a file's entry is such a stream.
bool is_stream(const Tensor& read) noexcept;

/// The stream [2] that a rank goes on with. A rank beyond those of the file gets the seed that
/// seed_thread() derives from the first rank's.
Tensor stream_of_rank(const Tensor& read, int rank);

}  // namespace firn::io
