// firn's side of `scripts/interop dlpack`: a shared library that Python loads with ctypes. Tensors
// are handles; functions that can fail return null and leave the text of the error in
// bridge_error().
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "firn/firn.h"

namespace {

using firn::Shape;
using firn::Tensor;

thread_local std::string error;

template <class Fn>
auto guarded(Fn&& fn) -> decltype(fn()) {
  error.clear();
  try {
    return fn();
  } catch (const std::exception& e) {
    error = e.what();
    return nullptr;
  }
}

const Tensor& at(const void* handle) { return *static_cast<const Tensor*>(handle); }

Tensor view(const Tensor& t, const std::string& kind) {
  if (kind == "whole") return t;
  if (kind == "transposed") return t.transpose(0, 1);
  if (kind == "stepped") return t.slice(1, 1, t.size(1), 2);
  if (kind == "part") return t.slice(0, 1, t.size(0));
  if (kind == "scalar") return t[1][2];
  if (kind == "empty") return t.slice(0, 1, 1);
  if (kind == "expanded") return t[0].expand({3, t.size(1)});
  if (kind == "copy") return t.clone();
  if (kind == "twice") return t + t;
  if (kind == "requires_grad") return t.clone().set_requires_grad();
  throw firn::Error("view", "there is no view '" + kind + "'");
}

}  // namespace

extern "C" {

const char* bridge_error() { return error.c_str(); }

/// A tensor [rows, columns] of 0, 1, 2, ... in the dtype of that number.
void* bridge_make(int dtype, std::int64_t rows, std::int64_t columns) {
  return guarded([&]() -> void* {
    return new Tensor(firn::arange(rows * columns, firn::f32)
                          .to(static_cast<firn::DType>(dtype))
                          .reshape({rows, columns}));
  });
}
void* bridge_view(const void* handle, const char* kind) {
  return guarded([&]() -> void* { return new Tensor(view(at(handle), kind)); });
}
void bridge_free(void* handle) { delete static_cast<Tensor*>(handle); }

/// `wide`: a DLManagedTensorVersioned, else a DLManagedTensor.
void* bridge_give(const void* handle, int wide) {
  return guarded([&]() -> void* {
    if (wide) return firn::io::to_dlpack(at(handle));
    return firn::io::to_unversioned_dlpack(at(handle));
  });
}
void* bridge_take(void* managed, int wide) {
  return guarded([&]() -> void* {
    if (wide)
      return new Tensor(firn::io::from_dlpack(static_cast<DLManagedTensorVersioned*>(managed)));
    return new Tensor(firn::io::from_unversioned_dlpack(static_cast<DLManagedTensor*>(managed)));
  });
}
void bridge_delete(void* managed, int wide) {
  if (wide)
    firn::io::delete_dlpack(static_cast<DLManagedTensorVersioned*>(managed));
  else
    firn::io::delete_dlpack(static_cast<DLManagedTensor*>(managed));
}

int bridge_dtype(const void* handle) { return static_cast<int>(at(handle).dtype()); }
int bridge_rank(const void* handle) { return at(handle).rank(); }
std::int64_t bridge_size(const void* handle, int axis) { return at(handle).size(axis); }
std::int64_t bridge_stride(const void* handle, int axis) { return at(handle).strides()[axis]; }
std::int64_t bridge_numel(const void* handle) { return at(handle).numel(); }
const void* bridge_address(const void* handle) { return at(handle).view().data; }
/// Writes the elements in row-major order. Returns null if it fails.
const void* bridge_values(const void* handle, double* to) {
  return guarded([&]() -> const void* {
    for (const double v : at(handle).to_vector<double>()) *to++ = v;
    return handle;
  });
}
const void* bridge_fill(const void* handle, double value) {
  return guarded([&]() -> const void* {
    at(handle).fill_(value);
    return handle;
  });
}
/// Bytes of all tensors of firn's, without memory of others.
std::uint64_t bridge_bytes_in_use() {
  return firn::memory_stats(firn::Device::cpu()).total.current;
}

}  // extern "C"
