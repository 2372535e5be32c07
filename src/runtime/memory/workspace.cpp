#include "firn/runtime/kernel_support.h"

namespace firn::runtime {

// Not an inline variable: each variant of the CPU kernels (kernels/isa.h) would have its own.
thread_local constinit bool detail::dry_run = false;

Workspace::Workspace(std::size_t bytes, Stream stream) {
  if (bytes > 0) block_.allocate(bytes, stream, Owner::workspace);
}

}  // namespace firn::runtime
