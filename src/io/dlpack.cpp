#include "firn/io/dlpack.h"

#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/storage.h"
#include "firn/runtime/stream.h"
#include "io/dlpack_abi.h"
#include "tensor/impl.h"
#include "tensor/overlap.h"

namespace firn::io {
namespace {

template <class Managed>
constexpr bool kVersioned = std::is_same_v<Managed, DLManagedTensorVersioned>;

// ---- Dtypes and devices ----

/// DLPack's type for each DType, in the order of DType.
constexpr DLDataType kTypes[] = {
    {kDLFloat, 16, 1},   // f16
    {kDLBfloat, 16, 1},  // bf16
    {kDLFloat, 32, 1},   // f32
    {kDLFloat, 64, 1},   // f64
    {kDLInt, 32, 1},     // i32
    {kDLInt, 64, 1},     // i64
    {kDLUInt, 8, 1},     // u8
    {kDLBool, 8, 1},     // bool
    {kDLInt, 8, 1},      // i8
    {kDLInt, 16, 1},     // i16
    {kDLUInt, 16, 1},    // u16
    {kDLUInt, 32, 1},    // u32
    {kDLFloat8_e4m3fn, 8, 1}, {kDLFloat8_e5m2, 8, 1},
};
static_assert(std::size(kTypes) == static_cast<std::size_t>(kDTypes));

/// Returns "int16", "float32x4", "type code 9 of 8 bits".
std::string in_words(const DLDataType& t) {
  constexpr const char* names[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  std::string text = t.code < std::size(names)
                         ? fmt::format("{}{}", names[t.code], t.bits)
                         : fmt::format("type code {} of {} bits", t.code, t.bits);
  if (t.lanes != 1) text += fmt::format("x{}", t.lanes);
  return text;
}

DType dtype_of_elements(const char* op, const DLDataType& t) {
  for (std::size_t i = 0; i < std::size(kTypes); ++i)
    if (kTypes[i].code == t.code && kTypes[i].bits == t.bits && kTypes[i].lanes == t.lanes)
      return static_cast<DType>(i);
  detail::fail(op,
               "convert it in the other library; firn has float16, bfloat16, float32, float64, "
               "float8_e4m3fn, float8_e5m2, int8 to int64, uint8 to uint32 and bool, each of one "
               "lane",
               "the elements are {}", in_words(t));
}

Device device_of_memory(const char* op, const DLDevice& d) {
  // All memory of the host is one device, for any number that the other library gives it.
  if (d.device_type == kDLCPU || d.device_type == kDLCUDAHost) return Device::cpu();
  FIRN_CHECK(d.device_type == kDLCUDA, op, "copy it to the CPU or to CUDA in the other library",
             "the device is of type {}; firn knows 1 (CPU), 2 (CUDA) and 3 (pinned by CUDA)",
             static_cast<std::int32_t>(d.device_type));
  FIRN_CHECK(d.device_id >= 0 && d.device_id <= INT8_MAX, op, "CUDA devices count from 0 to 127",
             "the CUDA device has the number {}", d.device_id);
  const Device device = Device::cuda(d.device_id);
  require_device(op, device);
  return device;
}

// ---- Order of work ----

enum class To { other, firn };

/// Orders work: the side `to` runs what it queues from now on after what the other side has queued.
/// `stream` is the other library's; null is CUDA's default stream.
void hand_over(Device device, void* stream, To to) {
  if (device.is_cpu()) return;
  const Stream ours = current_stream(device), theirs{device, stream};
  // One event serves all calls: block() refers to its latest record.
  static std::mutex mutex;
  static Event& event = *new Event;
  const std::lock_guard lock(mutex);
  event.record(to == To::other ? ours : theirs);
  event.block(to == To::other ? theirs : ours);
}

/// Calls `fn` from a deleter, which can neither throw nor wait.
template <class Fn>
void at_end(Device device, Fn&& fn) noexcept {
  try {
    // The user keeps alive what a capture reads (firn/runtime/graph.h), so no order is missing.
    if (device.is_cuda() && !runtime::capturing(device)) fn();
  } catch (...) {  // CUDA has failed, and its next call reports that again
  }
}

// ---- Out ----

/// Exported tensor: the struct, and the data that it points to.
template <class Managed>
struct Given {
  Given(const TensorImpl& t, void* other)
      : storage(t.storage), shape(t.shape), strides(t.strides), stream(other) {
    storage->hold_place();
  }
  ~Given() { storage->let_place_go(); }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;

  static void destroy(Managed* self) {
    const std::unique_ptr<Given> given(static_cast<Given*>(self->manager_ctx));
    const Device device = given->storage->device();
    at_end(device, [&] {
      hand_over(device, given->stream, To::firn);
      given->storage->record_use(current_stream(device));
    });
  }

  Managed managed{};
  Ref<Storage> storage;
  Shape shape;
  Strides strides;
  void* stream;
};

template <class Managed>
Managed* give(const char* op, const Tensor& t, void* stream) {
  require_defined(op, t);
  FIRN_CHECK(!t.requires_grad(), op, "x.detach() has the same elements and no gradient",
             "{} requires a gradient, and another library does not compute it", describe(t));
  const TensorImpl& impl = *t.impl();
  const Device device = impl.storage->device();
  FIRN_CHECK(!impl.storage->is_provided(), op, "give a clone()",
             "the memory of {} comes and goes, since ranks shard the weights", describe(t));
  FIRN_CHECK(!runtime::dry_run(), op, "call it outside of the step that is planned",
             "{} has no elements in a plan", describe(t));
  runtime::refuse_capture(op, device, "another library cannot wait for the recorded work");
  const bool empty = impl.shape.product() == 0;
  const bool repeats = !empty && may_repeat(impl.shape, impl.strides);

  auto given = std::make_unique<Given<Managed>>(impl, stream);
  Managed& m = given->managed;
  if constexpr (kVersioned<Managed>) {
    m.version = {1, 0};
    m.flags = repeats ? kDLPackReadOnly : 0;
  } else {
    FIRN_CHECK(!repeats, op, "give a contiguous() copy, or use to_dlpack()",
               "{} with strides {} repeats elements, and this form cannot say that it is read-only",
               describe(t), impl.strides);
  }
  m.manager_ctx = given.get();
  m.deleter = &Given<Managed>::destroy;
  m.dl_tensor = {.data = empty ? nullptr : impl.data(),
                 .device = {device.is_cpu() ? kDLCPU : kDLCUDA, device.index},
                 .ndim = impl.shape.size(),
                 .dtype = kTypes[static_cast<int>(impl.dtype)],
                 .shape = given->shape.begin(),
                 .strides = given->strides.begin(),
                 .byte_offset = 0};
  hand_over(device, stream, To::other);
  return &given.release()->managed;
}

// ---- In ----

/// Contents of a struct. The elements are within `bytes` bytes from view.data on.
struct Seen {
  View view;
  std::size_t bytes = 0;
};

/// Checks all fields. Reads nothing of the memory.
Seen look_at(const char* op, const DLTensor& t) {
  FIRN_CHECK(t.ndim >= 0 && t.ndim <= kMaxRank, op, "reshape it in the other library",
             "it has {} axes, and a tensor has 0 to {}", t.ndim, kMaxRank);
  FIRN_CHECK(t.shape || t.ndim == 0, op, "", "it has {} axes, and the address of its sizes is null",
             t.ndim);
  Seen seen;
  View& v = seen.view;
  v.dtype = dtype_of_elements(op, t.dtype);
  v.device = device_of_memory(op, t.device);
  for (int i = 0; i < t.ndim; ++i) v.shape.push_back(t.shape[i]);
  const std::int64_t elements = checked_elements(op, v.shape);
  v.strides = contiguous_strides(v.shape);
  if (elements == 0) return seen;
  if (t.strides)
    for (int i = 0; i < t.ndim; ++i)  // the stride of an axis of size 1 is not used
      if (v.shape[i] > 1) v.strides[i] = t.strides[i];
  for (const std::int64_t stride : v.strides)
    FIRN_CHECK(stride >= 0, op, "make a contiguous copy in the other library",
               "the stride {} is negative in strides {}", stride, v.strides);
  const std::int64_t reach = checked_reach(op, v.shape, v.strides);
  FIRN_CHECK(reach < kMaxElements, op, "a tensor lies within 2^56 elements",
             "shape {} with strides {} reaches over {} elements", v.shape, v.strides, reach);
  FIRN_CHECK(t.data, op, "", "the address of the elements is null for shape {}", v.shape);
  const std::size_t size = size_of(v.dtype);
  seen.bytes = (static_cast<std::size_t>(reach) + 1) * size;
  std::uint64_t first = reinterpret_cast<std::uintptr_t>(t.data), end = 0;
  FIRN_CHECK(!__builtin_add_overflow(first, t.byte_offset, &first) &&
                 !__builtin_add_overflow(first, seen.bytes, &end),
             op, "", "{} bytes from byte offset {} on pass the last address", seen.bytes,
             t.byte_offset);
  FIRN_CHECK(first % size == 0, op, "copy it in the other library",
             "the first element, {}, lies {} bytes behind a multiple of its size", v.dtype,
             first % size);
  v.data = static_cast<char*>(t.data) + t.byte_offset;
  return seen;
}

/// Returns the storage that firn exported as `managed` if it contains the elements, else null.
template <class Managed>
Ref<Storage> own_storage(const Managed& managed, const Seen& seen) {
  if (managed.deleter != &Given<Managed>::destroy) return {};
  const Ref<Storage>& storage = static_cast<const Given<Managed>*>(managed.manager_ctx)->storage;
  const auto begin = reinterpret_cast<std::uintptr_t>(storage->data());
  const auto first = reinterpret_cast<std::uintptr_t>(seen.view.data);
  const std::size_t room = storage->bytes(), before = first - begin;
  const bool inside = first >= begin && before <= room && seen.bytes <= room - before &&
                      before % size_of(seen.view.dtype) == 0;
  return inside ? storage : Ref<Storage>();
}

/// Imported tensor: the handle of a Storage.
template <class Managed>
struct Taken {
  static void release(void* handle, std::size_t) noexcept {
    const std::unique_ptr<const Taken> taken(static_cast<const Taken*>(handle));
    if (!taken->complete) return;
    at_end(taken->device, [&] { hand_over(taken->device, taken->stream, To::other); });
    delete_dlpack(taken->managed);
  }

  Managed* managed = nullptr;
  Device device;
  void* stream = nullptr;
  bool complete = false;  ///< until then `managed` is the caller's
};

Tensor over(Ref<Storage> storage, const View& v, std::size_t offset) {
  return Tensor(Ref<TensorImpl>(new TensorImpl(std::move(storage), v.shape, v.strides,
                                               static_cast<std::int64_t>(offset / size_of(v.dtype)),
                                               v.dtype)));
}

template <class Managed>
Tensor take(const char* op, Managed* managed, void* stream) {
  FIRN_CHECK(managed, op, "give what the other library has made", "the managed tensor is null");
  bool read_only = false;
  if constexpr (kVersioned<Managed>) {
    FIRN_CHECK(managed->version.major == 1, op, "ask the other library for version 1",
               "the managed tensor is of DLPack {}.{}, and firn reads version 1",
               managed->version.major, managed->version.minor);
    read_only = (managed->flags & kDLPackReadOnly) != 0;
  }
  const Seen seen = look_at(op, managed->dl_tensor);
  const View& v = seen.view;
  runtime::refuse_capture(op, v.device, "the recorded work cannot wait for another library");
  hand_over(v.device, stream, To::firn);

  if (Ref<Storage> storage = own_storage(*managed, seen)) {
    const auto offset = static_cast<std::size_t>(static_cast<const char*>(v.data) -
                                                 static_cast<const char*>(storage->data()));
    Tensor t = over(std::move(storage), v, offset);
    // A view that repeats elements cannot be written to in firn either, so it needs no copy.
    if (read_only && !may_repeat(v.shape, v.strides)) t = clone(t);
    delete_dlpack(managed);
    return t;
  }
  auto taken = std::make_unique<Taken<Managed>>();
  Taken<Managed>& handle = *taken;
  handle.managed = managed;
  handle.device = v.device;
  handle.stream = stream;
  Ref<Storage> storage =
      Storage::adopt(v.data, seen.bytes, v.device, &Taken<Managed>::release, &handle);
  taken.release();
  const Tensor t = over(std::move(storage), v, 0);
  const Tensor result = read_only ? clone(t) : t;
  handle.complete = true;
  return result;
}

template <class Managed>
void call_deleter(Managed* managed) noexcept {
  if (managed && managed->deleter) managed->deleter(managed);
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& t, void* stream) try {
  return give<DLManagedTensorVersioned>("to_dlpack", t, stream);
}
FIRN_OUT_OF_MEMORY("to_dlpack")

Tensor from_dlpack(DLManagedTensorVersioned* managed, void* stream) try {
  return take("from_dlpack", managed, stream);
}
FIRN_OUT_OF_MEMORY("from_dlpack")

DLManagedTensor* to_unversioned_dlpack(const Tensor& t, void* stream) try {
  return give<DLManagedTensor>("to_unversioned_dlpack", t, stream);
}
FIRN_OUT_OF_MEMORY("to_unversioned_dlpack")

Tensor from_unversioned_dlpack(DLManagedTensor* managed, void* stream) try {
  return take("from_unversioned_dlpack", managed, stream);
}
FIRN_OUT_OF_MEMORY("from_unversioned_dlpack")

void delete_dlpack(DLManagedTensorVersioned* managed) noexcept { call_deleter(managed); }
void delete_dlpack(DLManagedTensor* managed) noexcept { call_deleter(managed); }

}  // namespace firn::io
