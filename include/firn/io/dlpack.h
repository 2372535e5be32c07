// Shares tensors with other libraries in the same process, without a copy, by DLPack
// (https://dmlc.github.io/dlpack/latest/). PyTorch, NumPy, JAX, CuPy and others support it.
//
// A managed tensor is a struct that one library makes and another one takes. Its owner calls its
// deleter once, to tell the maker that the memory is no longer in use. In Python it travels in a
// capsule, which calls the deleter if no library takes the tensor.
//
//   DType     DLPack          DType     DLPack          DType     DLPack
//   f16       kDLFloat 16     f64       kDLFloat 64     u8        kDLUInt 8
//   bf16      kDLBfloat 16    i32       kDLInt 32       boolean   kDLBool 8
//   f32       kDLFloat 32     i64       kDLInt 64       i8        kDLInt 8
//   i16       kDLInt 16       u16       kDLUInt 16      u32       kDLUInt 32
//   f8_e4m3   kDLFloat8_e4m3fn                          f8_e5m2   kDLFloat8_e5m2
//
// Each library sees the other's writes. Writes of the other library do not count as in-place
// writes: they raise no version counter. So autograd does not notice that a saved tensor has
// changed, and a RollbackPoint does not restore its values.
//
// CUDA: `stream` is the cudaStream_t on which the other library uses the memory, or null for CUDA's
// default stream. It must live until the deleter has been called. firn uses the memory on the
// current stream of the calling thread. One stream waits for the work queued on the other:
//   - to_dlpack(): the other library's stream waits for firn's,
//   - from_dlpack(): firn's stream waits for the other library's,
//   - the deleter: the maker's stream waits for the other one, before it reuses the memory.
// The host does not wait. The caller orders all writes in between, and work on further streams. The
// thread that calls the deleter must be allowed to call CUDA.
#pragma once

#include "firn/tensor.h"

struct DLManagedTensorVersioned;  ///< declared in dlpack/dlpack.h, which a program may also include
struct DLManagedTensor;           ///< the form before DLPack 1.0: no version, no flags

namespace firn::io {

/// Returns a managed tensor of DLPack 1.0 over the elements of `t`, with its shape and strides. Its
/// deleter may be called from any thread. Until then it holds the memory, even if `t` is gone, and
/// the memory does not move. byte_offset is 0, and a tensor without elements has the address null.
///
/// A view that repeats elements, such as one of expand(), is marked read-only: a write to one of
/// its elements would change others. A view of as_strided() is marked too if firn cannot rule out
/// repeated elements.
///
/// Throws Error if `t` is undefined, requires a gradient, or is a weight of ZeRO stage 3, whose
/// memory exists only while it is gathered. Also throws Error while a step is planned, and while a
/// graph is captured on its device.
///
/// While a managed tensor of a parameter exists, making an optimizer of the parameter throws Error.
/// So does sharding the weights: both would move the memory. Memory of from_memory() belongs to the
/// caller, and must outlive the managed tensor.
DLManagedTensorVersioned* to_dlpack(const Tensor& t, void* stream = nullptr);

/// Returns a tensor over the memory of `managed`, and takes ownership of it: the last tensor with
/// that memory calls the deleter, in its thread. The tensor does not require a gradient, and its
/// version counter begins at 0. A managed tensor that firn made by to_dlpack() comes back as a
/// view of the same storage.
///
/// firn tensors can always be written. If `managed` is marked read-only, the result is a copy, and
/// the deleter has been called.
///
/// The memory is on the CPU, pinned (kDLCUDAHost), or on a CUDA device. Pinned memory gives a CPU
/// tensor, and its elements must be ready. Device numbers are those that this process sees. The
/// address of the first element must be a multiple of its size; firn needs no other alignment.
/// Elements of a bool are 0 or 1. firn does not check that the memory is accessible.
///
/// Throws Error for a major version other than 1, for a dtype or device that firn does not have,
/// and for more than 8 axes. Throws Error for a negative size or stride, for sizes or strides that
/// no memory can have, and for an address that is null or in between elements. Throws Error while a
/// graph is captured on its device, and DeviceError for a CUDA device that does not exist. If it
/// throws, the caller still owns `managed`, and passes it to delete_dlpack().
Tensor from_dlpack(DLManagedTensorVersioned* managed, void* stream = nullptr);

/// to_dlpack() and from_dlpack() in the form before DLPack 1.0, for libraries that support only
/// that ("dltensor" capsules). That form has no read-only mark. So to_unversioned_dlpack() throws
/// Error where to_dlpack() would set the mark, and from_unversioned_dlpack() always shares the
/// memory.
DLManagedTensor* to_unversioned_dlpack(const Tensor& t, void* stream = nullptr);
Tensor from_unversioned_dlpack(DLManagedTensor* managed, void* stream = nullptr);

/// Calls the deleter, if there is one, of a managed tensor that no library takes. Null is allowed.
void delete_dlpack(DLManagedTensorVersioned* managed) noexcept;
void delete_dlpack(DLManagedTensor* managed) noexcept;

}  // namespace firn::io
