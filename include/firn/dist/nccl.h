// Ranks with a CUDA device each, over NCCL. They are in the library firn::nccl, which exists if
// firn was built with CUDA and NCCL's header (FIRN_NCCL). NCCL itself is loaded at run time.
//
//   const dist::Group hosts = dist::mpi_group();  // a process for each device of this machine
//   const Device device = Device::cuda(hosts.rank());
//   const dist::Group group = dist::nccl_group(hosts, device);
//   group.all_reduce(ones({5}, f32, device));
#pragma once

#include <string>

#include "firn/device.h"
#include "firn/dist/group.h"

namespace firn::dist {

struct NcclOptions {
  /// Seconds that the ranks have for a collective, counted from when this rank's device reaches it.
  /// NCCL's preparation on the host has the same limit.
  double deadline = 60;
  /// Adds floating sums in the order of the ranks, as group.h promises: each rank receives its
  /// share of all tensors, adds it up, and all gather the sums. If off, NCCL chooses the order.
  /// That moves as many bytes and needs no memory, but the bits depend on sizes, machine and
  /// version.
  bool exact_sums = true;
  /// Before a collective, the ranks compare their calls over the bootstrap group, on the host. That
  /// costs an all_gather of 16 bytes there, and no wait for a device. If off, or without such a
  /// group, different calls give undefined results, or wait until the deadline.
  bool compare = true;
};

/// Makes a group of the ranks of `bootstrap`, each with its own `device`, over NCCL. All ranks call
/// it. `bootstrap` is a group on the CPU (run_local(), mpi_group()). It carries NCCL's id and, with
/// NcclOptions::compare, a description of each later call. The group keeps a handle of it.
///
/// A collective is queued on the device's current stream, and the host does not wait for it; only
/// barrier() waits. So some errors come late. A thread of the group watches the queued work. When
/// the deadline passes, or NCCL reports an error, it ends NCCL's work on this device, and the
/// results are undefined. The next wait of the host for the device then throws RankError, or the
/// next call of the group if that comes first. Later calls throw too.
///
/// The last handle of the group waits for its collectives, at most until the deadline, and not at
/// all during an exception. If they have not ended by then, the next wait for the device throws.
///
/// Collectives cannot be captured in a graph. Throws Error for a device that is not CUDA, a
/// deadline that is not positive, or a bootstrap group that is not on the CPU; DeviceError if the
/// device or NCCL is missing; RankError on all ranks if they cannot connect.
Group nccl_group(const Group& bootstrap, Device device, const NcclOptions& options = {});

/// Makes a group of ranks that share a folder but have no other group. Rank 0 writes NCCL's id to
/// the file `path`, the others wait for it, and rank 0 removes it when all are connected. Calls are
/// not compared. Throws what the function above throws, and Error unless 0 <= rank < size. Throws
/// IoError on rank 0 if the file exists already or cannot be written, and on the others if its
/// contents are invalid. Throws RankError if the file does not appear within the deadline.
Group nccl_group(int rank, int size, const std::string& path, Device device,
                 const NcclOptions& options = {});

}  // namespace firn::dist
