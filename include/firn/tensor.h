// Tensor: a value-like handle on a strided view of shared storage.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "firn/device.h"
#include "firn/dtype.h"
#include "firn/error.h"
#include "firn/memory.h"
#include "firn/ref.h"
#include "firn/shape.h"
#include "firn/view.h"

namespace firn {

class Storage;
class TensorImpl;

namespace detail {
/// A C++ number other than bool.
template <class T>
concept ANumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
}  // namespace detail

/// An n-dimensional array. Copying a Tensor copies the handle: both refer to the same elements and
/// the same place in the autograd graph. Views (slice, transpose, ...) share the elements.
class Tensor {
 public:
  /// The undefined tensor: defined() is false, and every op on it throws.
  Tensor() noexcept;
  ~Tensor();
  Tensor(const Tensor&) noexcept;
  Tensor(Tensor&&) noexcept;
  /// Makes this variable another handle. It refuses temporaries: `x[0] = y` would change nothing;
  /// x[0].copy_(y) writes elements.
  Tensor& operator=(const Tensor&) & noexcept;
  Tensor& operator=(Tensor&&) & noexcept;
  Tensor& operator=(const Tensor&) && = delete;  // write elements: x[0].copy_(y)

  /// False for the undefined tensor.
  bool defined() const noexcept { return static_cast<bool>(impl_); }
  const Shape& shape() const;      ///< sizes of the axes
  const Strides& strides() const;  ///< in elements
  DType dtype() const;             ///< type of the elements
  Device device() const;           ///< device that holds the elements
  /// Returns the number of axes.
  int rank() const { return shape().size(); }
  std::int64_t size(std::int64_t axis) const;  ///< axis may be negative
  std::int64_t numel() const;                  ///< the number of elements
  /// Bytes of the elements, whatever the strides.
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype()); }
  bool is_contiguous() const;
  bool is_channels_last() const;  ///< see MemoryFormat in view.h

  /// Views for kernels. Writes through mutable_view() are not counted. Call
  /// storage()->bump_version("name") (runtime/storage.h) after them, so that backward() and
  /// optimizers see the write.
  ConstView view() const;
  View mutable_view() const;

  /// Pointer to element [0, ..., 0] of a CPU tensor. Throws Error if T is not the dtype or the
  /// tensor is not on the CPU. Autograd does not see what is written through it.
  template <Element T>
  T* data() const {
    return static_cast<T*>(typed_data(dtype_of<T>));
  }
  /// Returns the only element, as a double, from any device; throws unless numel() is 1. Waits for
  /// the device.
  double item() const;
  /// Returns all elements in row-major order, converted to T as by cast(), from any device.
  template <Element T>
  std::vector<T> to_vector() const;

  // ---- Views without a gradient: the ops of ops.h are built on these ----
  /// Returns another geometry of the same storage; `offset` elements from this tensor's first.
  /// Throws Error if an element would lie outside the storage, or if a size or stride is negative
  /// or too large. A view without elements takes any offset and ignores it.
  Tensor as_strided(const Shape& shape, const Strides& strides, std::int64_t offset = 0) const;
  const Ref<Storage>& storage() const;
  /// Returns the place of element [0, ..., 0], in elements from the start of the storage.
  std::int64_t storage_offset() const;

  // ---- Autograd (see autograd.h; defined in src/autograd) ----
  /// True if backward() collects or passes on a gradient here.
  bool requires_grad() const noexcept;
  /// Sets whether this leaf collects a gradient. Throws Error for `true` on integer dtypes, and for
  /// `false` on the result of an op or on a parameter of an optimizer. Both throw for a leaf that a
  /// Freeze guard holds.
  Tensor& set_requires_grad(bool on = true);
  /// Returns the gradient that this leaf has collected; undefined if there is none. A later
  /// backward() or step() may change its elements. Throws Error for the result of an op.
  Tensor grad() const;
  /// Replaces the gradient collected so far by `g`; an undefined `g` clears it. `g` must have the
  /// tensor's shape and device and a floating dtype. An optimizer copies its elements, and so does
  /// a cast to the gradient's dtype; otherwise the leaf shares them. Throws Error unless this is a
  /// leaf that requires a gradient, and while its optimizer's backward() runs.
  void set_grad(const Tensor& g) const;
  /// Back-propagates from this scalar (initial gradient 1). See firn::backward.
  void backward() const;
  /// Returns the same elements outside the graph.
  Tensor detach() const;

  // ---- Member forms of the ops in firn/ops, which document them (defined in
  // src/ops) ----
  /// Work as cast() and to_device().
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;
  Tensor clone() const;
  Tensor contiguous() const;
  Tensor channels_last() const;
  Tensor reshape(const Shape& shape) const;
  Tensor flatten(std::int64_t from = 0, std::int64_t to = -1) const;
  Tensor permute(const Axes& order) const;
  Tensor transpose(std::int64_t a, std::int64_t b) const;
  Tensor unsqueeze(std::int64_t axis) const;
  Tensor squeeze(std::int64_t axis) const;
  Tensor expand(const Shape& shape) const;
  /// Elements [start, stop) along `axis`, every `step`-th; negative positions count from the end.
  Tensor slice(std::int64_t axis, std::int64_t start, std::int64_t stop,
               std::int64_t step = 1) const;
  /// The sub-tensor at position `index` of the first axis.
  Tensor operator[](std::int64_t index) const;
  Tensor select(std::int64_t axis, std::int64_t index) const;
  Tensor sum(const Axes& axes = {}, bool keepdims = false) const;
  Tensor mean(const Axes& axes = {}, bool keepdims = false) const;
  Tensor max(const Axes& axes = {}, bool keepdims = false) const;
  Tensor min(const Axes& axes = {}, bool keepdims = false) const;
  Tensor var(const Axes& axes = {}, std::int64_t correction = 1, bool keepdims = false) const;
  Tensor norm(const Axes& axes = {}, bool keepdims = false) const;
  Tensor argmax(std::int64_t axis = -1, bool keepdims = false) const;
  Tensor argmin(std::int64_t axis = -1, bool keepdims = false) const;
  Tensor prod(const Axes& axes = {}, bool keepdims = false) const;
  Tensor any(const Axes& axes = {}, bool keepdims = false) const;
  Tensor all(const Axes& axes = {}, bool keepdims = false) const;
  Tensor logsumexp(const Axes& axes = {}, bool keepdims = false) const;
  // These reject a bool for a number and a number for a bool, and say what to write.
  Tensor sum(const Axes&, detail::ANumber auto) const = delete;        // x.sum({0, 1}, true)
  Tensor mean(const Axes&, detail::ANumber auto) const = delete;       // x.mean({0, 1}, true)
  Tensor max(const Axes&, detail::ANumber auto) const = delete;        // x.max({0, 1}, true)
  Tensor min(const Axes&, detail::ANumber auto) const = delete;        // x.min({0, 1}, true)
  Tensor prod(const Axes&, detail::ANumber auto) const = delete;       // x.prod({0, 1}, true)
  Tensor any(const Axes&, detail::ANumber auto) const = delete;        // x.any({0, 1}, true)
  Tensor all(const Axes&, detail::ANumber auto) const = delete;        // x.all({0, 1}, true)
  Tensor logsumexp(const Axes&, detail::ANumber auto) const = delete;  // x.logsumexp({0, 1}, true)
  Tensor norm(const Axes&, detail::ANumber auto) const = delete;       // x.norm(axes): it has no p
  Tensor var(std::same_as<bool> auto,  // x.var({}, correction, keepdims)
             bool = false) const = delete;
  Tensor var(const Axes&,  // x.var(axes, correction, keepdims)
             std::same_as<bool> auto, bool = false) const = delete;
  Tensor argmax(std::same_as<bool> auto) const = delete;  // x.argmax(axis, keepdims)
  Tensor argmin(std::same_as<bool> auto) const = delete;  // x.argmin(axis, keepdims)
  Tensor cumsum(std::int64_t axis) const;
  Tensor gather(std::int64_t axis, const Tensor& index) const;
  Tensor index_select(std::int64_t axis, const Tensor& index) const;
  Tensor masked_fill(const Tensor& mask, double value) const;
  std::vector<Tensor> split(std::int64_t size, std::int64_t axis = 0) const;
  std::vector<Tensor> split(std::initializer_list<std::int64_t> sizes, std::int64_t axis = 0) const;
  std::vector<Tensor> chunk(std::int64_t pieces, std::int64_t axis = 0) const;
  Tensor matmul(const Tensor& other) const;
  Tensor softmax(std::int64_t axis = -1) const;
  Tensor log_softmax(std::int64_t axis = -1) const;
  Tensor abs() const;
  Tensor exp() const;
  Tensor log() const;
  Tensor sqrt() const;
  Tensor square() const;
  Tensor rsqrt() const;
  Tensor reciprocal() const;
  Tensor neg() const;
  Tensor sign() const;
  Tensor floor() const;
  Tensor ceil() const;
  Tensor round() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor pow(double exponent) const;
  Tensor pow(const Tensor& exponent) const;
  Tensor clamp(double low, double high) const;
  Tensor clamp_min(double low) const;
  Tensor clamp_max(double high) const;
  Tensor relu() const;
  Tensor gelu() const;
  Tensor sigmoid() const;
  Tensor silu() const;
  Tensor tanh() const;
  void fill_(double value) const;
  void zero_() const;
  void copy_(const Tensor& src) const;
  /// Write in place, as add_(), sub_(), mul_() and div_(): other handles and views of the elements
  /// see the change. `x = x + y` makes a new tensor instead.
  Tensor& operator+=(const Tensor& other);
  Tensor& operator-=(const Tensor& other);
  Tensor& operator*=(const Tensor& other);
  Tensor& operator/=(const Tensor& other);
  Tensor& operator+=(double number);
  Tensor& operator-=(double number);
  Tensor& operator*=(double number);
  Tensor& operator/=(double number);

  // ---- For the library ----
  explicit Tensor(Ref<TensorImpl> impl) noexcept;
  TensorImpl* impl() const noexcept { return impl_.get(); }

 private:
  void* typed_data(DType expected) const;
  Ref<TensorImpl> impl_;
};

/// Options of a new tensor: zeros({3}, {.dtype = f16, .device = Device::cuda()}).
struct TensorOptions {
  DType dtype = f32;                               ///< type of the elements
  Device device = default_device();                ///< device that holds the elements
  MemoryFormat format = MemoryFormat::contiguous;  ///< channels_last: only for rank 3 to 5
};

namespace detail {
/// A parameter that takes a DType but not `{}`, which would be f16.
template <class T>
concept ADType = std::is_same_v<T, DType>;
/// Elements side by side in memory: a std::span, std::array, std::vector, but not of bool.
template <class T>
concept Elements = std::ranges::contiguous_range<T> && Element<std::ranges::range_value_t<T>> &&
    requires(T t) {
  std::size(t);
};
template <Elements T>
using ElementOf = std::ranges::range_value_t<T>;
}  // namespace detail

/// An uninitialised tensor. A function that makes a tensor takes a dtype, a device, or both in this
/// order in place of the options: empty({3}, f16), empty({3}, device). tensor() takes a device:
/// its dtype is that of the values.
Tensor empty(const Shape& shape, const TensorOptions& options = {});
Tensor empty(const Shape& shape, DType dtype, Device device, MemoryFormat format);
Tensor empty(const Shape& shape, detail::ADType auto dtype, Device device = default_device()) {
  return empty(shape, dtype, device, MemoryFormat::contiguous);
}
inline Tensor empty(const Shape& shape, Device device) { return empty(shape, f32, device); }
/// Every element is 0.
Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor zeros(const Shape& shape, detail::ADType auto dtype, Device device = default_device()) {
  return zeros(shape, {.dtype = dtype, .device = device});
}
inline Tensor zeros(const Shape& shape, Device device) { return zeros(shape, {.device = device}); }

/// A tensor with a copy of `values` in row-major order, of their C++ type's dtype: a float gives
/// f32, an int i32, a long long i64. Throws unless values.size() equals the shape's product.
template <Element T>
Tensor tensor(std::span<const T> values, const Shape& shape, Device device = default_device());
template <Element T>
requires(!std::is_same_v<T, bool>) Tensor
    tensor(const std::vector<T>& values, const Shape& shape, Device device = default_device()) {
  return tensor(std::span<const T>(values), shape, device);
}
template <Element T>
Tensor tensor(std::initializer_list<T> values, const Shape& shape,
              Device device = default_device()) {
  return tensor(std::span<const T>(values.begin(), values.size()), shape, device);
}
/// Copies any std::span or std::array.
template <detail::Elements Range>
Tensor tensor(const Range& values, const Shape& shape, Device device = default_device()) {
  return tensor(std::span<const detail::ElementOf<Range>>(std::data(values), std::size(values)),
                shape, device);
}
/// 1-D, a copy of a std::vector, std::span, std::array or list: `tensor({1.f, 2.f, 3.f})`. In
/// `tensor(values, {})` the second argument is a Shape, that of a scalar.
template <detail::Elements Range>
Tensor tensor(const Range& values, std::same_as<Device> auto device) {
  return tensor(values, Shape{static_cast<std::int64_t>(std::size(values))}, device);
}
template <detail::Elements Range>
Tensor tensor(const Range& values) {
  return tensor(values, default_device());
}
template <Element T>
Tensor tensor(std::initializer_list<T> values, Device device = default_device()) {
  return tensor(std::span<const T>(values.begin(), values.size()),
                Shape{static_cast<std::int64_t>(values.size())}, device);
}
namespace detail {
Tensor tensor_of(const std::vector<bool>& values, const Shape& shape, Device device);
}
/// Copies truth values, which a std::vector holds as bits.
template <std::same_as<std::vector<bool>> Bits>
Tensor tensor(const Bits& values, const Shape& shape, Device device = default_device()) {
  return detail::tensor_of(values, shape, device);
}
template <std::same_as<std::vector<bool>> Bits>
Tensor tensor(const Bits& values, std::same_as<Device> auto device) {
  return detail::tensor_of(values, {static_cast<std::int64_t>(values.size())}, device);
}
template <std::same_as<std::vector<bool>> Bits>
Tensor tensor(const Bits& values) {
  return tensor(values, default_device());
}
/// A scalar, of shape []: `tensor(3.f)`.
template <Element T>
Tensor tensor(T value, Device device = default_device()) {
  return tensor(std::span<const T>(&value, 1), Shape{}, device);
}
/// Makes a row-major CPU tensor on memory of the caller. The caller keeps this memory until no
/// handle, view or graph uses it. It must be writable. Throws Error if `data` is null and the shape
/// has elements.
template <Element T>
requires std::is_same_v<T, std::remove_cv_t<T>> Tensor from_memory(T* data, const Shape& shape);

/// Returns "[64, 128] f16 cuda:0", the name of a tensor in errors.
std::string describe(const Tensor& t);
/// Returns the values with ellipsis, and a last line with shape, dtype and device.
std::string to_string(const Tensor& t);
std::ostream& operator<<(std::ostream& out, const Tensor& t);

/// A parameter or buffer with its path from the model's root, "encoder.blocks.0.weight"; or a
/// tensor of an optimizer's state. Modules, files and optimizers exchange them.
struct NamedTensor {
  std::string name = {};  ///< its path or name
  Tensor tensor = {};     ///< the handle
};

}  // namespace firn
