// The products of a dense layer on CUDA devices. They take one launch with cuBLASLt's epilogues, or
// a GEMM and a separate kernel.
//
// relu is always a kernel after the product, whose epilogue adds the bias. The library's relu is
// max(x, 0), and a hardware maximum turns a NaN into 0: a bad input would no longer be seen,
// neither in the result nor by the check of the gradients. NVIDIA's tests (nvmath-python) expect
// its mask to have the bit of x >= 0, and skip values next to 0; firn's slope at 0 is 0. DRELU
// reads masks of this layout, with firn's bits.
//
// gelu's epilogues use the hardware's tanh, which has 11 bits. That is enough for 16-bit results
// and with TF32; with f32 `automatic` computes gelu separately.
#include "kernels/dense.h"
#include "kernels/settings/settings.h"

#include <array>
#include <atomic>
#include <optional>

#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/gemm/operand.h"
#include "kernels/cuda/gemm/product.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/math/macros.h"
#include "kernels/reduce.h"

namespace firn::kernels::cuda {
namespace {

// ---- The separate kernels ----

/// A vector of any dtype, or zeros if data == nullptr.
struct BiasArray {
  const void* data;
  DType dtype;
  std::int64_t stride;
};

/// Number of adjacent columns of a row that a thread takes: one byte of relu's mask.
constexpr std::int64_t kGroup = 8;

/// Computes y = gelu(sum + bias), and saves sum + bias for the gradient unless `saved` is null. A
/// row has `groups` groups, including padding.
template <class T>
static __global__ void gelu_kernel(const ComputeOf<T>* sum, BiasArray bias, T* y, T* saved,
                                   std::int64_t m, std::int64_t n, std::int64_t groups) {
  const std::int64_t first = global_thread(), step = grid_threads();
  for (std::int64_t g = first; g < m * groups; g += step) {
    const std::int64_t row = g / groups, begin = g % groups * kGroup;
    for (std::int64_t j = begin; j < begin + kGroup && j < n; ++j) {
      ComputeOf<T> x = sum[row * n + j];
      if (bias.data) x += load_element<ComputeOf<T>>(bias.data, bias.dtype, j * bias.stride);
      if (saved) narrow(x, saved[row * groups * kGroup + j]);
      narrow(math::GeluTanh::f(x, {}), y[row * n + j]);
    }
  }
}

/// Computes y = relu(y) and returns its bit of the mask: set if y is above 0 or NaN.
template <class T>
__device__ unsigned relu_in_place(T& y) {
  const ComputeOf<T> x = widen(y);
  const bool passes = !(x <= 0);
  if (!passes) y = T{};
  return passes;
}

/// Computes y = relu(y) for a matrix [m, n], and its mask unless that is null. A row of the mask
/// has `groups` bytes, including padding, whose bits are 0. `wide` is true if n is a multiple of
/// kGroup and y aligned, so that groups are loaded and stored at once.
template <class T>
static __global__ void relu_kernel(T* y, std::uint8_t* mask, std::int64_t m, std::int64_t n,
                                   std::int64_t groups, bool wide) {
  const std::int64_t first = global_thread(), step = grid_threads();
  for (std::int64_t g = first; g < m * groups; g += step) {
    const std::int64_t row = g / groups, begin = g % groups * kGroup;
    T* const at = y + row * n + begin;
    unsigned bits = 0;
    if (wide && begin < n) {
      auto& words = lanes_at<Lanes<T, kGroup>>(at);
      auto group = words;
      for (int j = 0; j < kGroup; ++j) bits |= relu_in_place(group.lane[j]) << j;
      words = group;
    } else {
      for (int j = 0; j < kGroup && begin + j < n; ++j) bits |= relu_in_place(at[j]) << j;
    }
    if (mask) mask[g] = static_cast<std::uint8_t>(bits);
  }
}

/// dx = 0 if the mask's bit is not set. A row of the mask has `stride` bytes, of which `groups`
/// have bits of dx. `wide` is as in relu_kernel().
template <class T>
static __global__ void mask_kernel(const std::uint8_t* mask, T* dx, std::int64_t m, std::int64_t n,
                                   std::int64_t groups, std::int64_t stride, bool wide) {
  const std::int64_t first = global_thread(), step = grid_threads();
  for (std::int64_t g = first; g < m * groups; g += step) {
    const std::int64_t row = g / groups, column = g % groups, begin = column * kGroup;
    const unsigned bits = mask[row * stride + column];
    T* const at = dx + row * n + begin;
    if (wide) {
      auto& words = lanes_at<Lanes<T, kGroup>>(at);
      auto group = words;
      for (int j = 0; j < kGroup; ++j)
        if (!((bits >> j) & 1u)) group.lane[j] = T{};
      words = group;
    } else {
      for (int j = 0; j < kGroup && begin + j < n; ++j)
        if (!((bits >> j) & 1u)) at[j] = T{};
    }
  }
}

void gelu(const View& sum, const ConstView& bias, const View& y, const View& saved, Stream stream) {
  const std::int64_t m = y.shape[0], n = y.shape[1];
  const std::int64_t groups = math::ceil_div(n, kGroup);
  const BiasArray added{bias.data, bias.dtype, bias.data ? bias.strides[0] : 0};
  with_floating(y.dtype, [&]<class T>(T) {
    gpu::launch("dense activation", gelu_kernel<T>, grid_for(m * groups), dim3(kBlock), 0, stream,
                sum.as<ComputeOf<T>>(), added, y.as<T>(), saved.as<T>(), m, n, groups);
  });
}

void relu(const View& y, const View& mask, Stream stream) {
  const std::int64_t m = y.shape[0], n = y.shape[1];
  if (y.numel() == 0) return;
  const std::int64_t groups = mask.data ? mask.shape[1] : math::ceil_div(n, kGroup);
  const bool wide = n % kGroup == 0 && is_aligned(y.data);
  with_floating(y.dtype, [&]<class T>(T) {
    gpu::launch("dense activation", relu_kernel<T>, grid_for(m * groups), dim3(kBlock), 0, stream,
                y.as<T>(), mask.as<std::uint8_t>(), m, n, groups, wide);
  });
}

void apply_mask(const ConstView& mask, const View& dx, Stream stream) {
  const std::int64_t m = dx.shape[0], n = dx.shape[1];
  if (dx.numel() == 0) return;
  const std::int64_t groups = math::ceil_div(n, kGroup);
  const bool wide = n % kGroup == 0 && is_aligned(dx.data);
  with_floating(dx.dtype, [&]<class T>(T) {
    gpu::launch("dense activation gradient", mask_kernel<T>, grid_for(m * groups), dim3(kBlock), 0,
                stream, mask.as<std::uint8_t>(), dx.as<T>(), m, n, groups, mask.shape[1], wide);
  });
}

// ---- Fused or unfused ----

int major_capability(Device device) {
  static std::array<std::atomic<int>, 128> known{};  // 0 if not asked yet
  std::atomic<int>& slot = known[static_cast<std::size_t>(device.index)];
  int major = slot.load(std::memory_order_relaxed);
  if (major == 0) {
    gpu::check_cuda(
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, int{device.index}),
        "dense", "cudaDeviceGetAttribute");
    slot = major;
  }
  return major;
}

/// True if the library is to be asked for an epilogue; it computes `activation`. Below sm_90 the
/// library runs some epilogues as two kernels, which are slower than firn's two.
bool fuses(Activation activation, DType dtype, Device device,
           std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes)
    if (size == 0) return false;
  if (dtype == DType::f64) return false;          // the library has no epilogues there
  if (batch_invariance_required()) return false;  // gemm() refuses
  switch (epilogues().load(std::memory_order_relaxed)) {
    case Epilogues::fused:
      return true;
    case Epilogues::unfused:
      return false;
    default:
      if (activation == Activation::gelu_tanh && dtype == DType::f32 && !tf32_allowed())
        return false;
      return major_capability(device) >= 9;
  }
}

Product product_of(const char* op, const Matrix& a, const Matrix& b, const View& d) {
  Product p;
  p.op = op;
  p.a = a;
  p.b = b;
  p.d = {d.data, d.shape[1], d.shape[0], d.shape[1], 0, false};
  p.in = d.dtype;
  p.out = d.dtype;
  return p;
}

/// Describes a saved tensor to the library: relu counts bits, gelu elements.
void set_aux(Product& p, Activation activation, const ConstView& saved) {
  if (!saved.data) return;
  p.aux = saved.data;
  p.aux_ld = saved.shape[1] * (activation == Activation::relu ? 8 : 1);
}

}  // namespace

void dense_forward(const ConstView& x, const ConstView& w, const ConstView& bias,
                   Activation activation, const View& y, const View& saved, Stream stream) {
  if (activation != Activation::gelu_tanh) {
    cuda::gemm(x, transposed(w), y, {.alpha = 1, .beta = 0, .bias = bias}, stream);
    if (activation == Activation::relu) relu(y, saved, stream);
    return;
  }
  if (y.numel() == 0) return;
  if (fuses(activation, y.dtype, y.device, {x.shape[1]})) {
    const Operand a(transposed(w), stream), b(x, stream);
    Product p = product_of("dense_forward", a.matrix(), b.matrix(), y);
    p.epilogue = Epilogue::gelu;
    std::optional<Vector> vector;
    if (bias.data) p.bias = vector.emplace(bias, y.dtype, stream).data();
    set_aux(p, activation, saved);
    if (multiply(p, stream)) return;
  }
  const Buffer sum(y.shape, compute_dtype(y.dtype), stream);
  cuda::gemm(x, transposed(w), sum.view(), {}, stream);
  gelu(sum.view(), bias, y, saved, stream);
}

void dense_data_gradient(const ConstView& dy, const ConstView& w, Activation activation,
                         const ConstView& saved, const View& dx, Stream stream) {
  if (activation != Activation::none &&
      fuses(activation, dx.dtype, dx.device, {dx.numel(), dy.shape[1]})) {
    const Operand a(w, stream), b(dy, stream);
    Product p = product_of("dense_data_gradient", a.matrix(), b.matrix(), dx);
    p.epilogue = activation == Activation::relu ? Epilogue::relu_gradient : Epilogue::gelu_gradient;
    set_aux(p, activation, saved);
    if (multiply(p, stream)) return;
  }
  if (activation == Activation::gelu_tanh) {
    const Buffer wide(dx.shape, compute_dtype(dx.dtype), stream);
    cuda::gemm(dy, w, wide.view(), {}, stream);
    ConstView before = saved;
    before.shape[1] = dx.shape[1];
    return cuda::unary_backward(math::UnaryOp::gelu_tanh, wide.view(), before, dx, {}, 0, stream);
  }
  cuda::gemm(dy, w, dx, {}, stream);
  if (activation == Activation::relu) apply_mask(saved, dx, stream);
}

void dense_weight_gradient(const ConstView& dy, const ConstView& x, const View& dw, float dw_beta,
                           const View& db, float db_beta, Stream stream) {
  // The library stores a bias gradient in the dtype of dw; it cannot accumulate one.
  if (db.data && db.dtype == dw.dtype &&
      fuses(Activation::none, dy.dtype, dy.device, {dy.numel(), x.numel()})) {
    // dw^T = x^T dy, column-major; the library requires op(B) = dy to be a transposed operand.
    std::optional<Buffer> copy;
    ConstView rows = dy;
    if (row_stride(dy.shape[0], dy.shape[1], dy.strides[0], dy.strides[1]) == 0) {
      kernels::copy(dy, copy.emplace(dy.shape, dy.dtype, stream).view(), stream);
      rows = copy->view();
    }
    const std::int64_t m = rows.shape[0], n = rows.shape[1];
    const Operand a(x, stream);
    const Matrix b{rows.data, n, m, row_stride(m, n, rows.strides[0], rows.strides[1]), 0, true};
    Product p = product_of("dense_weight_gradient", a.matrix(), b, dw);
    p.in = dy.dtype;
    p.beta = dw_beta;
    Product fused = p;
    fused.epilogue = Epilogue::bias_gradient;
    fused.bias = db.data;
    // A step that stores may be captured after one that added, or the other way round.
    plan_ahead(db_beta == 0 ? p : fused, stream);
    if (db_beta == 0 && multiply(fused, stream)) return;
    multiply(p, stream);
  } else {
    cuda::gemm(transposed(dy), x, dw, {.alpha = 1, .beta = dw_beta, .bias = {}}, stream);
  }
  if (!db.data) return;
  View row = db;
  row.shape.insert(0, 1);
  row.strides.insert(0, 0);
  kernels::reduce(ReduceOp::sum, dy, row, 1.0, db_beta, stream);
}

}  // namespace firn::kernels::cuda
