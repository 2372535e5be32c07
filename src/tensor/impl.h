// The object that a Tensor handle points at.
#pragma once

#include "firn/runtime/storage.h"
#include "firn/tensor.h"
#include "runtime/memory/pool.h"

namespace firn {

/// A tensor's place in the autograd graph. This layer only counts references to it; the type is
/// autograd::Node.
class GraphNode : public RefCounted {
 public:
  static void destroy(GraphNode* n) noexcept { n->dispose(); }

 protected:
  ~GraphNode() = default;
  virtual void dispose() noexcept = 0;
};

/// Geometry over a storage, and the tensor's place in the autograd graph. Intrusive references hold
/// it. Its memory comes from a per-thread free list, so making a view costs no heap traffic.
class TensorImpl : public RefCounted {
 public:
  TensorImpl(Ref<Storage> s, const Shape& sh, const Strides& st, std::int64_t off, DType t)
      : storage(std::move(s)), shape(sh), strides(st), offset(off), dtype(t) {}
  static void destroy(TensorImpl* p) noexcept { delete p; }
  static void* operator new(std::size_t bytes) { return memory::pool_allocate(bytes); }
  static void operator delete(void* p, std::size_t bytes) noexcept {
    memory::pool_release(p, bytes);
  }

  /// Throws if the memory is absent and cannot be fetched (Storage::set_provider()).
  void* data() const {
    if (storage->is_absent()) [[unlikely]]
      storage->fetch();
    return static_cast<char*>(storage->data()) + offset * static_cast<std::int64_t>(size_of(dtype));
  }

  Ref<Storage> storage;
  Shape shape;
  Strides strides;
  std::int64_t offset;  ///< elements from the storage's start
  DType dtype;
  /// True for a parameter of which this rank has one shard (dist::mark_sharded).
  bool sharded = false;
  /// Set on tensors that require a gradient: the op that made them, or their leaf node.
  Ref<GraphNode> node;
};

/// Throws Error naming `op` if `t` is undefined.
void require_defined(const char* op, const Tensor& t);

/// Throws Error naming `op` if a plan of a step has made `t` without memory. Call it before the
/// host itself writes to `t`.
void require_memory(const char* op, const Tensor& t);

/// Throws Error naming `op` unless a tensor can have that shape, dtype and format. Functions that
/// create tensors by empty() call it first.
void require_creatable(const char* op, const Shape& shape, DType dtype,
                       MemoryFormat format = MemoryFormat::contiguous);

}  // namespace firn
