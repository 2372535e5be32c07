// Tickets for is_last_block (block.cuh): integers in device memory that are 0 whenever no kernel
// uses them. They are part of the program's image, so nothing is allocated or zeroed, which the
// capture of a graph forbids.
#pragma once

#include "kernels/cuda/device/gpu.h"

namespace firn::kernels::cuda {

inline constexpr unsigned kTickets = 1u << 14;

/// One array for each source file that has kernels with tickets: &tickets[slot] in a kernel, with
/// the slot from the host.
[[maybe_unused]] static __device__ unsigned tickets[kTickets];

/// Returns the ticket of the next launch on this stream. Launches on one stream share a ticket,
/// because they run one after the other. A launch that is captured into a graph gets its own,
/// because the graph may be replayed on any stream.
unsigned ticket_slot(Stream stream);

}  // namespace firn::kernels::cuda
