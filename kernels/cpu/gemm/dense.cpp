// The products of a dense layer, made of GEMMs and elementwise kernels.
#include "kernels/dense.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "kernels/copy.h"
#include "kernels/cpu/device/tile.h"
#include "kernels/cpu/device/workspace.h"
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/reduce.h"

namespace firn::kernels::cpu {
namespace {

ConstView transposed(ConstView v) {
  std::swap(v.shape[0], v.shape[1]);
  std::swap(v.strides[0], v.strides[1]);
  return v;
}

/// A block of a row-major matrix.
template <class V>
V part_of(V v, const Block& block) {
  const std::int64_t at = block.i * v.strides[0] + block.j;
  v.data = const_cast<char*>(static_cast<const char*>(v.data)) +
           at * static_cast<std::int64_t>(size_of(v.dtype));
  v.shape = {block.rows, block.cols};
  return v;
}

/// The mask bits of relu: set if the value is above 0 or NaN, as in math::Relu. The last block of a
/// row also writes the bits of its padding.
template <class T>
void store_mask(const View& before, const View& mask, const Block& block) {
  using V = Tile<T>;
  const std::int64_t n = before.shape[1];
  const std::int64_t end = block.j + block.cols < n ? block.j + block.cols : 8 * mask.shape[1];
  for (std::int64_t i = block.i; i < block.i + block.rows; ++i) {
    const T* const row = before.as<T>() + i * before.strides[0];
    std::uint8_t* const out = mask.as<std::uint8_t>() + i * mask.strides[0];
    std::int64_t j = block.j;
    for (; j + 16 <= std::min(n, end); j += 16) {
      std::uint16_t bits = 0;
      for (int part = 0; part < 16; part += V::size)
        bits |= static_cast<std::uint16_t>(bits_of(!(V::load(row + j + part) <= V(0))) << part);
      std::memcpy(out + j / 8, &bits, sizeof bits);
    }
    for (; j < end; j += 8) {
      unsigned bits = 0;
      for (std::int64_t k = j; k < std::min(n, j + 8); ++k)
        bits |= static_cast<unsigned>(!(row[k] <= T(0))) << (k % 8);
      out[j / 8] = static_cast<std::uint8_t>(bits);
    }
  }
}

/// dx = 0 if the mask's bit is not set.
template <class T>
void apply_mask(const ConstView& mask, const View& dx, const Block& block) {
  using V = Tile<T>;
  for (std::int64_t i = block.i; i < block.i + block.rows; ++i) {
    const std::uint8_t* const bits = mask.as<std::uint8_t>() + i * mask.strides[0];
    T* const row = dx.as<T>() + i * dx.strides[0];
    const std::int64_t end = block.j + block.cols;
    std::int64_t j = block.j;
    for (; j + 16 <= end; j += 16) {
      std::uint16_t word;
      std::memcpy(&word, bits + j / 8, sizeof word);
      for (int part = 0; part < 16; part += V::size)
        where(tiles::mask_of<T>(word >> part), V::load(row + j + part), V(0)).store(row + j + part);
    }
    for (; j < end; ++j)
      if (!((bits[j / 8] >> (j % 8)) & 1u)) row[j] = T{};
  }
}

/// `out` itself if it has the compute dtype, else workspace of its shape, so that the value is
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
  const Wide wide(y);
  const View& out = wide.view();
  const auto activate = [&](const Block& block) {
    const View part = part_of(out, block);
    if (activation == Activation::gelu_tanh) {
      if (saved.data) copy(part, part_of(saved, block), stream);
      return unary(math::UnaryOp::gelu_tanh, part, part, {}, stream);
    }
    if (saved.data)
      out.dtype == DType::f64 ? store_mask<double>(out, saved, block)
                              : store_mask<float>(out, saved, block);
    unary(math::UnaryOp::relu, part, part, {}, stream);
  };
  gemm_with_epilogue(x, transposed(w), out, args, std::ref(activate));
  if (out.data != y.data) copy(out, y, stream);
}

void dense_data_gradient(const ConstView& dy, const ConstView& w, Activation activation,
                         const ConstView& saved, const View& dx, Stream stream) {
  if (activation == Activation::none) return gemm(dy, w, dx, {}, stream);
  const Wide wide(dx);
  const View& out = wide.view();
  const auto differentiate = [&](const Block& block) {
    if (activation == Activation::gelu_tanh) {
      const View part = part_of(out, block);
      return unary_backward(math::UnaryOp::gelu_tanh, part, part_of(saved, block), part, {}, 0,
                            stream);
    }
    out.dtype == DType::f64 ? apply_mask<double>(saved, out, block)
                            : apply_mask<float>(saved, out, block);
  };
  gemm_with_epilogue(dy, w, out, {}, std::ref(differentiate));
  if (out.data != dx.data) copy(out, dx, stream);
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

}  // namespace firn::kernels::cpu
