// SilentRollback: RollbackPoints that see no changes for a while.
#pragma once

namespace firn::memory {

/// While alive, this thread has none of the RollbackPoints that were made before.
class SilentRollback {
 public:
  SilentRollback() noexcept;
  ~SilentRollback();
  SilentRollback(const SilentRollback&) = delete;
  SilentRollback& operator=(const SilentRollback&) = delete;

 private:
  void* points_;
};

}  // namespace firn::memory
