// Another library, which has made a managed tensor and counts how often its deleter is called. The
// struct is filled in here by the specification's numbers, without firn's code for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "firn/firn.h"
#include "firn/runtime/storage.h"
#include "io/dlpack_abi.h"
#include "support/values.h"

namespace firn::testing {

inline DLDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return {2, 16, 1};
    case DType::bf16:
      return {4, 16, 1};
    case DType::f32:
      return {2, 32, 1};
    case DType::f64:
      return {2, 64, 1};
    case DType::i32:
      return {0, 32, 1};
    case DType::i64:
      return {0, 64, 1};
    case DType::u8:
      return {1, 8, 1};
    case DType::i8:
      return {0, 8, 1};
    case DType::i16:
      return {0, 16, 1};
    case DType::u16:
      return {1, 16, 1};
    case DType::u32:
      return {1, 32, 1};
    case DType::f8_e4m3:
      return {10, 8, 1};
    case DType::f8_e5m2:
      return {12, 8, 1};
    default:
      return {6, 8, 1};
  }
}

/// A managed tensor over the elements of `t`, whose memory stands for the other library's. It must
/// live until the deleter has been called.
template <class Managed = DLManagedTensorVersioned>
class Foreign {
 public:
  explicit Foreign(Tensor t, std::uint64_t flags = 0)
      : shape(t.shape().begin(), t.shape().end()),
        strides(t.strides().begin(), t.strides().end()),
        tensor_(std::move(t)) {
    struct_.manager_ctx = this;
    struct_.deleter = [](Managed* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted_; };
    if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) {
      struct_.version = {1, 1};
      struct_.flags = flags;
    }
    DLTensor& d = struct_.dl_tensor;
    d.data = tensor_.mutable_view().data;
    d.device.device_type = static_cast<DLDeviceType>(tensor_.device().is_cpu() ? 1 : 2);
    d.device.device_id = tensor_.device().index;
    d.ndim = tensor_.rank();
    d.dtype = type_of(tensor_.dtype());
    d.shape = shape.data();
    d.strides = strides.data();
    d.byte_offset = 0;
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  Managed* give() { return &struct_; }
  DLTensor& fields() { return struct_.dl_tensor; }
  const Tensor& tensor() const { return tensor_; }
  int deleted() const { return deleted_; }

  std::vector<std::int64_t> shape, strides;

 private:
  Tensor tensor_;
  Managed struct_{};
  std::atomic<int> deleted_{0};
};

/// A tensor of 24 elements on the default device, in every layout that a view can have.
struct NamedView {
  std::string name;
  Tensor tensor;
};
inline std::vector<NamedView> views_of(DType dtype) {
  const Tensor x = (arange(48, f32) - 20).to(dtype).reshape({2, 4, 6});
  return {{"row-major", x},
          {"transposed", x.transpose(0, 2)},
          {"permuted", x.permute({1, 2, 0})},
          {"stepped", x.slice(2, 1, 6, 2)},
          {"a part", x.slice(1, 1, 3)},
          {"from an odd element on", x.flatten().slice(0, 5, 12)},
          {"channels-last", x.reshape({2, 3, 4, 2}).channels_last()},
          {"one axis of size 1", x.slice(1, 2, 3)},
          {"a scalar", x[1][2][3]},
          {"nothing", x.slice(2, 3, 3)},
          {"8 axes", x.reshape({2, 1, 2, 2, 1, 2, 1, 3})}};
}

}  // namespace firn::testing
