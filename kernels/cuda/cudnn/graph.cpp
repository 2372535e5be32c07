#include "kernels/cuda/cudnn/graph.h"

namespace firn::kernels::cuda {

using gpu::cudnn;
using gpu::Descriptor;

cudnnDataType_t cudnn_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::f16:
      return CUDNN_DATA_HALF;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    case DType::f64:
      return CUDNN_DATA_DOUBLE;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

const Descriptor& CudnnGraph::keep(Descriptor&& part) {
  if (status == CUDNN_STATUS_SUCCESS) status = part.status();
  parts.push_back(std::move(part));
  return parts.back();
}

const Descriptor& CudnnGraph::tensor(const std::vector<std::int64_t>& sizes,
                                     const std::vector<std::int64_t>& strides, cudnnDataType_t type,
                                     std::int64_t uid, CudnnPlace place) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes)
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
  if (place == CudnnPlace::nowhere) d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (place == CudnnPlace::host) d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  d.finalize();
  return keep(std::move(d));
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision,
                           const PointwiseInputs& in, const Descriptor& y) {
  Descriptor function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  if (mode == CUDNN_POINTWISE_RELU_FWD) {
    // ReLU must propagate NaN. The status is not checked: later versions may lack this attribute.
    const cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    cudnn()->cudnnBackendSetAttribute(function.get(), CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
                                      CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
  }
  function.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
  if (in.axis >= 0) function.set(CUDNN_ATTR_POINTWISE_AXIS, in.axis);
  function.finalize();
  Descriptor op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(function)))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, in.x);
  if (in.b) op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *in.b);
  if (in.condition) op.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *in.condition);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y).finalize();
  operation(std::move(op));
}

void CudnnGraph::product(const Descriptor& a, const Descriptor& b, const Descriptor& c) {
  Descriptor function(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  function.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
  Descriptor op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(std::move(function)))
      .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c)
      .finalize();
  operation(std::move(op));
}

void CudnnGraph::reduction(cudnnReduceTensorOp_t fold, const Descriptor& x, const Descriptor& y) {
  Descriptor function(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  function.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &fold)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .finalize();
  Descriptor op(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(std::move(function)))
      .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)
      .finalize();
  operation(std::move(op));
}

void CudnnGraph::reshape(const Descriptor& x, const Descriptor& y) {
  Descriptor op(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y)
      .finalize();
  operation(std::move(op));
}

}  // namespace firn::kernels::cuda
