// Tensors of other libraries in the same process, and firn's in theirs, without a copy: DLPack
// (https://dmlc.github.io/dlpack/latest/). PyTorch, NumPy, JAX, CuPy and others speak it.
//
// A managed tensor is a struct that one library makes and another one takes. Whoever has it calls
// its deleter once, and its maker then knows that the memory is no longer in use. In Python it
// travels in a capsule, which does that if nobody takes it.
//
//   DType     DLPack          DType     DLPack          DType     DLPack
//   f16       kDLFloat 16     f64       kDLFloat 64     u8        kDLUInt 8
//   bf16      kDLBfloat 16    i32       kDLInt 32       boolean   kDLBool 8
//   f32       kDLFloat 32     i64       kDLInt 64       i8        kDLInt 8
//   i16       kDLInt 16       u16       kDLUInt 16      u32       kDLUInt 32
//   f8_e4m3   kDLFloat8_e4m3fn                          f8_e5m2   kDLFloat8_e5m2
//
// Both sides see what the other one writes. Writes of the other side do not count as in-place
// writes: no version counter rises, so autograd does not notice that a saved tensor has changed,
// and a RollbackPoint does not put back what it held.
//
// CUDA: `stream` is the cudaStream_t on which the other library uses the memory, or null for CUDA's
// default stream. It lives until the deleter has been called. firn uses the memory on the current
// stream of the thread that calls. The one stream waits for what is queued on the other:
//   - to_dlpack(): the other library's stream for firn's,
//   - from_dlpack(): firn's for the other library's,
//   - the deleter: in the other direction, before the maker of the memory may use it anew.
// The host does not wait. What either side writes in between is ordered by the caller. Work on
// further streams is too, and the thread that calls the deleter must be free to call CUDA.
#pragma once

#include "firn/tensor.h"

struct DLManagedTensorVersioned;  ///< of dlpack/dlpack.h, which a program may include as well
struct DLManagedTensor;           ///< the form before DLPack 1.0: no version, no flags

namespace firn::io {

/// A managed tensor, of DLPack 1.0, over the elements of `t`, with its shape and strides. Its
/// deleter may be called from any thread. Until then it holds the memory, also if `t` is gone, and
/// the memory does not move. byte_offset is 0, and a tensor without elements has the address null.
///
/// A view that repeats elements, as of expand(), is marked read-only: a write to one of its
/// elements would change others. So are as_strided() views of which firn cannot tell.
///
/// Throws Error if `t` is undefined, requires a gradient, or has memory that comes and goes
/// (weights of ZeRO stage 3), while a step is planned, and while a graph is captured on its device.
///
/// While a parameter is given away, making an optimizer of it throws Error, and so does dividing
/// the weights: both would move the memory. Memory of from_memory() is the caller's, and must
/// outlive the managed tensor.
DLManagedTensorVersioned* to_dlpack(const Tensor& t, void* stream = nullptr);

/// A tensor over the memory of `managed`, which belongs to it from now on: the last tensor with
/// that memory calls the deleter, in its thread. It does not require a gradient, and its version
/// counter begins at 0. What firn itself made by to_dlpack() comes back as a view of the same
/// storage.
///
/// firn cannot refuse writes to a tensor. If `managed` is marked read-only, the result is a copy,
/// and the deleter has been called.
///
/// Memory is that of the CPU, pinned (kDLCUDAHost, a CPU tensor then; its elements are ready), or
/// that of a CUDA device. Devices have the numbers that this process sees. The first element lies
/// at a multiple of its size; firn needs no other alignment. Elements of a bool are 0 or 1. That
/// the memory is there is not checked.
///
/// Throws Error for a major version other than 1, a dtype or device that firn does not have, more
/// than 8 axes, a negative size or stride, sizes or strides that no memory has, an address that is
/// null or in between elements, and while a graph is captured on its device. Throws DeviceError for
/// a CUDA device that is not there. If it throws, `managed` is still the caller's, who hands it to
/// delete_dlpack().
Tensor from_dlpack(DLManagedTensorVersioned* managed, void* stream = nullptr);

/// The same in the form before DLPack 1.0, for libraries that speak no other ("dltensor" capsules).
/// That form cannot say that a tensor is read-only. So to_unversioned_dlpack() throws Error where
/// to_dlpack() would say it, and from_unversioned_dlpack() always shares the memory.
DLManagedTensor* to_unversioned_dlpack(const Tensor& t, void* stream = nullptr);
Tensor from_unversioned_dlpack(DLManagedTensor* managed, void* stream = nullptr);

/// Calls the deleter of a managed tensor that nobody takes, if it has one. Null does nothing.
void delete_dlpack(DLManagedTensorVersioned* managed) noexcept;
void delete_dlpack(DLManagedTensor* managed) noexcept;

}  // namespace firn::io
