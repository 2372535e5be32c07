// The formulas of GGUF's blocks of quantised numbers, after ggml-quants.c
// (github.com/ggml-org/ggml, dequantize_row_q4_0 and its neighbours) and the structs of
// ggml-common.h.
//
// A block is a run of bytes without alignment; scales are f16. No product in these formulas needs
// more than the 24 bits of f32: a scale has 11, a scale of scales 6 or 8, a number 4, 6 or 8. So
// each value is rounded at most once, where a minimum is added, and a multiply-add gives the same
// bits.
#pragma once

#include <cstdint>
#include <cstring>

#include "firn/half.h"
#include "firn/lm/gguf_type.h"
#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

inline float half_at(const std::uint8_t* bytes) {
  std::uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return half::from_bits(bits);
}

/// The number of 4 bits in the low half of a byte, and the one in the high half.
inline float low(std::uint8_t byte) { return static_cast<float>(byte & 15); }
inline float high(std::uint8_t byte) { return static_cast<float>(byte >> 4); }

/// Each format has decode(block, y), which computes the elements of one block.
template <lm::GgufType kType>
struct BlockFormat;

/// y = d (q - 8); byte i has the elements i and i + 16.
template <>
struct BlockFormat<lm::GgufType::q4_0> {
  static void decode(const std::uint8_t* __restrict block, float* __restrict y) {
    const float d = half_at(block);
    const std::uint8_t* const q = block + 2;
    for (int i = 0; i < 16; ++i) {
      y[i] = d * (low(q[i]) - 8);
      y[i + 16] = d * (high(q[i]) - 8);
    }
  }
};

/// y = d q + m; byte i has the elements i and i + 16.
template <>
struct BlockFormat<lm::GgufType::q4_1> {
  static void decode(const std::uint8_t* __restrict block, float* __restrict y) {
    const float d = half_at(block), m = half_at(block + 2);
    const std::uint8_t* const q = block + 4;
    for (int i = 0; i < 16; ++i) {
      y[i] = d * low(q[i]) + m;
      y[i + 16] = d * high(q[i]) + m;
    }
  }
};

/// y = d q.
template <>
struct BlockFormat<lm::GgufType::q8_0> {
  static void decode(const std::uint8_t* __restrict block, float* __restrict y) {
    const float d = half_at(block);
    const std::uint8_t* const q = block + 2;
    for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(static_cast<std::int8_t>(q[i]));
  }
};

/// y = d s q - e m, with a scale s and a minimum m for each of 8 groups of 32 elements.
template <>
struct BlockFormat<lm::GgufType::q4_k> {
  static void decode(const std::uint8_t* __restrict block, float* __restrict y) {
    const float d = half_at(block), e = half_at(block + 2);
    const std::uint8_t *const packed = block + 4, *q = block + 16;
    for (int pair = 0; pair < 4; ++pair, q += 32, y += 64) {
      const Group a = group(packed, 2 * pair), b = group(packed, 2 * pair + 1);
      const float da = d * a.scale, db = d * b.scale, ma = e * a.minimum, mb = e * b.minimum;
      for (int i = 0; i < 32; ++i) {
        y[i] = da * low(q[i]) - ma;
        y[i + 32] = db * high(q[i]) - mb;
      }
    }
  }

 private:
  struct Group {
    float scale, minimum;
  };
  /// The 12 bytes have the scales of groups 0 to 3, their minima, and 4 bits of the others. The
  /// upper 2 bits of those are in the upper bits of the first 8 bytes.
  static Group group(const std::uint8_t* packed, int i) {
    if (i < 4) return {static_cast<float>(packed[i] & 63), static_cast<float>(packed[i + 4] & 63)};
    return {static_cast<float>((packed[i + 4] & 15) | packed[i - 4] >> 6 << 4),
            static_cast<float>(packed[i + 4] >> 4 | packed[i] >> 6 << 4)};
  }
};

/// y = d s (q - 32), with a scale s for each of 16 groups of 16 elements. 4 bits of q are in the
/// first 128 bytes, the other 2 in the next 64.
template <>
struct BlockFormat<lm::GgufType::q6_k> {
  static void decode(const std::uint8_t* __restrict block, float* __restrict y) {
    const std::uint8_t *ql = block, *qh = block + 128, *s = block + 192;
    const float d = half_at(block + 208);
    for (int i = 0; i < 256; i += 128, ql += 64, qh += 32, s += 8, y += 128)
      for (int g = 0; g < 2; ++g) {
        const float a = d * scale(s[g]), b = d * scale(s[g + 2]), c = d * scale(s[g + 4]),
                    e = d * scale(s[g + 6]);
        for (int k = 16 * g; k < 16 * g + 16; ++k) {
          const int h = qh[k];
          y[k] = a * number((ql[k] & 15) | (h & 3) << 4);
          y[k + 32] = b * number((ql[k + 32] & 15) | (h >> 2 & 3) << 4);
          y[k + 64] = c * number(ql[k] >> 4 | (h >> 4 & 3) << 4);
          y[k + 96] = e * number(ql[k + 32] >> 4 | h >> 6 << 4);
        }
      }
  }

 private:
  static float scale(std::uint8_t byte) {
    return static_cast<float>(static_cast<std::int8_t>(byte));
  }
  static float number(int q) { return static_cast<float>(q - 32); }
};

}  // namespace firn::kernels::cpu::FIRN_ISA
