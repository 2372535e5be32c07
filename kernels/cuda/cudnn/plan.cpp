#include "kernels/cuda/cudnn/plan.h"

#include <algorithm>

namespace firn::kernels::cuda {
namespace {

using gpu::cudnn;
using gpu::Descriptor;

/// Returns why an engine may not be used; empty if it may.
std::string reason_against(const CudnnNumerics& may,
                           const std::vector<cudnnBackendNumericalNote_t>& notes) {
  for (const cudnnBackendNumericalNote_t note : notes) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        if (!may.tensor_cores) return "TF32";
        break;
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        if (!may.nondeterministic) return "not deterministic";
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

/// Returns the library's configurations for a graph, best first; empty if it does not support the
/// graph.
std::vector<Descriptor> configurations(const Descriptor& graph, cudnnBackendHeurMode_t mode,
                                       const CudnnTarget& target) {
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
std::string try_configuration(const CudnnNumerics& may, const CudnnTarget& target,
                              const Descriptor& configuration, CudnnAttempt& attempt,
                              CudnnPlan& out) {
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
  if (auto why = reason_against(may, notes); !why.empty()) return why;

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
  if (workspace[0] > kCudnnWorkspace) {
    return "workspace of " + std::to_string(workspace[0]) + " bytes";
  }
  out.found = true;
  out.plan = std::move(plan);
  out.workspace = workspace[0];
  out.engine = attempt.engine;
  return {};
}

}  // namespace

CudnnPlan make_plan(const CudnnGraph& graph, const CudnnTarget& target, const CudnnNumerics& may) {
  CudnnPlan out;
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
    CudnnAttempt refused;
    refused.outcome = "graph: " + gpu::describe(status);
    out.attempts.push_back(std::move(refused));
    return out;
  }
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Descriptor& configuration : configurations(whole, mode, target)) {
      CudnnAttempt attempt;
      attempt.outcome = try_configuration(may, target, configuration, attempt, out);
      out.attempts.push_back(std::move(attempt));
      if (out.found) return out;
    }
  }
  return out;
}

}  // namespace firn::kernels::cuda
