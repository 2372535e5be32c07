// The two functions of kernels/cuda/attention/cudnn/products.h for the simulator: reference loops
// in stream order. They refuse what cuDNN refuses, and keep what firn has to live with: hidden
// values are multiplied by 0, so their NaN leaks, and a row of scores -inf has a log_sum_exp of
// -inf. They throw where firn breaks their contract. CUSIM_CUDNN=0: cuDNN is not installed.
#include <cmath>
#include <cstdlib>
#include <set>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "check/check.h"
#include "cusim.h"
#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/attention/cudnn/products.h"

namespace firn::kernels::cuda {
namespace {

struct Call {
  ConstView q, k, v, o, log_sum_exp;
  float scale;
  bool causal;
  ConstView dout = {}, dq = {}, dk = {}, dv = {};  ///< of the backward pass

  std::vector<ConstView> arrays() const {
    if (!dout.data) return {q, k, v, o};
    return {q, k, v, o, dout, dq, dk, dv};
  }
};

constexpr const char* kFault = "this is a fault of firn";

void check_contract(const Call& c) {
  FIRN_CHECK(c.q.dtype == DType::f16 || c.q.dtype == DType::bf16, "cudnn", kFault, "got {}",
             to_string(c.q.dtype));
  FIRN_CHECK(c.scale > 0 && (!c.causal || c.q.shape[2] <= c.k.shape[2]), "cudnn", kFault,
             "got scale {}, causal {}, q {}", c.scale, c.causal, to_string(c.q.shape));
  for (const ConstView& x : c.arrays()) {
    std::int64_t last = x.shape[3] - 1;
    bool fits = x.dtype == c.q.dtype && x.numel() > 0 && x.strides[3] == 1 && x.shape[3] % 8 == 0;
    for (int i = 0; i < 3; ++i) {
      last += (x.shape[i] - 1) * x.strides[i];
      fits = fits && (x.shape[i] == 1 || (x.strides[i] > 0 && x.strides[i] % 8 == 0));
    }
    const auto bytes = static_cast<std::size_t>(last + 1) * size_of(x.dtype);
    FIRN_CHECK(fits && cusim::is_device_range(x.data, bytes), "cudnn", kFault,
               "got a view {} with strides {}", to_string(x.shape), to_string(x.strides));
  }
}

bool takes(const Call& c) {
  const char* installed = std::getenv("CUSIM_CUDNN");
  if (installed && std::string_view(installed) == "0") return false;
  for (const ConstView& x : c.arrays())
    if (reinterpret_cast<std::uintptr_t>(x.data) % 16 != 0 || x.shape[3] > 256) return false;
  return true;
}

/// Throws where the thread is recording and has not met the problem before.
void note_problem(const Call& c, const char* op, Device device) {
  static thread_local std::set<std::vector<std::int64_t>> known;
  std::vector<std::int64_t> key = {device.index, c.causal, c.log_sum_exp.data != nullptr};
  for (const ConstView& x : c.arrays()) {
    key.insert(key.end(), x.shape.begin(), x.shape.end());
    key.insert(key.end(), x.strides.begin(), x.strides.end());
  }
  if (known.contains(key)) return;
  runtime::refuse_capture(op, device, "cuDNN has no plan for this shape yet: run the step once");
  known.insert(key);
}

template <class T>
void compute(const Call& c) {
  const auto row = [](const ConstView& x, std::int64_t b, std::int64_t h, std::int64_t i) {
    return const_cast<T*>(x.as<T>()) + b * x.strides[0] + h * x.strides[1] + i * x.strides[2];
  };
  const auto dot = [](const T* x, const T* y, std::int64_t depth) {
    float sum = 0;
    for (std::int64_t e = 0; e < depth; ++e)
      sum += static_cast<float>(x[e]) * static_cast<float>(y[e]);
    return sum;
  };
  const auto put = [](T* to, const float* from, std::int64_t depth) {
    for (std::int64_t e = 0; e < depth; ++e) to[e] = static_cast<T>(from[e]);
    cusim::check::wrote(to, static_cast<std::size_t>(depth) * sizeof(T));
  };
  const auto add = [](std::vector<float>& to, std::int64_t at, float w, const T* x,
                      std::int64_t depth) {
    for (std::int64_t e = 0; e < depth; ++e)
      to[static_cast<std::size_t>(at * depth + e)] += w * static_cast<float>(x[e]);
  };
  const auto rounded = [](float x) { return static_cast<float>(static_cast<T>(x)); };
  const std::int64_t heads = c.q.shape[1], group = heads / c.k.shape[1], n = c.q.shape[2],
                     m = c.k.shape[2], d = c.q.shape[3], dv = c.v.shape[3];
  float* const log_sum_exp = const_cast<float*>(c.log_sum_exp.as<float>());
  std::vector<float> p(static_cast<std::size_t>(m)), dk, dv_sum;
  for (std::int64_t b = 0; b < c.q.shape[0]; ++b)
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t hk = h / group;
      if (h % group == 0) {
        dk.assign(static_cast<std::size_t>(m * d), 0);
        dv_sum.assign(static_cast<std::size_t>(m * dv), 0);
      }
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t number = (b * heads + h) * n + i;
        float max = -HUGE_VALF, sum = 0;
        for (std::int64_t j = 0; j < m; ++j) {
          float& score = p[static_cast<std::size_t>(j)];
          score = c.scale * dot(row(c.q, b, h, i), row(c.k, b, hk, j), d);
          if (c.causal && j > i + m - n) score = -HUGE_VALF;
          if (score > max) max = score;
        }
        std::vector<float> out(static_cast<std::size_t>(std::max(d, dv)));
        if (!c.dout.data) {
          const float shift = max == -HUGE_VALF ? 0 : max;
          for (float& x : p) sum += x = std::exp(x - shift);
          for (std::int64_t j = 0; j < m; ++j)
            add(out, 0, rounded(p[static_cast<std::size_t>(j)]), row(c.v, b, hk, j), dv);
          for (float& x : out) x = sum == 0 ? x * 0 : x / sum;
          put(row(c.o, b, h, i), out.data(), dv);
          if (!log_sum_exp) continue;
          log_sum_exp[number] = sum == 0 ? -HUGE_VALF : max + std::log(sum);
          cusim::check::wrote(log_sum_exp + number, sizeof(float));
          continue;
        }
        const float stored = log_sum_exp[number], shift = stored == -HUGE_VALF ? 0 : stored;
        const float delta = dot(row(c.dout, b, h, i), row(c.o, b, h, i), dv);
        for (std::int64_t j = 0; j < m; ++j) {
          const float share = std::exp(p[static_cast<std::size_t>(j)] - shift);
          const float dp = dot(row(c.dout, b, h, i), row(c.v, b, hk, j), dv);
          const float ds = rounded(c.scale * share * (dp - delta));
          add(dv_sum, j, rounded(share), row(c.dout, b, h, i), dv);
          add(dk, j, ds, row(c.q, b, h, i), d);
          add(out, 0, ds, row(c.k, b, hk, j), d);
        }
        put(row(c.dq, b, h, i), out.data(), d);
      }
      for (std::int64_t j = 0; j < m && c.dout.data && (h + 1) % group == 0; ++j) {
        put(row(c.dk, b, hk, j), dk.data() + j * d, d);
        put(row(c.dv, b, hk, j), dv_sum.data() + j * dv, dv);
      }
    }
}

bool run(const Call& c, const char* op, Stream stream) {
  if (runtime::dry_run()) return takes(c);  // the operands may lie in no memory
  check_contract(c);
  if (!takes(c)) return false;
  note_problem(c, op, stream.device);
  FIRN_CHECK(!cusim::api_call("cudnnBackendExecute"), op, "", "cudnnBackendExecute failed");
  cusim::enqueue(static_cast<cudaStream_t>(stream.handle), [c] {
    const cusim::DeviceAccess open;
    c.q.dtype == DType::f16 ? compute<half>(c) : compute<bfloat16>(c);
  });
  runtime::note_kernel(op);
  return true;
}

}  // namespace

bool cudnn_attention(const ConstView& q, const ConstView& k, const ConstView& v, double scale,
                     bool causal, const View& o, const View& log_sum_exp, Stream stream) {
  return run({q, k, v, o, log_sum_exp, static_cast<float>(scale), causal}, "cudnn_attention",
             stream);
}

bool cudnn_attention_backward(const ConstView& dout, const ConstView& q, const ConstView& k,
                              const ConstView& v, const ConstView& o, const ConstView& log_sum_exp,
                              double scale, bool causal, const View& dq, const View& dk,
                              const View& dv, Stream stream) {
  return run({q, k, v, o, log_sum_exp, static_cast<float>(scale), causal, dout, dq, dk, dv},
             "cudnn_attention_backward", stream);
}

}  // namespace firn::kernels::cuda
