// Ranks with a CUDA device each, over NCCL. In the library firn::nccl, which exists if firn was
// built with CUDA and NCCL's header (FIRN_NCCL). NCCL itself is loaded at run time.
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
  /// Seconds that the ranks have for a collective, from when this rank's device has come to it; and
  /// for what NCCL does on the host before.
  double deadline = 60;
  /// Floating sums are added in the order of the ranks, as group.h promises: each rank receives its
  /// share of all tensors, adds it up, and all gather the sums. Off: in the order that NCCL likes.
  /// It moves as many bytes and needs no memory; the bits depend on sizes, machine and version.
  bool exact_sums = true;
  /// Before a collective, the ranks compare their calls over the bootstrap group, on the host. That
  /// costs an all_gather of 16 bytes there, and no wait for a device. Off, or without such a group:
  /// if calls differ, what comes of it is anything up to the deadline.
  bool compare = true;
};

/// The ranks of `bootstrap`, each with its own `device`, over NCCL. All ranks call it. `bootstrap`
/// is a group on the CPU (run_local(), mpi_group()); it carries NCCL's id, and with
/// NcclOptions::compare later the calls. The group keeps a handle of it.
///
/// A collective is queued on the device's current stream, and the host does not wait for it; only
/// barrier() waits. So some errors come late. A thread of the group watches what is queued. When
/// the deadline passes, or NCCL reports an error, it ends NCCL's work on this device, and the
/// results are undefined. The next wait of the host for the device then throws RankError, or the
/// next call of the group if that comes first. Later calls throw too.
///
/// The last handle of the group waits for its collectives, at most until the deadline, and not at
/// all during an exception. If they have not ended by then, the next wait for the device throws.
///
/// Collectives cannot be captured in a graph. Throws Error for a device that is not CUDA, a
/// deadline that is not positive, or a bootstrap group that is not on the CPU; DeviceError if the
/// device or NCCL is missing; RankError on all ranks if they do not come together.
Group nccl_group(const Group& bootstrap, Device device, const NcclOptions& options = {});

/// The same for ranks that have a folder in common and no other group: rank 0 writes NCCL's id to
/// the file `path`, the others wait for it, and when all have come together rank 0 removes it.
/// Nobody compares calls. Throws Error too unless 0 <= rank < size; IoError on rank 0 if there is
/// such a file already, or if it cannot be written, and on the others if it is not what it should
/// be; RankError if it does not come within the deadline.
Group nccl_group(int rank, int size, const std::string& path, Device device,
                 const NcclOptions& options = {});

}  // namespace firn::dist
