// Data that is kept elsewhere until it is needed again: in pinned memory of the host, or in a
// temporary file.
#pragma once

#include <cstddef>
#include <memory>

#include "firn/ref.h"
#include "firn/runtime/storage.h"

namespace firn::memory {

/// Memory for tensors on `device` that is outside of the device, zeroed. On the host it is pinned,
/// and kernels read and write it over the bus. A file is mapped, and is for the CPU. memory_stats()
/// does not count it. Throws OutOfMemory, and Error that names the folder if the file has no room.
enum class Elsewhere : std::uint8_t { host, file };
Ref<Storage> allocate_elsewhere(std::size_t bytes, Device device, Elsewhere where);

/// A copy of a storage's bytes in another place. On a CUDA device the host waits for copies from
/// and to a file, and not for those from and to the host's memory.
class Offloaded {
 public:
  /// Copies the bytes as they are in the order of the device's current stream. The file is in
  /// FIRN_OFFLOAD_DIR, else TMPDIR, else /tmp, and has no name. Throws OutOfMemory, and Error that
  /// names the folder if the file cannot take them, or if the device is being captured.
  Offloaded(const Storage& from, Elsewhere where);
  ~Offloaded();
  Offloaded(const Offloaded&) = delete;
  Offloaded& operator=(const Offloaded&) = delete;

  /// Returns new memory on the device with these bytes, each time. Throws what the constructor
  /// throws.
  Ref<Storage> fetch();

 private:
  struct Bytes;
  std::unique_ptr<Bytes> bytes_;
};

}  // namespace firn::memory
