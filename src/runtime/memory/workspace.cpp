#include "firn/runtime/kernel_support.h"

namespace firn::runtime {

Workspace::Workspace(std::size_t bytes, Stream stream) {
  if (bytes > 0) block_.allocate(bytes, stream, Owner::workspace);
}

}  // namespace firn::runtime
