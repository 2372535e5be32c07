#include "kernels/cuda/conv/cudnn/plan.h"

namespace firn::kernels::cuda {
namespace {

using gpu::Descriptor;

/// Virtual tensors between two operations.
enum Between : std::int64_t { kSum = 100, kAdded };

/// Adds a channels-last tensor to the graph.
const Descriptor& tensor(CudnnGraph& graph, const std::array<std::int64_t, 4>& sizes, DType dtype,
                         std::int64_t uid) {
  const bool between = uid == kSum || uid == kAdded;
  return graph.tensor({sizes.begin(), sizes.end()},
                      {sizes[1] * sizes[2] * sizes[3], 1, sizes[1] * sizes[3], sizes[1]},
                      cudnn_type(dtype), uid, between ? CudnnPlace::nowhere : CudnnPlace::memory);
}

Descriptor convolution(const ConvGeometry& g) {
  const auto pair = [](const std::array<std::int64_t, 2>& a) {
    return std::vector<std::int64_t>(a.begin(), a.end());
  };
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  Descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, pair(g.dilation))
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, pair(g.stride))
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pair(g.before))
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, pair(g.after))
      .finalize();
  return d;
}

void add_forward(CudnnGraph& graph, const ConvProblem& p) {
  const bool last = !p.bias && !p.relu;
  const Descriptor& x = tensor(graph, p.x, p.operands, kFirst);
  const Descriptor& w = tensor(graph, p.w, p.operands, kSecond);
  const Descriptor& y = tensor(graph, p.y, p.result, kResult);
  const Descriptor& sum = last ? y : tensor(graph, p.y, DType::f32, kSum);
  Descriptor op(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, graph.keep(convolution(p.geometry)))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, sum)
      .finalize();
  graph.operation(std::move(op));
  const Descriptor* before_relu = &sum;
  if (p.bias) {
    const Descriptor& bias = tensor(graph, {1, p.y[1], 1, 1}, p.operands, kBias);
    const Descriptor& added = p.relu ? tensor(graph, p.y, DType::f32, kAdded) : y;
    graph.pointwise(CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, {sum, &bias}, added);
    before_relu = &added;
  }
  if (p.relu) graph.pointwise(CUDNN_POINTWISE_RELU_FWD, CUDNN_DATA_FLOAT, {*before_relu}, y);
  ;
}

void add_data_gradient(CudnnGraph& graph, const ConvProblem& p) {
  const Descriptor& dy = tensor(graph, p.y, p.operands, kFirst);
  const Descriptor& w = tensor(graph, p.w, p.operands, kSecond);
  const Descriptor& dx = tensor(graph, p.x, p.result, kResult);
  Descriptor op(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, p.add ? 1.0 : 0.0)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, graph.keep(convolution(p.geometry)))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx)
      .finalize();
  graph.operation(std::move(op));
}

/// cuDNN supports a result of another dtype than the operands' only with a separate pointwise
/// operation. The gradient is then virtual, and the old values are added to it.
void add_weight_gradient(CudnnGraph& graph, const ConvProblem& p) {
  const bool fused = p.result != p.operands;
  const Descriptor& dy = tensor(graph, p.y, p.operands, kFirst);
  const Descriptor& x = tensor(graph, p.x, p.operands, kSecond);
  const Descriptor& dw = tensor(graph, p.w, p.result, kResult);
  const Descriptor& sum = fused ? tensor(graph, p.w, DType::f32, kSum) : dw;
  Descriptor op(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, p.add && !fused ? 1.0 : 0.0)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
           graph.keep(convolution(p.geometry)))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, sum)
      .finalize();
  graph.operation(std::move(op));
  if (!fused) return;
  if (p.add) {
    const Descriptor& before = tensor(graph, p.w, p.result, kBias);
    graph.pointwise(CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, {sum, &before}, dw);
  } else {
    graph.pointwise(CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, {sum}, dw);
  }
}

}  // namespace

CudnnKey ConvProblem::key() const noexcept {
  CudnnKey key = {static_cast<std::int64_t>(product), static_cast<std::int64_t>(operands),
                  static_cast<std::int64_t>(result),
                  bias + 2 * relu + 4 * add + 8 * tf32 + 16 * nondeterministic, geometry.groups};
  std::size_t i = 5;
  for (const auto* sizes : {&x, &w}) {
    for (const std::int64_t v : *sizes) key[i++] = v;
  }
  for (const std::int64_t v : {y[1], y[2], y[3]}) key[i++] = v;
  for (const auto* pair :
       {&geometry.stride, &geometry.before, &geometry.after, &geometry.dilation}) {
    for (const std::int64_t v : *pair) key[i++] = v;
  }
  return key;
}

std::string to_string(const ConvProblem& p) {
  const auto sizes = [](const std::array<std::int64_t, 4>& s) {
    std::string out;
    for (const std::int64_t v : s) out += (out.empty() ? "[" : ", ") + std::to_string(v);
    return out + "]";
  };
  static constexpr const char* kNames[] = {"forward", "data gradient", "weight gradient"};
  std::string out = std::string(kNames[static_cast<int>(p.product)]) + (p.bias ? " + bias" : "") +
                    (p.relu ? " + relu" : "") + (p.add ? " + add" : "");
  out += " x " + sizes(p.x) + " w " + sizes(p.w) + " y " + sizes(p.y) + " " +
         std::string(firn::to_string(p.operands));
  if (p.result != p.operands) out += " -> " + std::string(firn::to_string(p.result));
  return out + (p.tf32 ? " tf32" : "");
}

CudnnPlan make_conv_plan(const ConvProblem& p, const CudnnTarget& target) {
  CudnnGraph graph;
  switch (p.product) {
    case ConvProduct::forward:
      add_forward(graph, p);
      break;
    case ConvProduct::data_gradient:
      add_data_gradient(graph, p);
      break;
    case ConvProduct::weight_gradient:
      add_weight_gradient(graph, p);
      break;
  }
  return make_plan(graph, target, {p.operands != DType::f32 || p.tf32, p.nondeterministic});
}

}  // namespace firn::kernels::cuda
