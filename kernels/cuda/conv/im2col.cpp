// The products of a convolution as GEMMs. In channels-last memory, images are rows of channels, and
// the weight [k, c/groups, r, s] is stored as a matrix [k, r*s*c/groups]:
//
//   y = columns w^T        dw = dy^T columns        columns of dx = dy w
//
// If the kernel has one tap that reads every element once, the images themselves are the columns.
// Groups are a batch of GEMMs that share rows. Columns are gathered in chunks of rows that depend
// on shapes and dtype alone.
#include <algorithm>

#include "kernels/cuda/conv/parts.h"
#include "kernels/dense.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace firn::kernels::cuda {
namespace {

/// True if the columns are the images.
bool is_pointwise(const ConvSizes& s, const ConvGeometry& g) {
  const std::array<std::int64_t, 2> none{0, 0}, one{1, 1};
  return s.r == 1 && s.s == 1 && g.stride == one && g.before == none && g.after == none &&
         s.p == s.h && s.q == s.w;
}

/// Memory seen as a matrix [rows, cols] for each group, or as one matrix if there are no groups.
struct Matrices {
  std::int64_t groups, rows, cols, group_stride, row_stride;

  View of(const View& memory, std::int64_t first_element) const {
    View v = memory;
    v.data = static_cast<char*>(v.data) +
             first_element * static_cast<std::int64_t>(size_of(memory.dtype));
    v.shape = groups == 1 ? Shape{rows, cols} : Shape{groups, rows, cols};
    v.strides = groups == 1 ? Strides{row_stride, 1} : Strides{group_stride, row_stride, 1};
    return v;
  }
  ConstView of(const ConstView& memory, std::int64_t first_element) const {
    return of(View{const_cast<void*>(memory.data), memory.dtype, memory.device, memory.shape,
                   memory.strides},
              first_element);
  }
};

/// Memory as matrices: rows of the columns of x, of x itself if it is its own columns, of y, and
/// the weight.
Matrices column_rows(const ConvSizes& s, std::int64_t rows, DType dtype) {
  return {s.groups(), rows, s.column(), s.column(), s.column_stride(dtype)};
}
Matrices image_rows(const ConvSizes& s) {
  return {s.groups(), s.rows(), s.channels(), s.channels(), s.c};
}
Matrices result_rows(const ConvSizes& s, std::int64_t rows) {
  return {s.groups(), rows, s.kernels(), s.kernels(), s.k};
}
Matrices weights(const ConvSizes& s) {
  return {s.groups(), s.kernels(), s.column(), s.kernels() * s.column(), s.column()};
}

/// Number of rows at a time whose columns need no more than column_bytes(). It is a multiple of 64,
/// so that later chunks are as aligned as the first.
std::int64_t chunk_rows(const ConvSizes& s, DType dtype) {
  const auto row = static_cast<std::size_t>(s.column_stride(dtype)) * size_of(dtype);
  const auto fit = static_cast<std::int64_t>(column_bytes() / std::max<std::size_t>(row, 1));
  return std::clamp<std::int64_t>(fit / 64 * 64, 64, std::max<std::int64_t>(s.rows(), 64));
}

/// Calls fn(columns of rows [begin, end), begin, end) for every chunk of rows, in order.
template <class Fn>
void for_each_chunk(const ConstView& x, const ConvSizes& s, const ConvGeometry& geometry,
                    Stream stream, Fn&& fn) {
  if (is_pointwise(s, geometry)) return fn(image_rows(s).of(x, 0), 0, s.rows());
  const std::int64_t chunk = std::min(chunk_rows(s, x.dtype), s.rows());
  const Buffer columns({chunk, s.column_stride(x.dtype)}, x.dtype, stream);
  for (std::int64_t begin = 0; begin < s.rows(); begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, s.rows());
    gather_columns(x, s, geometry, begin, end, columns.view().data, stream);
    fn(column_rows(s, end - begin, x.dtype).of(ConstView(columns.view()), 0), begin, end);
  }
}

}  // namespace

void im2col_forward(const ConstView& x, const ConstView& w, const ConstView& bias, bool relu,
                    const ConvGeometry& geometry, const View& y, Stream stream) {
  const ConvSizes s = ConvSizes::of(x, w, y, geometry);
  const ConstView kernels = weights(s).of(w, 0);
  for_each_chunk(x, s, geometry, stream,
                 [&](const ConstView& columns, std::int64_t begin, std::int64_t end) {
                   const View rows = result_rows(s, end - begin).of(y, begin * s.k);
                   if (s.groups() == 1) {
                     return cuda::dense_forward(columns, kernels, bias,
                                                relu ? Activation::relu : Activation::none, rows,
                                                View{}, stream);
                   }
                   if (!bias.data && !relu) {
                     return cuda::gemm(columns, transposed(kernels), rows, {}, stream);
                   }
                   // The bias differs between the GEMMs of a batch, and a sum is rounded once.
                   const Buffer sum({end - begin, s.k}, compute_dtype(y.dtype), stream);
                   cuda::gemm(columns, transposed(kernels),
                              result_rows(s, end - begin).of(sum.view(), 0), {}, stream);
                   View flat = rows;
                   flat.shape = {end - begin, s.k};
                   flat.strides = {s.k, 1};
                   add_bias(sum.view().data, bias, relu, flat, stream);
                 });
}

void im2col_data_gradient(const ConstView& dy, const ConstView& w, const ConvGeometry& geometry,
                          const View& dx, float beta, Stream stream) {
  const ConvSizes s = ConvSizes::of(dx, w, dy, geometry);
  const ConstView kernels = weights(s).of(w, 0);
  if (is_pointwise(s, geometry) && is_channels_last(dx)) {
    const View rows = image_rows(s).of(dx, 0);
    return cuda::gemm(result_rows(s, s.rows()).of(dy, 0), kernels, rows,
                      {.alpha = 1, .beta = beta, .bias = {}}, stream);
  }
  // Chunks are whole images, at least one, because an element of dx adds up several rows.
  const DType wide = compute_dtype(dx.dtype);
  const std::int64_t images = std::clamp<std::int64_t>(chunk_rows(s, wide) / s.positions(), 1, s.n);
  const Buffer columns({images * s.positions(), s.column_stride(wide)}, wide, stream);
  for (std::int64_t begin = 0; begin < s.n; begin += images) {
    ConvSizes part = s;
    part.n = std::min(images, s.n - begin);
    cuda::gemm(result_rows(s, part.rows()).of(dy, begin * s.positions() * s.k), kernels,
               column_rows(s, part.rows(), wide).of(columns.view(), 0), {}, stream);
    View to = dx;
    to.shape[0] = part.n;
    to.data = static_cast<char*>(dx.data) +
              begin * dx.strides[0] * static_cast<std::int64_t>(size_of(dx.dtype));
    sum_columns(columns.view().data, part, geometry, to, beta, stream);
  }
}

void im2col_weight_gradient(const ConstView& dy, const ConstView& x, const ConvGeometry& geometry,
                            const View& dw, float beta, Stream stream) {
  const ConvSizes s = ConvSizes::of(x, dw, dy, geometry);
  const bool several = !is_pointwise(s, geometry) && s.rows() > chunk_rows(s, x.dtype);
  if (several && dw.dtype != compute_dtype(dw.dtype)) {  // chunks are summed, then rounded
    const ChannelsLastBuffer sum(dw.shape, compute_dtype(dw.dtype), stream);
    im2col_weight_gradient(dy, x, geometry, sum.view(), 0, stream);
    return kernels::axpby(1.0, sum.view(), beta, dw, stream);
  }
  const View gradient = weights(s).of(dw, 0);
  for_each_chunk(x, s, geometry, stream,
                 [&](const ConstView& columns, std::int64_t begin, std::int64_t end) {
                   const ConstView rows = result_rows(s, end - begin).of(dy, begin * s.k);
                   cuda::gemm(transposed(rows), columns, gradient,
                              {.alpha = 1, .beta = begin == 0 ? beta : 1, .bias = {}}, stream);
                 });
}

}  // namespace firn::kernels::cuda
