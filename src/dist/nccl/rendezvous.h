// Ranks that connect through a file: rank 0 writes NCCL's id, and the others wait for it.
#pragma once

#include <string>

#include "dist/nccl/library.h"

namespace firn::dist {

/// The file of rank 0, which exists as long as this object.
class IdFile {
 public:
  /// Throws IoError if the file exists already: another rank could have read it.
  IdFile(const std::string& path, int size);
  ~IdFile();
  IdFile(const IdFile&) = delete;
  IdFile& operator=(const IdFile&) = delete;

  const ncclUniqueId& id() const noexcept { return id_; }

 private:
  const std::string path_;
  ncclUniqueId id_ = {};
};

/// Waits for the file. Throws RankError when the deadline (seconds) passes. Throws IoError unless
/// rank 0 wrote the file for `size` ranks with the same NCCL.
ncclUniqueId wait_for_id(const std::string& path, int rank, int size, double deadline);

}  // namespace firn::dist
