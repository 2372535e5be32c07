// Copies, casts and in-place writes.
#pragma once

#include "firn/random.h"
#include "firn/tensor.h"

namespace firn {

/// x converted to `dtype`, rounded to nearest even; x itself if it has that dtype. From floating to
/// integer, values are truncated toward zero and clamped to the range (300.0 as u8 is 255), and NaN
/// becomes 0; PyTorch leaves both undefined. A wider integer keeps its low bits (300 as u8 is 44).
/// To bool: x != 0. The gradient is cast back.
Tensor cast(const Tensor& x, DType dtype);
/// x on `device`: x itself if it is there already. The gradient goes back to x's device.
Tensor to_device(const Tensor& x, Device device);
/// A row-major copy; contiguous() returns x itself if it is row-major already.
Tensor clone(const Tensor& x);
Tensor contiguous(const Tensor& x);
/// x with the same shape and axis 1 fastest in memory ("NHWC"): x itself if it is in that order,
/// else a copy. Rank 3 to 5. Elementwise ops, casts, convolutions, pooling and norms by channel
/// keep that order, and so do gradients; contiguous() goes back to row-major order.
Tensor channels_last(const Tensor& x);
/// Overwrites x. fill_, zero_, uniform_ and normal_ are not recorded: they throw Error if x is part
/// of a graph and recording is on. Every in-place op throws if several elements of x share memory
/// (an expanded tensor). It reads operands that share memory with x as they were before the write.
/// fill_ throws if x's dtype cannot hold `value`.
void fill_(const Tensor& x, double value);
void zero_(const Tensor& x);
/// x = src, cast and broadcast to x's shape and dtype. If src requires a gradient and recording is
/// on, the copy is recorded and x becomes part of src's graph: throws Error if x is a view or has
/// another handle, view or saved copy. A copy into an integer dtype has no gradient.
void copy_(const Tensor& x, const Tensor& src);
/// Random numbers, with the limits of rand() and randn(); no gradient.
void uniform_(const Tensor& x, double low, double high, Generator& g = default_generator());
void normal_(const Tensor& x, double mean, double stddev, Generator& g = default_generator());

}  // namespace firn
