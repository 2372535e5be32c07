#include "io/file/file_tensor.h"

#include "tensor/impl.h"

namespace firn::io {

Tensor file_tensor(const char* op, const InputFile& file, const Ref<Storage>& map,
                   std::uint64_t begin, const Shape& shape, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(shape.product()) * size_of(dtype);
  if (map && begin % size_of(dtype) == 0 && bytes > 0)
    return Tensor(Ref<TensorImpl>(new TensorImpl(Storage::part_of(map, begin, bytes), shape,
                                                 contiguous_strides(shape), 0, dtype)));
  Tensor t = empty(shape, dtype, Device::cpu());
  require_memory(op, t);
  file.read_at(begin, t.mutable_view().data, bytes);
  return t;
}

}  // namespace firn::io
