// Products of packed tiles of bf16 numbers: the layout, the order of sums, and the handling of
// infinities. The unit that multiplies two tiles is a parameter, so that tests can put plain code
// in its place.
//
// A tile has 16 lines x 32 of k, 1 KiB. A line is a row of the left factor or a column of the right
// one. A tile is a matrix of pairs of numbers, adjacent in k: at the left [line][pair], at the
// right [pair][line]. Panels of 16 lines have all steps of k, and for each step the tiles of all
// parts: an f16 number is the exact sum of two bf16 numbers, an f32 number of three.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/gemm/microkernel.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::tiles {

using std::int64_t;

// ---- Layout ----

constexpr int64_t kLines = 16, kStep = 32, kTile = 1024;
constexpr int64_t kBlock = 2 * kLines;  ///< lines of a block of the result

template <int kParts>
constexpr int64_t step_bytes = kParts* kTile;

template <int kParts>
constexpr int64_t panel_bytes(int64_t k) {
  return math::ceil_div(k, kStep) * step_bytes<kParts>;
}

template <int kParts>
std::size_t packed_bytes(int64_t lines, int64_t k) {
  return static_cast<std::size_t>(math::ceil_div(lines, kLines) * panel_bytes<kParts>(k));
}

/// Panels of one block of the result: up to 2 x 2 tiles, and `steps` of k.
struct Panels {
  const char* left;
  int64_t left_row, left_panel, left_step;
  const char* right;
  int64_t right_panel, right_step;
  int64_t steps;
  int64_t last_pairs;  ///< pairs of the last step; pairs beyond them are 0
};

/// f32 numbers of tiles, with rows ld apart.
struct Tiles {
  float* c;  ///< null if there are no tiles
  int64_t ld;

  Tiles tile(int64_t row, int64_t column) const {
    return {c ? c + row * kLines * ld + column * kLines : nullptr, ld};
  }
};

// ---- Order ----

/// Products of parts, in an order in which only one factor changes from one to the next. With
/// kTurned the factors have changed places, and the order is that of the unturned product.
struct Pair {
  int left, right;
};
template <int kParts, bool kTurned>
constexpr auto pairs = [] {
  auto order = [] {
    if constexpr (kParts == 1)
      return std::array{Pair{0, 0}};
    else if constexpr (kParts == 2)
      return std::array{Pair{0, 0}, Pair{1, 0}, Pair{1, 1}, Pair{0, 1}};
    else
      return std::array{Pair{2, 0}, Pair{1, 0}, Pair{1, 1}, Pair{0, 1}, Pair{0, 0}, Pair{0, 2}};
  }();
  if (kTurned)
    for (Pair& pair : order) pair = {pair.right, pair.left};
  return order;
}();

}  // namespace firn::kernels::cpu::tiles

// The including file says which instructions the following code may use. Each function is a
// template of its unit, so no two files compile the same function in different ways.
#ifndef FIRN_TILES_BEGIN
#define FIRN_TILES_BEGIN
#define FIRN_TILES_END
#endif

FIRN_TILES_BEGIN

namespace firn::kernels::cpu::tiles {

/// A product of packed factors on `Unit`:
///   Unit::block<rows, columns, parts, turned>(panels, sums, result): adds to rows x columns tiles
///     of `sums`, or begins with 0 if that has none, and writes `result`, which may be `sums`;
///   Unit::special(numbers): of 16 numbers, the bits of those that are infinite or NaN;
///   Unit::is_finite(tile): true if all numbers of a tile are finite.
template <class Unit, int kParts>
class TileProduct {
 public:
  TileProduct(int64_t k, const Left& left, const void* right)
      : left_(left),
        right_(static_cast<const char*>(right)),
        right_panel_(panel_bytes<kParts>(k)),
        steps_(math::ceil_div(k, kStep)),
        last_pairs_(math::ceil_div(k - (steps_ - 1) * kStep, 2)),
        packed_steps_(left.tail ? steps_ - 1 : steps_) {}

  /// c [m, n], with rows ld apart, = the product, or c + the product if `add`.
  void run(int64_t m, int64_t n, float* c, int64_t ld, bool add) const {
    [[maybe_unused]] const Unit unit;
    if (steps_ == 0 && !add)
      for (int64_t i = 0; i < m; ++i) std::fill_n(c + i * ld, n, 0.0f);
    for (int64_t begin = 0; begin < steps_; begin += kSteps) {
      const int64_t end = std::min(steps_, begin + kSteps);
      const int64_t packed_end = std::min(end, packed_steps_);
      for (int64_t j = 0; j < n; j += kBlock) {
        for (int64_t i = 0; i < m; i += kBlock) {
          const Block out{{c + i * ld + j, ld}, std::min(kBlock, m - i), std::min(kBlock, n - j)};
          if (begin < packed_end)
            add_to(out, packed(i, j, begin, packed_end - begin), begin == 0 && !add);
          if (packed_end < end) add_to(out, tail(i, j), packed_steps_ == 0 && !add);
        }
      }
    }
  }

 private:
  /// Steps of k for which two right panels stay in the L1 cache.
  static constexpr int64_t kSteps = 32 / kParts;

  struct Block : Tiles {
    int64_t rows, cols;

    bool tall() const { return rows > kLines; }
    bool wide() const { return cols > kLines; }
    bool whole() const { return rows % kLines == 0 && cols % kLines == 0; }
  };

  Panels packed(int64_t i, int64_t j, int64_t first, int64_t count) const {
    return {left_.data + i / kLines * left_.panel + first * left_.step,
            left_.row,
            left_.panel,
            left_.step,
            right_ + j / kLines * right_panel_ + first * step_bytes<kParts>,
            right_panel_,
            step_bytes<kParts>,
            count,
            first + count == steps_ ? last_pairs_ : kStep / 2};
  }
  /// Returns the last step, whose left factor is packed apart from the rest.
  Panels tail(int64_t i, int64_t j) const {
    Panels p = packed(i, j, packed_steps_, 1);
    p.left = left_.tail + i / kLines * kTile;
    p.left_row = 64;
    p.left_panel = kTile;
    return p;
  }

  /// Adds one product to a block, or begins it with 0. If sums may have to be recomputed, their
  /// initial values stay until all sums are known.
  void add_to(const Block& to, const Panels& p, bool zero) const {
    alignas(64) float edge[kBlock * kBlock], sums[kBlock * kBlock];
    const bool apart = kParts > 1 || !to.whole();
    const Block out = apart ? Block{{sums, kBlock}, to.rows, to.cols} : to;
    Block before = to;
    if (zero) {
      before.c = nullptr;
    } else if (!to.whole()) {
      before = {{edge, kBlock}, to.rows, to.cols};
      copy(to, before);
    }
    multiply(p, before, out);
    if constexpr (kParts > 1) {
      for (int64_t a = 0; a <= out.tall(); ++a) {
        for (int64_t b = 0; b <= out.wide(); ++b) {
          Panels one = p;
          one.left += a * p.left_panel;
          one.right += b * p.right_panel;
          restore_tile(one, before.tile(a, b), out.tile(a, b));
        }
      }
    }
    if (apart) copy(out, to);
  }

  static void copy(const Block& from, const Block& to) {
    for (int64_t r = 0; r < from.rows; ++r) {
      const float* const row = from.c + r * from.ld;
      if (from.cols == kBlock) {
        std::copy_n(row, kBlock, to.c + r * to.ld);
      } else {
        std::copy_n(row, from.cols, to.c + r * to.ld);
      }
    }
  }

  void multiply(const Panels& p, const Tiles& before, const Block& out) const {
    if (left_.turned && kParts > 1) {
      multiply_in_order<true>(p, before, out);
    } else {
      multiply_in_order<false>(p, before, out);
    }
  }
  template <bool kTurned>
  static void multiply_in_order(const Panels& p, const Tiles& before, const Block& out) {
    if (out.tall() && out.wide()) {
      Unit::template block<2, 2, kParts, kTurned>(p, before, out);
    } else if (out.tall()) {
      Unit::template block<2, 1, kParts, kTurned>(p, before, out);
    } else if (out.wide()) {
      Unit::template block<1, 2, kParts, kTurned>(p, before, out);
    } else {
      Unit::template block<1, 1, kParts, kTurned>(p, before, out);
    }
  }

  /// Recomputes in f32 the elements of a tile that are not finite, from the sums that it began
  /// with. Infinity times a part that is 0 is NaN, and so is the sum of parts that overflow with
  /// either sign. Other elements stay, so each depends on its row and column only.
  static void restore_tile(const Panels& p, const Tiles& before, const Tiles& out) {
    if (Unit::is_finite(out)) return;
    unsigned special[kLines];
    for (int64_t i = 0; i < kLines; ++i) special[i] = Unit::special(out.c + i * out.ld);
    alignas(64) float x[kLines][kStep], y[kLines][kStep];
    for (int64_t s = 0; s < p.steps; ++s) {
      for (int64_t i = 0; i < kLines; ++i) {
        restore_line(p.left + s * p.left_step + i * p.left_row, 4, x[i]);
        restore_line(p.right + s * p.right_step + i * 4, 64, y[i]);
      }
      for (int64_t i = 0; i < kLines; ++i) {
        for (int64_t j = 0; j < kLines; ++j) {
          if ((special[i] >> j & 1) == 0) continue;
          float& sum = out.c[i * out.ld + j];
          if (s == 0) sum = before.c ? before.c[i * before.ld + j] : 0;
          for (int64_t q = 0; q < kStep; ++q) sum += x[i][q] * y[j][q];
        }
      }
    }
  }

  /// Writes the numbers of a line's part of a step, from their parts. Pairs of them are `pair`
  /// bytes apart.
  static void restore_line(const char* line, int64_t pair, float* to) {
    for (int64_t q = 0; q < kStep; ++q) {
      float x = 0;  // from the smallest part up, since the first two may add up to infinity
      for (int part = kParts - 1; part >= 0; --part) {
        std::uint16_t upper;
        std::memcpy(&upper, line + part * kTile + q / 2 * pair + q % 2 * 2, sizeof upper);
        const std::uint32_t word = static_cast<std::uint32_t>(upper) << 16;
        float value;
        std::memcpy(&value, &word, sizeof value);
        x += value;
      }
      to[q] = x;
    }
  }

  const Left& left_;
  const char* right_;
  int64_t right_panel_, steps_, last_pairs_, packed_steps_;
};

/// The microkernel of a unit. `Packing` splits and packs factors:
///   Packing::parts: the number of bf16 numbers that make one number of the factor;
///   Packing::pack(matrix, lines, k, right, to) writes all panels of a matrix of lines x k.
template <class Unit, class Packing>
struct TileKernel {
  static constexpr int parts = Packing::parts;

  static std::size_t right_bytes(int64_t k, int64_t n) { return packed_bytes<parts>(n, k); }
  static Left pack_left(const Matrix& a, int64_t m, int64_t k, void* packed) {
    Packing::pack(a, m, k, false, static_cast<char*>(packed));
    return {static_cast<const char*>(packed), 64, panel_bytes<parts>(k), step_bytes<parts>};
  }
  static void pack_right(const Matrix& b, int64_t k, int64_t n, void* packed) {
    Packing::pack(b.transposed(), n, k, true, static_cast<char*>(packed));
  }
  static bool places_left(const Matrix& a) { return parts == 1 && a.column == 1; }
  static bool takes_strides(DType) { return false; }
  static Left place_left(const Matrix& a, int64_t m, int64_t k, void* tail) {
    Left left{static_cast<const char*>(a.data), 2 * a.row, 2 * a.row * kLines, 2 * kStep};
    if (const int64_t whole = k / kStep * kStep; whole != k) {
      Packing::pack(a.at(0, whole), m, k - whole, false, static_cast<char*>(tail));
      left.tail = static_cast<const char*>(tail);
    }
    return left;
  }
  static void multiply(int64_t m, int64_t n, int64_t k, const Left& left, const void* right,
                       float* c, int64_t ldc, bool add) {
    TileProduct<Unit, parts>(k, left, right).run(m, n, c, ldc, add);
  }

  static constexpr Microkernel table(const char* name, Microkernel::AddRows* bf16_rows = nullptr) {
    return {name,          kLines,     kLines,     packed_bytes<parts>,
            right_bytes,   pack_left,  pack_right, places_left,
            takes_strides, place_left, multiply,   {nullptr, bf16_rows}};
  }
};

}  // namespace firn::kernels::cpu::tiles

FIRN_TILES_END
