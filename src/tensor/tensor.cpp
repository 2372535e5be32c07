// Handles, geometry and host access. Kernels do all computation. The autograd members of Tensor are
// defined in src/autograd/variable.cpp, the fluent ones in src/ops/fluent.cpp.
#include "firn/tensor.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/checked.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/spans.h"
#include "firn/runtime/stream.h"
#include "kernels/math/integer.h"
#include "runtime/plan/model.h"
#include "tensor/impl.h"

namespace firn {

Tensor::Tensor() noexcept = default;
Tensor::~Tensor() = default;
Tensor::Tensor(const Tensor&) noexcept = default;
Tensor::Tensor(Tensor&&) noexcept = default;
Tensor& Tensor::operator=(const Tensor&) & noexcept = default;
Tensor& Tensor::operator=(Tensor&&) & noexcept = default;
Tensor::Tensor(Ref<TensorImpl> impl) noexcept : impl_(std::move(impl)) {}

void require_defined(const char* op, const Tensor& t) {
  FIRN_CHECK(t.defined(), op, "make it with empty, zeros, tensor, ...", "an operand is undefined");
}

const Shape& Tensor::shape() const {
  require_defined("shape", *this);
  return impl_->shape;
}
const Strides& Tensor::strides() const {
  require_defined("strides", *this);
  return impl_->strides;
}
DType Tensor::dtype() const {
  require_defined("dtype", *this);
  return impl_->dtype;
}
Device Tensor::device() const {
  require_defined("device", *this);
  return impl_->storage->device();
}
std::int64_t Tensor::size(std::int64_t axis) const {
  return shape()[normalize_axis("size", axis, rank())];
}
std::int64_t Tensor::numel() const { return shape().product(); }
bool Tensor::is_contiguous() const { return firn::is_contiguous(shape(), impl_->strides); }
bool Tensor::is_channels_last() const { return firn::is_channels_last(shape(), impl_->strides); }

ConstView Tensor::view() const {
  require_defined("view", *this);
  return {impl_->data(), impl_->dtype, impl_->storage->device(), impl_->shape, impl_->strides};
}
View Tensor::mutable_view() const {
  require_defined("view", *this);
  return {impl_->data(), impl_->dtype, impl_->storage->device(), impl_->shape, impl_->strides};
}
const Ref<Storage>& Tensor::storage() const {
  require_defined("storage", *this);
  return impl_->storage;
}
std::int64_t Tensor::storage_offset() const {
  require_defined("storage_offset", *this);
  return impl_->offset;
}

void* Tensor::typed_data(DType expected) const {
  require_defined("data", *this);
  FIRN_CHECK(dtype() == expected, "data", "ask for the tensor's own element type, or cast it first",
             "asked for {} elements of {}", expected, describe(*this));
  FIRN_CHECK(device().is_cpu(), "data", "x.to(Device::cpu())", "{} is not in host memory",
             describe(*this));
  require_memory("data", *this);
  return impl_->data();
}

void require_memory(const char* op, const Tensor& t) {
  FIRN_CHECK(!memory::is_made_up(t.storage()->data()), op,
             "give the step a batch that is there, or plan without a limit of address space "
             "(ulimit -v)",
             "{} is a part of a plan, and has no memory that the host could use", describe(t));
}

Tensor Tensor::as_strided(const Shape& new_shape, const Strides& new_strides,
                          std::int64_t new_offset) const {
  require_defined("as_strided", *this);
  FIRN_CHECK(new_shape.size() == new_strides.size(), "as_strided", "one stride per axis",
             "shape {} and strides {}", new_shape, new_strides);
  const std::int64_t count = checked_elements("as_strided", new_shape);
  const std::int64_t first =
      count > 0 ? checked_sum("as_strided", impl_->offset, new_offset) : impl_->offset;
  const auto elements = static_cast<std::int64_t>(impl_->storage->bytes() / size_of(impl_->dtype));
  const std::int64_t last =
      checked_sum("as_strided", first, checked_reach("as_strided", new_shape, new_strides));
  Strides strides = new_strides;
  for (int i = 0; i < new_shape.size(); ++i)
    if (new_shape[i] <= 1)  // no step is taken: keep the stride small, so that products fit
      strides[i] = std::min(strides[i], elements);
  FIRN_CHECK(first >= 0 && last < (count > 0 ? elements : kMaxElements), "as_strided",
             "a view lies inside the storage of its tensor",
             "elements {} to {} of a storage of {} elements", first, last, elements);
  return Tensor(
      Ref<TensorImpl>(new TensorImpl(impl_->storage, new_shape, strides, first, impl_->dtype)));
}

Tensor empty(const Shape& shape, const TensorOptions& options) {
  return empty(shape, options.dtype, options.device, options.format);
}

void require_creatable(const char* op, const Shape& shape, DType dtype, MemoryFormat format) {
  FIRN_CHECK(size_of(dtype) > 0, op, "take one of firn::DType", "{} is not the number of a dtype",
             static_cast<int>(dtype));
  require_named(op, "MemoryFormat", format, MemoryFormat::channels_last);
  const bool has_format =
      format == MemoryFormat::contiguous || (shape.size() >= 3 && shape.size() <= 5);
  FIRN_CHECK(has_format, op, "leave the memory format out",
             "channels-last is an order of tensors of rank 3 to 5, not of shape {}", shape);
  checked_elements(op, shape);
}

Tensor empty(const Shape& shape, DType dtype, Device device, MemoryFormat format) {
  require_creatable("empty", shape, dtype, format);
  auto storage =
      Storage::allocate(static_cast<std::size_t>(shape.product()) * size_of(dtype), device);
  return Tensor(Ref<TensorImpl>(
      new TensorImpl(std::move(storage), shape, strides_in(shape, format), 0, dtype)));
}

Tensor zeros(const Shape& shape, const TensorOptions& options) {
  require_creatable("zeros", shape, options.dtype, options.format);
  Tensor t = empty(shape, options);
  t.storage()->made_by("zeros");
  zero_bytes(t.impl()->data(), options.device, t.bytes());
  return t;
}

template <Element T>
Tensor tensor(std::span<const T> values, const Shape& shape, Device device) {
  FIRN_CHECK(static_cast<std::int64_t>(values.size()) == checked_elements("tensor", shape),
             "tensor", "give one value per element", "{} values for shape {}", values.size(),
             shape);
  Tensor t = empty(shape, dtype_of<T>, device);
  t.storage()->made_by("tensor");
  copy_bytes(t.impl()->data(), device, values.data(), Device::cpu(), t.bytes());
  if (runtime::recording_spans()) [[unlikely]]
    runtime::end_operation("tensor");
  return t;
}

Tensor firn::detail::tensor_of(const std::vector<bool>& values, const Shape& shape,
                               Device device) try {
  const auto copy = std::make_unique<bool[]>(values.size());
  std::copy(values.begin(), values.end(), copy.get());
  return tensor(std::span<const bool>(copy.get(), values.size()), shape, device);
}
FIRN_OUT_OF_MEMORY("tensor")

template <Element T>
requires std::is_same_v<T, std::remove_cv_t<T>> Tensor from_memory(T* data, const Shape& shape) {
  const auto bytes = static_cast<std::size_t>(checked_elements("from_memory", shape)) * sizeof(T);
  FIRN_CHECK(data || bytes == 0, "from_memory", "give the address of the first element",
             "the address is null for {} of shape {}", dtype_of<T>, shape);
  return Tensor(Ref<TensorImpl>(new TensorImpl(Storage::borrow(data, bytes, Device::cpu()), shape,
                                               contiguous_strides(shape), 0, dtype_of<T>)));
}

namespace {

/// Copies the elements of a strided view into `to`, in row-major order.
template <std::size_t kSize>
void pack(const char* first, const Shape& shape, const Strides& strides, char* to) {
  Dims index = Dims::filled(shape.size(), 0);
  const std::int64_t n = shape.product();
  for (std::int64_t i = 0; i < n; ++i, to += kSize) {
    std::int64_t at = 0;
    for (int d = 0; d < index.size(); ++d) at += index[d] * strides[d];
    std::memcpy(to, first + at * static_cast<std::int64_t>(kSize), kSize);
    for (int d = index.size() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
}

/// Returns the elements in row-major order and in host memory: those of the tensor itself, or
/// `copies`. A type for each dtype and another for each result would make hundreds of loops of
/// pack().
const char* packed_elements(const Tensor& t, std::vector<char> (&copies)[2]) {
  const TensorImpl& impl = *t.impl();
  const char* first = static_cast<const char*>(impl.data());
  const auto size = static_cast<std::int64_t>(size_of(t.dtype()));
  if (!t.device().is_cpu() && t.numel() > 0) {
    std::int64_t before = 0, after = 0;  // elements of the view on either side of its first one
    for (int d = 0; d < impl.shape.size(); ++d) {
      const std::int64_t span = (impl.shape[d] - 1) * impl.strides[d];
      (span < 0 ? before : after) += span < 0 ? -span : span;
    }
    copies[0].resize(static_cast<std::size_t>((before + after + 1) * size));
    copy_bytes(copies[0].data(), Device::cpu(), first - before * size, t.device(),
               copies[0].size());
    first = copies[0].data() + before * size;
  }
  if (t.is_contiguous()) return first;
  copies[1].resize(t.bytes());
  switch (size) {
    case 1:
      pack<1>(first, impl.shape, impl.strides, copies[1].data());
      break;
    case 2:
      pack<2>(first, impl.shape, impl.strides, copies[1].data());
      break;
    case 4:
      pack<4>(first, impl.shape, impl.strides, copies[1].data());
      break;
    default:
      pack<8>(first, impl.shape, impl.strides, copies[1].data());
  }
  return copies[1].data();
}

}  // namespace

double Tensor::item() const {
  require_defined("item", *this);
  FIRN_CHECK(numel() == 1, "item", "reduce it first, or use to_vector", "{} has {} elements",
             describe(*this), numel());
  if (runtime::dry_run()) return 0;
  std::vector<char> copies[2];
  const char* value = packed_elements(*this, copies);
  return visit(dtype(),
               [&]<class S>() { return static_cast<double>(*reinterpret_cast<const S*>(value)); });
}

template <Element T>
std::vector<T> Tensor::to_vector() const try {
  require_defined("to_vector", *this);
  const auto n = static_cast<std::size_t>(numel());
  std::vector<T> out;
  try {
    out.resize(n);
  } catch (const std::exception&) {  // bad_alloc or length_error
    throw OutOfMemory(fmt::format("no memory left for a vector of {}", describe(*this)),
                      n * sizeof(T));
  }
  if (runtime::dry_run()) return out;
  std::vector<char> copies[2];
  const char* const values = packed_elements(*this, copies);
  visit(dtype(), [&]<class S>() {
    const S* const from = reinterpret_cast<const S*>(values);
    for (std::size_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<S, T> || std::is_arithmetic_v<T>) {
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_integral_v<S>) {
          out[i] = math::to_integer<T>(static_cast<double>(from[i]));
        } else {
          out[i] = static_cast<T>(from[i]);
        }
      } else {
        out[i] = T(static_cast<float>(from[i]));
      }
    }
  });
  return out;
}
FIRN_OUT_OF_MEMORY("to_vector")

#define FIRN_FOR_ELEMENT_TYPE(T)                                       \
  template Tensor tensor<T>(std::span<const T>, const Shape&, Device); \
  template Tensor from_memory<T>(T*, const Shape&);                    \
  template std::vector<T> Tensor::to_vector<T>() const;
FIRN_FOR_ELEMENT_TYPE(half)
FIRN_FOR_ELEMENT_TYPE(bfloat16)
FIRN_FOR_ELEMENT_TYPE(float)
FIRN_FOR_ELEMENT_TYPE(double)
FIRN_FOR_ELEMENT_TYPE(int)
FIRN_FOR_ELEMENT_TYPE(long)
FIRN_FOR_ELEMENT_TYPE(long long)
FIRN_FOR_ELEMENT_TYPE(std::uint8_t)
FIRN_FOR_ELEMENT_TYPE(bool)
FIRN_FOR_ELEMENT_TYPE(std::int8_t)
FIRN_FOR_ELEMENT_TYPE(std::int16_t)
FIRN_FOR_ELEMENT_TYPE(std::uint16_t)
FIRN_FOR_ELEMENT_TYPE(std::uint32_t)
FIRN_FOR_ELEMENT_TYPE(float8_e4m3)
FIRN_FOR_ELEMENT_TYPE(float8_e5m2)
#undef FIRN_FOR_ELEMENT_TYPE

}  // namespace firn
