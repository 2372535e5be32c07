// Kernels called on views of host memory, as their unit tests do, and run on the default device:
// what the views show goes there before the call and comes back after it.
#pragma once

#include <algorithm>
#include <vector>

#include "firn/runtime/storage.h"
#include "firn/runtime/stream.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"

namespace firn::testing {

namespace detail {

/// Memory of the host and its copy on the device.
class Mirror {
 public:
  void add(const void* host, const ConstView& v, bool written) {
    std::int64_t last = 0;
    for (int i = 0; i < v.rank(); ++i) last += (v.shape[i] - 1) * v.strides[i];
    const auto bytes = v.numel() == 0 ? 0 : static_cast<std::size_t>(last + 1) * size_of(v.dtype);
    for (Block& b : blocks_) {
      if (b.host != host) continue;
      b.bytes = std::max(b.bytes, bytes);
      b.written |= written;
      return;
    }
    blocks_.push_back({host, bytes, written, {}});
  }
  void upload() {
    for (Block& b : blocks_) {
      b.there = Storage::allocate(b.bytes, default_device());
      copy_bytes(b.there->data(), default_device(), b.host, Device::cpu(), b.bytes);
    }
  }
  void download() const {
    for (const Block& b : blocks_)
      if (b.written)
        copy_bytes(const_cast<void*>(b.host), Device::cpu(), b.there->data(), default_device(),
                   b.bytes);
  }
  template <class V>
  V there(V v) const {
    for (const Block& b : blocks_)
      if (b.host == v.data) v.data = b.there->data();
    v.device = default_device();
    return v;
  }

 private:
  struct Block {
    const void* host;
    std::size_t bytes;
    bool written;
    Ref<Storage> there;
  };
  std::vector<Block> blocks_;
};

inline void add(Mirror& m, const ConstView& v) { m.add(v.data, v, false); }
inline void add(Mirror& m, const View& v) { m.add(v.data, v, true); }

}  // namespace detail

/// kernel(stream, views...) with views of the same geometry on the default device. Views that begin
/// at one place of the host share one there.
template <class Kernel, class... Views>
void run_kernel(Kernel&& kernel, const Views&... views) {
  const Stream stream = current_stream(default_device());
  if (default_device().is_cpu()) return kernel(stream, views...);
  detail::Mirror mirror;
  (detail::add(mirror, views), ...);
  mirror.upload();
  kernel(stream, mirror.there(views)...);
  mirror.download();
}

/// The kernels of kernels/copy.h and kernels/elementwise.h that way, by the same names.
namespace run {

inline void copy(const ConstView& src, const View& dst) {
  run_kernel([](Stream s, const ConstView& a, const View& b) { kernels::copy(a, b, s); }, src, dst);
}
inline void fill(const View& dst, double value) {
  run_kernel([&](Stream s, const View& a) { kernels::fill(a, value, s); }, dst);
}
inline void arange(const View& dst, double start, double step) {
  run_kernel([&](Stream s, const View& a) { kernels::arange(a, start, step, s); }, dst);
}
inline void unary(math::UnaryOp op, const ConstView& x, const View& y, math::Args args) {
  run_kernel(
      [&](Stream s, const ConstView& a, const View& b) { kernels::unary(op, a, b, args, s); }, x,
      y);
}
inline void unary_backward(math::UnaryOp op, const ConstView& dy, const ConstView& saved,
                           const View& dx, math::Args args, float beta) {
  run_kernel([&](Stream s, const ConstView& a, const ConstView& b,
                 const View& c) { kernels::unary_backward(op, a, b, c, args, beta, s); },
             dy, saved, dx);
}
inline void binary(math::BinaryOp op, const ConstView& a, const ConstView& b, const View& y,
                   math::Args args) {
  run_kernel([&](Stream s, const ConstView& u, const ConstView& v,
                 const View& w) { kernels::binary(op, u, v, w, args, s); },
             a, b, y);
}
inline void binary_backward(math::BinaryOp op, int operand, const ConstView& dy, const ConstView& a,
                            const ConstView& b, const View& dx, math::Args args, float beta) {
  run_kernel(
      [&](Stream s, const ConstView& d, const ConstView& u, const ConstView& v, const View& w) {
        kernels::binary_backward(op, operand, d, u, v, w, args, beta, s);
      },
      dy, a, b, dx);
}
inline void where(const ConstView& condition, const ConstView& a, const ConstView& b, const View& y,
                  float beta) {
  run_kernel([&](Stream s, const ConstView& c, const ConstView& u, const ConstView& v,
                 const View& w) { kernels::where(c, u, v, w, beta, s); },
             condition, a, b, y);
}
inline void axpby(double alpha, const ConstView& x, double beta, const View& y) {
  run_kernel(
      [&](Stream s, const ConstView& a, const View& b) { kernels::axpby(alpha, a, beta, b, s); }, x,
      y);
}

}  // namespace run
}  // namespace firn::testing
