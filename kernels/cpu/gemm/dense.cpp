// The products of a dense layer, made of GEMMs and elementwise kernels.
#include "kernels/dense.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "kernels/copy.h"
#include "kernels/cpu/device/tile.h"
#include "kernels/cpu/device/workspace.h"
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/gemm/vectors.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/reduce.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// Returns a block of a row-major matrix.
template <class V>
V part_of(V v, const Block& block) {
  const std::int64_t at = block.i * v.strides[0] + block.j;
  v.data = const_cast<char*>(static_cast<const char*>(v.data)) +
           at * static_cast<std::int64_t>(size_of(v.dtype));
  v.shape = {block.rows, block.cols};
  return v;
}

/// Returns the largest number that is 0 once it is stored: in f16 half the smallest subnormal
/// number. Kernels treat subnormal numbers of the other dtypes as 0 anyway.
double stored_as_zero(DType t) { return t == DType::f16 ? 0x1p-25 : 0; }

/// Writes the mask bits of relu: set if the value, stored in `dtype`, is above 0 or NaN, as in
/// math::Relu. The last block of a row also writes the bits of its padding.
template <class T>
void store_mask(const View& mask, std::int64_t n, DType dtype, const Block& block) {
  const T zero = static_cast<T>(stored_as_zero(dtype));
  using V = Tile<T>;
  const std::int64_t end = block.j + block.cols < n ? block.j + block.cols : 8 * mask.shape[1];
  for (std::int64_t i = 0; i < block.rows; ++i) {
    // `row` counts from column 0, like the mask.
    const T* const row = block.values.as<T>() + i * block.values.strides[0] - block.j;
    std::uint8_t* const out = mask.as<std::uint8_t>() + (block.i + i) * mask.strides[0];
    std::int64_t j = block.j;
    for (; j + 16 <= std::min(n, end); j += 16) {
      std::uint16_t bits = 0;
      for (int part = 0; part < 16; part += V::size)
        bits |= static_cast<std::uint16_t>(bits_of(!(V::load(row + j + part) <= V(zero))) << part);
      std::memcpy(out + j / 8, &bits, sizeof bits);
    }
    for (; j < end; j += 8) {
      unsigned bits = 0;
      for (std::int64_t k = j; k < std::min(n, j + 8); ++k)
        bits |= static_cast<unsigned>(!(row[k] <= zero)) << (k % 8);
      out[j / 8] = static_cast<std::uint8_t>(bits);
    }
  }
}

/// Sets the values to 0 whose mask bit is not set.
template <class T>
void apply_mask(const ConstView& mask, const Block& block) {
  using V = Tile<T>;
  for (std::int64_t i = 0; i < block.rows; ++i) {
    const std::uint8_t* const bits = mask.as<std::uint8_t>() + (block.i + i) * mask.strides[0];
    T* const row = block.values.as<T>() + i * block.values.strides[0] - block.j;
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

}  // namespace

void dense_forward(const ConstView& x, const ConstView& w, const ConstView& bias,
                   Activation activation, const View& y, const View& saved, Stream stream) {
  GemmArgs args;
  args.bias = bias;
  if (activation == Activation::none) return gemm(x, turned(w), y, args, stream);
  const auto activate = [&](const Block& block) {
    const View& values = block.values;
    if (activation == Activation::gelu_tanh) {
      if (saved.data) copy(values, part_of(saved, block), stream);
      return unary(math::UnaryOp::gelu_tanh, values, values, {}, stream);
    }
    if (saved.data)
      y.dtype == DType::f64 ? store_mask<double>(saved, y.shape[1], y.dtype, block)
                            : store_mask<float>(saved, y.shape[1], y.dtype, block);
    unary(math::UnaryOp::relu, values, values, {}, stream);
  };
  gemm_with_epilogue(x, turned(w), y, args, std::ref(activate));
}

void dense_data_gradient(const ConstView& dy, const ConstView& w, Activation activation,
                         const ConstView& saved, const View& dx, Stream stream) {
  if (activation == Activation::none) return gemm(dy, w, dx, {}, stream);
  const auto differentiate = [&](const Block& block) {
    if (activation == Activation::gelu_tanh)
      return unary_backward(math::UnaryOp::gelu_tanh, block.values, part_of(saved, block),
                            block.values, {}, 0, stream);
    dx.dtype == DType::f64 ? apply_mask<double>(saved, block) : apply_mask<float>(saved, block);
  };
  gemm_with_epilogue(dy, w, dx, {}, std::ref(differentiate));
}

void dense_weight_gradient(const ConstView& dy, const ConstView& x, const View& dw, float dw_beta,
                           const View& db, float db_beta, Stream stream) {
  gemm(turned(dy), x, dw, {.alpha = 1, .beta = dw_beta, .bias = {}}, stream);
  if (!db.data) return;
  View row = db;
  row.shape.insert(0, 1);
  row.strides.insert(0, 0);
  reduce(ReduceOp::sum, dy, row, 1.0, db_beta, stream);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
