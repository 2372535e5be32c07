#include "kernels/gemm/matrix_unit_model.h"

#include <bit>
#include <cmath>

#include "firn/half.h"
#include "kernels/cpu/gemm/tile_product.h"

namespace firn::testing {
namespace {

using namespace kernels::cpu::tiles;
using kernels::cpu::Matrix;
using kernels::cpu::Microkernel;

float number(std::uint16_t upper) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(upper) << 16);
}

/// tdpbf16ps as Intel's manual describes it: even and odd terms of a step have sums of their own.
struct Unit {
  static unsigned special(const float* numbers) {
    unsigned bits = 0;
    for (unsigned j = 0; j < 16; ++j) bits |= std::isfinite(numbers[j]) ? 0 : 1u << j;
    return bits;
  }
  static bool is_finite(const Tiles& tile) {
    unsigned any = 0;
    for (int64_t i = 0; i < kLines; ++i) any |= special(tile.c + i * tile.ld);
    return any == 0;
  }

  template <int kRows, int kColumns, int kParts, bool kTurned>
  static void block(const Panels& p, const Tiles& sums, const Tiles& result) {
    const auto at = [](const char* tile) {
      std::uint16_t bits;
      std::memcpy(&bits, tile, sizeof bits);
      return number(bits);
    };
    for (int64_t i = 0; i < kRows * kLines; ++i) {
      for (int64_t j = 0; j < kColumns * kLines; ++j) {
        float sum = sums.c ? sums.c[i * sums.ld + j] : 0;
        for (int64_t s = 0; s < p.steps; ++s) {
          for (const Pair& pair : pairs<kParts, kTurned>) {
            const char* const x = p.left + i / kLines * p.left_panel + i % kLines * p.left_row +
                                  s * p.left_step + pair.left * kTile;
            const char* const y = p.right + j / kLines * p.right_panel + j % kLines * 4 +
                                  s * p.right_step + pair.right * kTile;
            float even = 0, odd = 0;
            for (int r = 0; r < 16; ++r) {
              even = std::fma(at(x + 4 * r), at(y + 64 * r), even);
              odd = std::fma(at(x + 4 * r + 2), at(y + 64 * r + 2), odd);
            }
            sum += even + odd;
          }
        }
        result.c[i * result.ld + j] = sum;
      }
    }
  }
};

/// The upper halves of f32 words whose sum is x. f32 is rounded to nearest part by part; an f16
/// number has no more than two.
template <DType kDType>
std::array<std::uint16_t, 3> split(float x) {
  std::array<std::uint16_t, 3> parts{};
  for (auto& part : parts) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    part = static_cast<std::uint16_t>(bits >> 16);
    if constexpr (kDType == DType::f32) {
      const auto near = static_cast<std::uint16_t>((bits + 0x7fff + (part & 1u)) >> 16);
      if (std::isfinite(x) && std::isfinite(number(near))) part = near;
    }
    if (!std::isfinite(x)) break;
    x -= number(part);
  }
  return parts;
}

template <DType kDType>
struct PlainPacking {
  static constexpr int parts = kDType == DType::bf16 ? 1 : kDType == DType::f16 ? 2 : 3;

  static float element(const Matrix& a, int64_t i, int64_t p) {
    const void* const from = a.at(i, p).data;
    if constexpr (kDType == DType::bf16)
      return static_cast<float>(*static_cast<const bfloat16*>(from));
    if constexpr (kDType == DType::f16) return static_cast<float>(*static_cast<const half*>(from));
    return *static_cast<const float*>(from);
  }

  static void pack(const Matrix& a, int64_t lines, int64_t k, bool right, char* to) {
    std::memset(to, 0, packed_bytes<parts>(lines, k));
    for (int64_t i = 0; i < lines; ++i) {
      for (int64_t p = 0; p < k; ++p) {
        const int64_t line = i % kLines, pair = p % kStep / 2;
        char* const tile = to + i / kLines * panel_bytes<parts>(k) + p / kStep * step_bytes<parts> +
                           (right ? pair * 64 + line * 4 : line * 64 + pair * 4) + p % 2 * 2;
        const auto words = split<kDType>(element(a, i, p));
        for (int part = 0; part < parts; ++part)
          std::memcpy(tile + part * kTile, &words[static_cast<std::size_t>(part)], 2);
      }
    }
  }
};

template <DType kDType>
constexpr Microkernel model = TileKernel<Unit, PlainPacking<kDType>>::table("model of AMX");

}  // namespace

const Microkernel& amx_model(DType dtype) {
  return dtype == DType::bf16  ? model<DType::bf16>
         : dtype == DType::f16 ? model<DType::f16>
                               : model<DType::f32>;
}

}  // namespace firn::testing
