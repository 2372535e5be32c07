// Copies, casts, moves between devices, and whole-tensor writes.
#include "kernels/copy.h"

#include "firn/thread_context.h"
#include "kernels/elementwise.h"
#include "ops/common.h"
#include "ops/gradient/again.h"
#include "ops/in_place.h"

namespace firn {

using namespace ops;

namespace {

/// A recorded copy in another dtype or format; the gradient is cast back as it is accumulated.
Tensor converted(const char* op, const Tensor& x, DType dtype,
                 MemoryFormat format = MemoryFormat::contiguous) {
  Tensor y = empty(x.shape(), dtype, x.device(), format);
  kernels::copy(x.view(), y.mutable_view(), stream_of(x));
  return record(op, y, {&x}, {},
                with_again([](Backward& b) { b.accumulate(0, b.grad()); },
                           [](GraphBackward& b) { b.add(0, b.grad()); }));
}

/// Whole-tensor writes are not recorded: the sink of attributes is notified before and after.
void writes_number(const char* op, const Tensor& x, double value) {
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"target", &x}, {"value", value}});
}
void wrote(const char* op, const Tensor& x) {
  x.storage()->bump_version(op);
  ended(op);
  if (autograd::wants_attributes()) [[unlikely]]
    thread_context.attributes->wrote(op, x);
}

/// x if it has one of the two memory formats, else a row-major copy.
Tensor without_gaps(const Tensor& x) { return x.is_channels_last() ? x : contiguous(x); }

}  // namespace

Tensor cast(const Tensor& x, DType dtype) {
  require_defined("cast", x);
  if (x.dtype() == dtype) return x;
  require_creatable("cast", x.shape(), dtype);
  // A cast to an integer dtype has no gradient.
  const MemoryFormat format = format_of(x.shape(), x.strides());
  return converted("cast", is_floating(dtype) ? x : x.detach(), dtype, format);
}

Tensor clone(const Tensor& x) {
  require_defined("clone", x);
  return converted("clone", x, x.dtype());
}

Tensor contiguous(const Tensor& x) {
  require_defined("contiguous", x);
  return x.is_contiguous() ? x : converted("contiguous", x, x.dtype());
}

Tensor channels_last(const Tensor& x) {
  require_defined("channels_last", x);
  FIRN_CHECK(x.rank() >= 3 && x.rank() <= 5, "channels_last", "unsqueeze it",
             "{} has not the axes batch, channels and one to three positions", describe(x));
  if (x.is_channels_last()) return x;
  return converted("channels_last", x, x.dtype(), MemoryFormat::channels_last);
}

Tensor to_device(const Tensor& x, Device device) {
  require_defined("to_device", x);
  if (x.device() == device) return x;
  require_device("to_device", device);
  const Tensor source = without_gaps(x);
  Tensor y = empty(x.shape(), x.dtype(), device, format_of(x.shape(), x.strides()));
  copy_bytes(y.impl()->data(), device, source.impl()->data(), x.device(), x.bytes());
  const auto backward = [](Backward& b) {
    const Tensor grad = without_gaps(b.grad());
    Tensor moved = empty(grad.shape(), grad.dtype(), b.input_device(0),
                         format_of(grad.shape(), grad.strides()));
    copy_bytes(moved.impl()->data(), moved.device(), grad.impl()->data(), grad.device(),
               grad.bytes());
    b.accumulate(0, moved);
  };
  return record("to_device", y, {&x}, {},
                with_again(backward, [from = x.device()](GraphBackward& b) {
                  b.add(0, to_device(b.grad(), from));
                }));
}

void fill_(const Tensor& x, double value) {
  autograd::check_overwrite("fill_", x);
  require_holds("fill_", x.dtype(), value);
  writes_number("fill_", x, value);
  kernels::fill(x.mutable_view(), value, stream_of(x));
  wrote("fill_", x);
}

void zero_(const Tensor& x) {
  autograd::check_overwrite("zero_", x);
  writes_number("zero_", x, 0);
  if (in_one_order(x.mutable_view())) {
    zero_bytes(x.impl()->data(), x.device(), x.bytes());
  } else {
    kernels::fill(x.mutable_view(), 0, stream_of(x));
  }
  wrote("zero_", x);
}

void copy_(const Tensor& x, const Tensor& src) {
  require_defined("copy_", x);
  require_defined("copy_", src);
  FIRN_CHECK(broadcast_shapes("copy_", x.shape(), src.shape()) == x.shape(), "copy_",
             "the source must broadcast to the destination", "cannot copy {} into {}",
             describe(src), describe(x));
  // A copy into an integer dtype has no gradient, as a cast to it has none.
  const bool recorded = is_floating(x.dtype()) && autograd::detail::needs_recording({&src});
  autograd::check_overwrite("copy_", x);
  if (recorded)
    autograd::check_in_place(
        "copy_", x, true,
        "copy src.detach(), or build the tensor with slice_scatter(), cat() or where()");
  Tensor here = to_device(recorded ? src : src.detach(), x.device());
  if (recorded) here = cast(here, x.dtype());
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("copy_", {{"target", &x}, {"source", &here}});
  const ConstView whole = broadcast_to(here.view(), x.shape());
  if (!same_elements(x.view(), whole)) {
    const Tensor from = readable_beside(x, here);
    kernels::copy(broadcast_to(from.view(), x.shape()), x.mutable_view(), stream_of(x));
  }
  wrote("copy_", x);
  if (recorded)
    record("copy_", x, {&here}, {},
           with_again([](Backward& b) { accumulate_broadcast(b, 0, b.grad()); },
                      [](GraphBackward& b) { b.add(0, b.grad()); }));
}

}  // namespace firn
