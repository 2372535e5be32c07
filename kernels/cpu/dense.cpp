// The products of a dense layer, made of the general product and elementwise kernels.
#include "kernels/dense.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/copy.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/workspace.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/reduce.h"

namespace firn::kernels {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

Epilogues from_environment() {
  const char* value = std::getenv("FIRN_EPILOGUES");
  const std::string_view word = value ? value : "";
  if (word.empty() || word == "automatic") return Epilogues::automatic;
  if (word == "fused") return Epilogues::fused;
  if (word == "unfused") return Epilogues::unfused;
  throw Error("FIRN_EPILOGUES", "is '" + std::string(word) + "'",
              "set it to fused, unfused or automatic");
}

}  // namespace

DenseSaved dense_saved(Activation activation, std::int64_t m, std::int64_t n, DType dtype) {
  switch (activation) {
    case Activation::relu:
      return {DType::u8, {m, round_up(n, 128) / 8}};
    case Activation::gelu_tanh:
      return {dtype, {m, round_up(n, 8)}};
    default:
      return {dtype, {0}};
  }
}

std::atomic<Epilogues>& epilogues() {
  static std::atomic<Epilogues> choice{from_environment()};
  return choice;
}

namespace cpu {
namespace {

ConstView transposed(ConstView v) {
  std::swap(v.shape[0], v.shape[1]);
  std::swap(v.strides[0], v.strides[1]);
  return v;
}

/// The columns of `saved` that are not padding.
View unpadded(View saved, std::int64_t n) {
  saved.shape[1] = n;
  return saved;
}

/// The bits of relu: set where the value is above 0, or NaN as in math::Relu.
template <class T>
void store_mask(const ConstView& before, const View& mask) {
  const std::int64_t m = before.shape[0], n = before.shape[1], bytes = mask.shape[1];
  parallel_for(m, m * n, [&](std::int64_t i) {
    const T* const row = before.as<T>() + i * before.strides[0];
    std::uint8_t* const out = mask.as<std::uint8_t>() + i * mask.strides[0];
    for (std::int64_t at = 0; at < bytes; ++at) {
      unsigned bits = 0;
      for (std::int64_t j = 8 * at; j < std::min(n, 8 * at + 8); ++j)
        bits |= static_cast<unsigned>(!(row[j] <= T(0))) << (j % 8);
      out[at] = static_cast<std::uint8_t>(bits);
    }
  });
}

/// dx = 0 where the mask's bit is not set.
void apply_mask(const ConstView& mask, const View& dx) {
  const std::int64_t m = dx.shape[0], n = dx.shape[1];
  visit(dx.dtype, [&]<class T>() {
    parallel_for(m, m * n, [&](std::int64_t i) {
      const std::uint8_t* const bits = mask.as<std::uint8_t>() + i * mask.strides[0];
      T* const row = dx.as<T>() + i * dx.strides[0];
      for (std::int64_t j = 0; j < n; ++j)
        if (!((bits[j / 8] >> (j % 8)) & 1u)) row[j] = T{};
    });
  });
}

/// `out` itself where it has the compute dtype, else workspace of its shape, so that the value is
/// rounded once, after the activation.
class Wide {
 public:
  explicit Wide(const View& out) : view_(out) {
    if (out.dtype == compute_dtype(out.dtype)) return;
    own_.emplace(out.shape, compute_dtype(out.dtype));
    view_ = own_->view();
  }
  const View& view() const noexcept { return view_; }

 private:
  std::optional<Workspace> own_;
  View view_;
};

}  // namespace

void dense_forward(const ConstView& x, const ConstView& w, const ConstView& bias,
                   Activation activation, const View& y, const View& saved, Stream stream) {
  GemmArgs args;
  args.bias = bias;
  if (activation == Activation::none) return gemm(x, transposed(w), y, args, stream);
  const Wide before(y);
  gemm(x, transposed(w), before.view(), args, stream);
  if (activation == Activation::relu) {
    if (saved.data && before.view().dtype == DType::f64) {
      store_mask<double>(before.view(), saved);
    } else if (saved.data) {
      store_mask<float>(before.view(), saved);
    }
    return unary(math::UnaryOp::relu, before.view(), y, {}, stream);
  }
  if (saved.data) copy(before.view(), unpadded(saved, y.shape[1]), stream);
  unary(math::UnaryOp::gelu_tanh, before.view(), y, {}, stream);
}

void dense_data_gradient(const ConstView& dy, const ConstView& w, Activation activation,
                         const ConstView& saved, const View& dx, Stream stream) {
  if (activation == Activation::gelu_tanh) {
    const Wide wide(dx);
    gemm(dy, w, wide.view(), {}, stream);
    ConstView before = saved;
    before.shape[1] = dx.shape[1];
    return unary_backward(math::UnaryOp::gelu_tanh, wide.view(), before, dx, {}, 0, stream);
  }
  gemm(dy, w, dx, {}, stream);
  if (activation == Activation::relu) apply_mask(saved, dx);
}

void dense_weight_gradient(const ConstView& dy, const ConstView& x, const View& dw, float dw_beta,
                           const View& db, float db_beta, Stream stream) {
  gemm(transposed(dy), x, dw, {.alpha = 1, .beta = dw_beta, .bias = {}}, stream);
  if (!db.data) return;
  View row = db;
  row.shape.insert(0, 1);
  row.strides.insert(0, 0);
  reduce(ReduceOp::sum, dy, row, 1.0, db_beta, stream);
}

}  // namespace cpu
}  // namespace firn::kernels
