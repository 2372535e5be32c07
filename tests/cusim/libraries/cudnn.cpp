// The three functions of kernels/cuda/conv/cudnn/products.h for the simulator: reference loops in
// stream order, one operation of the stream (one node of a graph) a product. They refuse what cuDNN
// refuses, as tests/cudnn_plans has found it, so that firn takes the ways that it takes on a GPU:
//
//   - addresses that are no multiples of 16 bytes;
//   - results of another dtype than the operands', but for the weight gradient in f32, and that
//     only from 8 channels in a group on;
//   - like the library's plans, what has not been run by this thread before cannot be recorded.
//
// They throw where firn breaks their contract: operands that are f64, not channels-last, empty or
// not in one allocation of the device's memory, sizes that do not fit the geometry. CUSIM_CUDNN=0:
// cuDNN is not installed.
#include "kernels/cuda/conv/cudnn/products.h"

#include <cmath>
#include <cstdlib>
#include <set>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "check/check.h"
#include "cusim.h"
#include "firn/runtime/kernel_support.h"

namespace firn::kernels::cuda {
namespace {

bool installed() {
  const char* value = std::getenv("CUSIM_CUDNN");
  return !value || std::string_view(value) != "0";
}

/// One product: x, w and y as the convolution sees them, one of them written.
struct Call {
  ConstView x, w, y;
  ConvGeometry geometry;
  const void* bias = nullptr;
  bool relu = false;
  bool add = false;
  char product;  ///< 'y', 'x' or 'w': what is written
};

bool takes(const Call& c) {
  const auto& result = c.product == 'y' ? c.y : c.product == 'x' ? c.x : c.w;
  const auto& operand = c.product == 'y' ? c.x : c.y;
  if (!installed()) return false;
  for (const void* p : {c.x.data, c.w.data, c.y.data, c.bias})
    if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0) return false;
  if (result.dtype == operand.dtype) return true;
  return c.product == 'w' && result.dtype == DType::f32 && c.w.shape[1] >= kLeastWideChannels;
}

void check_contract(const Call& c) {
  const ConvGeometry& g = c.geometry;
  for (int i = 0; i < 2; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t around = g.before[at] + g.after[at];
    const std::int64_t reach = g.dilation[at] * (c.w.shape[2 + i] - 1);
    FIRN_CHECK(g.before[at] >= 0 && g.after[at] >= 0 &&
                   c.y.shape[2 + i] == (c.x.shape[2 + i] + around - reach - 1) / g.stride[at] + 1,
               "cudnn", "this is a fault of firn", "got x {}, w {} and y {}", to_string(c.x.shape),
               to_string(c.w.shape), to_string(c.y.shape));
  }
  FIRN_CHECK(c.x.dtype != DType::f64, "cudnn", "this is a fault of firn", "got f64");
  for (const ConstView* v : {&c.x, &c.w, &c.y}) {
    FIRN_CHECK(v->numel() > 0 && is_channels_last(*v), "cudnn", "this is a fault of firn",
               "got a view {} with strides {}", to_string(v->shape), to_string(v->strides));
    FIRN_CHECK(
        cusim::is_device_range(v->data, static_cast<std::size_t>(v->numel()) * size_of(v->dtype)),
        "cudnn", "this is a fault of firn", "got a view {} outside of device memory",
        to_string(v->shape));
  }
}

/// Throws where the thread is recording and has not met the problem before.
void note_problem(const Call& c, const char* op, Device device) {
  static thread_local std::set<std::vector<std::int64_t>> known;
  const ConvGeometry& g = c.geometry;
  std::vector<std::int64_t> key = {c.product,
                                   device.index,
                                   c.bias != nullptr,
                                   c.relu,
                                   c.add,
                                   g.groups,
                                   static_cast<std::int64_t>(c.x.dtype),
                                   static_cast<std::int64_t>(c.w.dtype)};
  for (const ConstView* v : {&c.x, &c.w, &c.y})
    key.insert(key.end(), v->shape.begin(), v->shape.end());
  for (const auto* pair : {&g.stride, &g.before, &g.after, &g.dilation})
    key.insert(key.end(), pair->begin(), pair->end());
  if (known.contains(key)) return;
  runtime::refuse_capture(op, device,
                          "cuDNN has no plan for this shape yet: run the step once before");
  known.insert(key);
}

/// A view's elements in the order of its memory, [n, h, w, c].
std::vector<float> load(const ConstView& v) {
  std::vector<float> out(static_cast<std::size_t>(v.numel()));
  visit(v.dtype, [&]<class T>() {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(v.as<T>()[i]);
  });
  return out;
}

/// fn(y's, x's and w's position and the group's count of channels) for every tap that meets the
/// image: positions in memory of the first channel of a group.
template <class Fn>
void for_each_tap(const Call& c, Fn&& fn) {
  const Shape &x = c.x.shape, &w = c.w.shape, &y = c.y.shape;
  const std::int64_t kernels = y[1] / c.geometry.groups;
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t p = 0; p < y[2]; ++p)
      for (std::int64_t q = 0; q < y[3]; ++q)
        for (std::int64_t k = 0; k < y[1]; ++k)
          for (std::int64_t r = 0; r < w[2]; ++r)
            for (std::int64_t s = 0; s < w[3]; ++s) {
              const std::int64_t row =
                  p * c.geometry.stride[0] + r * c.geometry.dilation[0] - c.geometry.before[0];
              const std::int64_t column =
                  q * c.geometry.stride[1] + s * c.geometry.dilation[1] - c.geometry.before[1];
              if (row < 0 || row >= x[2] || column < 0 || column >= x[3]) continue;
              fn(((n * y[2] + p) * y[3] + q) * y[1] + k,
                 ((n * x[2] + row) * x[3] + column) * x[1] + k / kernels * w[1],
                 ((k * w[2] + r) * w[3] + s) * w[1]);
            }
}

void compute(const Call& c) {
  const std::int64_t channels = c.w.shape[1], k = c.y.shape[1];
  const ConstView& target = c.product == 'y' ? c.y : c.product == 'x' ? c.x : c.w;
  std::vector<float> sum(static_cast<std::size_t>(target.numel()));
  const auto product = [&](const std::vector<float>& a, const std::vector<float>& b) {
    for_each_tap(c, [&](std::int64_t y, std::int64_t x, std::int64_t w) {
      for (std::int64_t i = 0; i < channels; ++i) {
        const auto yi = static_cast<std::size_t>(y), xi = static_cast<std::size_t>(x + i),
                   wi = static_cast<std::size_t>(w + i);
        if (c.product == 'y') sum[yi] += a[xi] * b[wi];
        if (c.product == 'x') sum[xi] += a[yi] * b[wi];
        if (c.product == 'w') sum[wi] += a[yi] * b[xi];
      }
    });
  };
  if (c.product == 'y') product(load(c.x), load(c.w));
  if (c.product == 'x') product(load(c.y), load(c.w));
  if (c.product == 'w') product(load(c.y), load(c.x));

  std::vector<float> bias;
  if (c.bias) bias = load({c.bias, c.x.dtype, Device(), {k}, {1}});
  visit(target.dtype, [&]<class T>() {
    T* const out = static_cast<T*>(const_cast<void*>(target.data));
    for (std::size_t i = 0; i < sum.size(); ++i) {
      float v = sum[i];
      if (c.bias) v += bias[i % static_cast<std::size_t>(k)];
      if (c.relu) v = v > 0 || std::isnan(v) ? v : 0;
      if (c.add) v += static_cast<float>(out[i]);
      out[i] = static_cast<T>(v);
    }
  });
  cusim::check::wrote(const_cast<void*>(target.data), sum.size() * size_of(target.dtype));
}

bool run(const Call& c, const char* op, Stream stream) {
  if (runtime::dry_run()) return takes(c);  // the operands may lie in no memory
  check_contract(c);
  if (!takes(c)) return false;
  note_problem(c, op, stream.device);
  FIRN_CHECK(!cusim::api_call("cudnnBackendExecute"), op, "", "cudnnBackendExecute failed");
  cusim::enqueue(static_cast<cudaStream_t>(stream.handle), [c] {
    const cusim::DeviceAccess open;
    compute(c);
  });
  runtime::note_kernel(op);
  return true;
}

}  // namespace

bool cudnn_forward(const ConstView& x, const ConstView& w, const void* bias, bool relu,
                   const ConvGeometry& geometry, const View& y, Stream stream) {
  return run({x, w, y, geometry, bias, relu, false, 'y'}, "conv_forward", stream);
}

bool cudnn_data_gradient(const ConstView& dy, const ConstView& w, const ConvGeometry& geometry,
                         const View& dx, float beta, Stream stream) {
  return run({dx, w, dy, geometry, nullptr, false, beta != 0, 'x'}, "conv_data_gradient", stream);
}

bool cudnn_weight_gradient(const ConstView& dy, const ConstView& x, const ConvGeometry& geometry,
                           const View& dw, float beta, Stream stream) {
  return run({x, dw, dy, geometry, nullptr, false, beta != 0, 'w'}, "conv_weight_gradient", stream);
}

}  // namespace firn::kernels::cuda
