// Scratch memory of a kernel, from the caching allocator, accounted as workspace.
#pragma once

#include <cstdint>

#include "firn/storage.h"
#include "firn/view.h"

namespace firn::kernels::cpu {

/// An uninitialised row-major buffer that lives as long as this object.
class Workspace {
 public:
  Workspace(const Shape& shape, DType dtype)
      : storage_(Storage::allocate(static_cast<std::size_t>(shape.product()) * size_of(dtype),
                                   Device::cpu(), Owner::workspace)),
        view_{storage_->data(), dtype, Device::cpu(), shape, contiguous_strides(shape)} {}

  const View& view() const noexcept { return view_; }

 private:
  Ref<Storage> storage_;
  View view_;
};

}  // namespace firn::kernels::cpu
