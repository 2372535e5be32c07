#include "firn/kernel_support.h"
#include "firn/memory.h"
#include "runtime/memory/allocator.h"

namespace firn::runtime {

Workspace::Workspace(std::size_t bytes, Stream stream) : device_(stream.device), bytes_(bytes) {
  if (bytes > 0) data_ = memory::allocate(bytes, stream, Owner::workspace);
}

Workspace::~Workspace() {
  if (data_) memory::release(data_, bytes_, device_, Owner::workspace);
}

}  // namespace firn::runtime
