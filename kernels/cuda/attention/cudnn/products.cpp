#include "kernels/cuda/attention/cudnn/products.h"

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/attention/cudnn/plan.h"
#include "kernels/cuda/device/host.h"
#include "kernels/settings/settings.h"

namespace firn::kernels::cuda {
namespace {

/// Returns strides of the outer axes. Those of an axis with one element mean nothing; the row-major
/// ones make one plan serve all.
SdpaProblem::Layout layout_of(const ConstView& x) {
  SdpaProblem::Layout out{};
  std::int64_t packed = x.shape[3];
  for (int i = 2; i >= 0; --i) {
    out[static_cast<std::size_t>(i)] = x.shape[i] == 1 ? packed : x.strides[i];
    packed *= x.shape[i];
  }
  return out;
}

SdpaProblem problem_of(const ConstView& q, const ConstView& k, const ConstView& v,
                       const ConstView& o, bool causal) {
  SdpaProblem p;
  p.dtype = q.dtype;
  p.b = q.shape[0];
  p.hq = q.shape[1];
  p.hk = k.shape[1];
  p.n = q.shape[2];
  p.m = k.shape[2];
  p.d = q.shape[3];
  p.dv = v.shape[3];
  p.causal = causal;
  p.q = layout_of(q);
  p.k = layout_of(k);
  p.v = layout_of(v);
  p.o = layout_of(o);
  return p;
}

/// The numbers that graphs read from the host.
struct Numbers {
  float scale, hidden = -HUGE_VALF, one = 1;
  std::int32_t keys, queries;

  Numbers(const SdpaProblem& p, double by)
      : scale(static_cast<float>(by)),
        keys(static_cast<std::int32_t>(p.m)),
        queries(static_cast<std::int32_t>(p.n)) {}
  /// Adds those numbers that the problem's graph has.
  void add_to(std::vector<CudnnTensorAt>& tensors, const SdpaProblem& p) const {
    tensors.push_back({kScale, &scale});
    if (p.backward) tensors.push_back({kOne, &one});
    if (p.causal) tensors.push_back({kHidden, &hidden});
    if (p.causal && p.n != p.m) {
      tensors.push_back({kKeys, &keys});
      tensors.push_back({kQueries, &queries});
    }
  }
};

/// True if the problem's sums have one order on this device. On Blackwell cuDNN has an engine for
/// that, but its order of preference does not lead to it.
bool is_ordered(const SdpaProblem& p, Device device, const char* op) {
  if (!p.backward || p.nondeterministic) return true;
  int major = 0;
  gpu::check_cuda(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, int{device.index}), op,
      "cudaDeviceGetAttribute");
  return major < 10;
}

const CudnnPlan* plan_for(const SdpaProblem& p, Stream stream, const char* op) {
  return cudnn_plan(
      p.key(),
      [&](const CudnnTarget& target) {
        return is_ordered(p, stream.device, op) ? make_sdpa_plan(p, target) : CudnnPlan{};
      },
      stream, op);
}

/// Returns the largest divisor of `count` that is at most `most`, and at least 1.
std::int64_t part_of(std::int64_t count, std::int64_t most) {
  std::int64_t part = count;
  while (part > 1 && (part > most || count % part != 0)) --part;
  return part;
}

/// Cuts the batch and the key heads that run at a time. Their pairs must fit into a plan's
/// workspace together with the gradients of each query head's keys. Returns false if one is too
/// many.
bool cut(SdpaProblem& p) {
  if (p.nondeterministic) return true;
  constexpr std::int64_t kSpare = std::int64_t{1} << 20;
  const auto up = [](std::int64_t x, std::int64_t step) { return (x + step - 1) / step * step; };
  const std::int64_t group = p.hq / p.hk;
  const std::int64_t of_key_head =
      group * (2 * up(p.n, 64) * up(p.m, 128) + (group > 1 ? 4 * p.m * (p.d + p.dv) : 0));
  const std::int64_t heads = (kCudnnWorkspace - kSpare) / of_key_head;
  if (heads < 1) return false;
  if (heads < p.hk) {
    p.b = 1;
    p.hk = part_of(p.hk, heads);
    p.hq = p.hk * group;
  } else {
    p.b = part_of(p.b, heads / p.hk);
  }
  return true;
}

}  // namespace

bool cudnn_attention(const ConstView& q, const ConstView& k, const ConstView& v, double scale,
                     bool causal, const View& o, const View& log_sum_exp, Stream stream) {
  constexpr const char* kOp = "cudnn_attention";
  if (!cudnn_takes({q.data, k.data, v.data, o.data, log_sum_exp.data})) return false;
  SdpaProblem p = problem_of(q, k, v, o, causal);
  p.log_sum_exp = log_sum_exp.data != nullptr;
  const CudnnPlan* const plan = plan_for(p, stream, kOp);
  if (!plan) return false;
  const Numbers numbers(p, scale);
  std::vector<CudnnTensorAt> tensors = {{kQ, q.data}, {kK, k.data}, {kV, v.data}, {kO, o.data}};
  if (p.log_sum_exp) tensors.push_back({kLogSumExp, log_sum_exp.data});
  numbers.add_to(tensors, p);
  cudnn_execute(*plan, tensors, stream, kOp);
  return true;
}

bool cudnn_attention_backward(const ConstView& dout, const ConstView& q, const ConstView& k,
                              const ConstView& v, const ConstView& o, const ConstView& log_sum_exp,
                              double scale, bool causal, const View& dq, const View& dk,
                              const View& dv, Stream stream) {
  constexpr const char* kOp = "cudnn_attention_backward";
  if (!cudnn_takes({dout.data, q.data, k.data, v.data, o.data, log_sum_exp.data, dq.data, dk.data,
                    dv.data})) {
    return false;
  }
  SdpaProblem p = problem_of(q, k, v, o, causal);
  p.backward = true;
  p.dout = layout_of(dout);
  p.dq = layout_of(dq);
  p.dk = layout_of(dk);
  p.dv_layout = layout_of(dv);
  p.nondeterministic = nondeterministic_switch().load(std::memory_order_relaxed);
  if (!cut(p)) return false;
  const bool whole = p.b == q.shape[0] && p.hk == k.shape[1];
  const std::int64_t rows = p.b * p.hq * p.n;
  if (!whole && rows % 4 != 0) return false;  // log_sum_exp of the next part is not aligned
  const CudnnPlan* const plan = plan_for(p, stream, kOp);
  if (!plan) return false;

  const Numbers numbers(p, scale);
  const runtime::Workspace delta(static_cast<std::size_t>(rows) * sizeof(float), stream);
  const runtime::Workspace dq_sum(
      p.nondeterministic ? static_cast<std::size_t>(rows * p.d) * sizeof(float) : 0, stream);
  for (std::int64_t b = 0; b < q.shape[0]; b += p.b) {
    for (std::int64_t h = 0; h < k.shape[1]; h += p.hk) {
      const std::int64_t hq = h * (p.hq / p.hk);
      const auto part = [&](const ConstView& x, std::int64_t head) -> const void* {
        return x.as<std::uint16_t>() + b * x.strides[0] + head * x.strides[1];
      };
      std::vector<CudnnTensorAt> tensors = {
          {kQ, part(q, hq)},
          {kK, part(k, h)},
          {kV, part(v, h)},
          {kO, part(o, hq)},
          {kDq, part(dq, hq)},
          {kDk, part(dk, h)},
          {kDv, part(dv, h)},
          {kDout, part(dout, hq)},
          {kLogSumExp, log_sum_exp.as<float>() + (b * q.shape[1] + hq) * p.n},
          {kDelta, delta.data()},
      };
      if (p.nondeterministic) tensors.push_back({kDqSum, dq_sum.data()});
      numbers.add_to(tensors, p);
      cudnn_execute(*plan, tensors, stream, kOp);
    }
  }
  return true;
}

}  // namespace firn::kernels::cuda
