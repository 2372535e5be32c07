#include "kernels/cuda/conv/cudnn/plan.h"

#include <algorithm>

namespace firn::kernels::cuda {
namespace {

using gpu::cudnn;
using gpu::Descriptor;

cudnnDataType_t data_type(DType t) {
  switch (t) {
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

// ---- The graph ----

/// Virtual tensors between two operations, never in memory.
enum Between : std::int64_t { kSum = 100, kAdded };

/// Tensors and operations of one graph, kept until its plan is made.
struct Graph {
  std::vector<Descriptor> parts;
  std::vector<cudnnBackendDescriptor_t> operations;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

  const Descriptor& keep(Descriptor&& d) {
    if (status == CUDNN_STATUS_SUCCESS) status = d.status();
    parts.push_back(std::move(d));
    return parts.back();
  }
  void operation(Descriptor&& d) { operations.push_back(keep(std::move(d)).get()); }
};

/// Channels-last.
Descriptor tensor(const std::array<std::int64_t, 4>& sizes, DType dtype, std::int64_t uid) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(dtype))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::vector(sizes.begin(), sizes.end()))
      .set(CUDNN_ATTR_TENSOR_STRIDES,
           {sizes[1] * sizes[2] * sizes[3], 1, sizes[1] * sizes[3], sizes[1]})
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
  if (uid == kSum || uid == kAdded) d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  d.finalize();
  return d;
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

/// y = x + b, or y = max(x, 0) without a b.
void pointwise(Graph& graph, cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b,
               const Descriptor& y) {
  Descriptor function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  // relu must propagate NaN. The status is not checked: later versions may lack this attribute.
  const cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
  cudnn()->cudnnBackendSetAttribute(function.get(), CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
                                    CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
  function.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
      .finalize();
  Descriptor op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, graph.keep(std::move(function)))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b) op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y).finalize();
  graph.operation(std::move(op));
}

void add_forward(Graph& graph, const ConvProblem& p) {
  const bool last = !p.bias && !p.relu;
  const Descriptor& x = graph.keep(tensor(p.x, p.operands, kFirst));
  const Descriptor& w = graph.keep(tensor(p.w, p.operands, kSecond));
  const Descriptor& y = graph.keep(tensor(p.y, p.result, kResult));
  const Descriptor& sum = last ? y : graph.keep(tensor(p.y, DType::f32, kSum));
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
    const Descriptor& bias = graph.keep(tensor({1, p.y[1], 1, 1}, p.operands, kBias));
    const Descriptor& added = p.relu ? graph.keep(tensor(p.y, DType::f32, kAdded)) : y;
    pointwise(graph, CUDNN_POINTWISE_ADD, sum, &bias, added);
    before_relu = &added;
  }
  if (p.relu) pointwise(graph, CUDNN_POINTWISE_RELU_FWD, *before_relu, nullptr, y);
}

void add_data_gradient(Graph& graph, const ConvProblem& p) {
  const Descriptor& dy = graph.keep(tensor(p.y, p.operands, kFirst));
  const Descriptor& w = graph.keep(tensor(p.w, p.operands, kSecond));
  const Descriptor& dx = graph.keep(tensor(p.x, p.result, kResult));
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
void add_weight_gradient(Graph& graph, const ConvProblem& p) {
  const bool fused = p.result != p.operands;
  const Descriptor& dy = graph.keep(tensor(p.y, p.operands, kFirst));
  const Descriptor& x = graph.keep(tensor(p.x, p.operands, kSecond));
  const Descriptor& dw = graph.keep(tensor(p.w, p.result, kResult));
  const Descriptor& sum = fused ? graph.keep(tensor(p.w, DType::f32, kSum)) : dw;
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
    const Descriptor& before = graph.keep(tensor(p.w, p.result, kBias));
    pointwise(graph, CUDNN_POINTWISE_ADD, sum, &before, dw);
  } else {
    pointwise(graph, CUDNN_POINTWISE_IDENTITY, sum, nullptr, dw);
  }
}

// ---- Engines ----

/// Why an engine does not compute what the problem asks for; empty if it does.
std::string reason_against(const ConvProblem& p,
                           const std::vector<cudnnBackendNumericalNote_t>& notes) {
  for (const cudnnBackendNumericalNote_t note : notes) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        if (p.operands == DType::f32 && !p.tf32) return "TF32";
        break;
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        if (!p.nondeterministic) return "not deterministic";
        break;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        return "rounds its operands";
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        return "sums in 16 bits";
      case CUDNN_NUMERICAL_NOTE_FFT:
        return "Fourier transform";
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return "Winograd's transform";
      default:
        break;
    }
  }
  return {};
}

/// The library's configurations for a graph, best first; empty if it does not support the graph.
std::vector<Descriptor> configurations(const Descriptor& graph, cudnnBackendHeurMode_t mode,
                                       const ConvTarget& target) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (target.device) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
  heuristics.finalize();
  if (!heuristics.ok()) return {};
  std::int64_t count = 0;
  if (cudnn()->cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                                        nullptr) != CUDNN_STATUS_SUCCESS) {
    return {};
  }
  std::vector<Descriptor> out;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    out.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(out.back().get());
  }
  if (cudnn()->cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                                        raw.data()) != CUDNN_STATUS_SUCCESS) {
    return {};
  }
  out.erase(out.begin() + std::min<std::int64_t>(count, static_cast<std::int64_t>(out.size())),
            out.end());
  return out;
}

/// Makes `out` from one configuration. Returns why that is impossible, or "".
std::string try_configuration(const ConvProblem& p, const ConvTarget& target,
                              const Descriptor& configuration, ConvAttempt& attempt,
                              ConvPlan& out) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  std::int64_t count = 0;
  if (cudnn()->cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                        &raw) != CUDNN_STATUS_SUCCESS) {
    return "no engine";
  }
  const auto index =
      engine.values<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1);
  if (!index.empty()) attempt.engine = index[0];
  const auto behaviour = engine.values<cudnnBackendBehaviorNote_t>(
      CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  attempt.compiled_at_run_time =
      std::find(behaviour.begin(), behaviour.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) !=
      behaviour.end();
  const auto notes = engine.values<cudnnBackendNumericalNote_t>(
      CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  attempt.strict_nan =
      std::find(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP) != notes.end();
  if (auto why = reason_against(p, notes); !why.empty()) return why;

  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (target.handle) {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  }
  if (target.device) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.device);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration).finalize();
  if (!plan.ok()) {
    std::string why = gpu::describe(plan.status());
    const bool compiled = attempt.compiled_at_run_time && !target.handle &&
                          why.find("cuLibraryLoadData") != std::string::npos;
    if (!compiled) return why;
    out.found = true;
    out.workspace = -1;
    out.engine = attempt.engine;
    return {};
  }
  const auto workspace =
      plan.values<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1);
  if (workspace.empty()) return "does not tell its workspace";
  if (workspace[0] > kConvWorkspace) {
    return "workspace of " + std::to_string(workspace[0]) + " bytes";
  }
  out.found = true;
  out.plan = std::move(plan);
  out.workspace = workspace[0];
  out.engine = attempt.engine;
  return {};
}

}  // namespace

ConvProblem::Key ConvProblem::key() const noexcept {
  Key key = {static_cast<std::int64_t>(product), static_cast<std::int64_t>(operands),
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

ConvPlan make_conv_plan(const ConvProblem& p, const ConvTarget& target) {
  ConvPlan out;
  Graph graph;
  graph.parts.reserve(16);  // references to parts stay valid
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
  Descriptor whole(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target.handle) {
    whole.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  }
  whole
      .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
           static_cast<std::int64_t>(graph.operations.size()), graph.operations.data())
      .finalize();
  if (graph.status != CUDNN_STATUS_SUCCESS || !whole.ok()) {
    const auto status = graph.status != CUDNN_STATUS_SUCCESS ? graph.status : whole.status();
    ConvAttempt refused;
    refused.outcome = "graph: " + gpu::describe(status);
    out.attempts.push_back(std::move(refused));
    return out;
  }
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Descriptor& configuration : configurations(whole, mode, target)) {
      ConvAttempt attempt;
      attempt.outcome = try_configuration(p, target, configuration, attempt, out);
      out.attempts.push_back(std::move(attempt));
      if (out.found) return out;
    }
  }
  return out;
}

}  // namespace firn::kernels::cuda
