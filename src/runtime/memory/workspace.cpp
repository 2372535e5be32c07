#include "firn/kernel_support.h"

namespace firn::runtime {

<<<<<<< ours
Workspace::Workspace(std::size_t bytes, Stream stream) {
  if (bytes > 0) block_.allocate(bytes, stream, Owner::workspace);
=======
// Not an inline variable: each variant of the CPU kernels (kernels/isa.h) would have its own.
thread_local constinit bool detail::dry_run = false;

Workspace::Workspace(std::size_t bytes, Stream stream) : device_(stream.device), bytes_(bytes) {
  if (bytes > 0) data_ = memory::allocate(bytes, stream, Owner::workspace);
}

Workspace::~Workspace() {
  if (data_) memory::release(data_, bytes_, device_, Owner::workspace);
>>>>>>> theirs
}

}  // namespace firn::runtime
