// The parts of a convolution on CUDA devices: operands converted to channels-last, the products as
// GEMMs, and the kernels around those. conv.cpp puts them together with cuDNN's products.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/conv.h"
#include "kernels/copy.h"
#include "kernels/cuda/gemm/operand.h"
#include "kernels/plan/conv_sizes.h"
#include "kernels/settings/settings.h"

namespace firn::kernels::cuda {

/// An operand in channels-last order: used in place if it has that order already, else copied.
class ChannelsLast {
 public:
  ChannelsLast(const ConstView& v, Stream stream) : view_(v) {
    if (is_channels_last(v)) return;
    copy_.emplace(v.shape, v.dtype, stream);
    View copy = copy_->view();
    copy.strides = strides_in(v.shape, MemoryFormat::channels_last);
    kernels::copy(v, copy, stream);
    view_ = copy;
  }
  const ConstView& view() const noexcept { return view_; }

 private:
  ConstView view_;
  std::optional<Buffer> copy_;
};

/// A channels-last array of workspace.
class ChannelsLastBuffer {
 public:
  ChannelsLastBuffer(const Shape& shape, DType dtype, Stream stream)
      : memory_(shape, dtype, stream), view_(memory_.view()) {
    view_.strides = strides_in(shape, MemoryFormat::channels_last);
  }
  const View& view() const noexcept { return view_; }

 private:
  Buffer memory_;
  View view_;
};

// ---- As GEMMs. Operands are channels-last and of one dtype. y and dw are channels-last, too; dx
// may have any strides. Only the channels may be empty. ----

void im2col_forward(const ConstView& x, const ConstView& w, const ConstView& bias, bool relu,
                    const ConvGeometry& geometry, const View& y, Stream stream);
void im2col_data_gradient(const ConstView& dy, const ConstView& w, const ConvGeometry& geometry,
                          const View& dx, float beta, Stream stream);
void im2col_weight_gradient(const ConstView& dy, const ConstView& x, const ConvGeometry& geometry,
                            const View& dw, float beta, Stream stream);

// ---- The kernels around those GEMMs, im2col.cu ----

/// Writes rows [begin, end) of the columns of x. Row (n, p, q) holds the element that the tap
/// reads, or 0 in the padding, for each group, r, s and channel of the group. Rows are
/// column_stride() elements apart; the gap between them is not written.
void gather_columns(const ConstView& x, const ConvSizes& sizes, const ConvGeometry& geometry,
                    std::int64_t begin, std::int64_t end, void* columns, Stream stream);
/// dx = beta*dx + the sum of each element's copies in the columns, in the order of the kernel's
/// taps. columns has the compute dtype of dx and all rows of dx's images, column_stride() elements
/// apart.
void sum_columns(const void* columns, const ConvSizes& sizes, const ConvGeometry& geometry,
                 const View& dx, float beta, Stream stream);
/// y = sum + bias, and with `relu` the larger of that and 0. sum [rows, k] of the compute dtype, y
/// [rows, k], both row-major; bias [k] of any floating dtype or data == nullptr.
void add_bias(const void* sum, const ConstView& bias, bool relu, const View& y, Stream stream);

}  // namespace firn::kernels::cuda
