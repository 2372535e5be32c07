#include "kernels/cpu/gemm/packed.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "kernels/copy.h"
#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/prefetch.h"
#include "kernels/cpu/device/scratch.h"
#include "kernels/cpu/device/transpose.h"
#include "kernels/cpu/gemm/cut.h"
#include "kernels/math/macros.h"
#include "kernels/settings/settings.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

using std::int64_t;

constexpr int64_t kAlign = 64;

Matrix matrix_of(const ConstView& v) {
  // In a single row or column only one stride has a meaning.
  const int64_t row = v.shape[0] == 1 ? v.shape[1] : v.strides[0];
  const int64_t column = v.shape[1] == 1 ? 1 : v.strides[1];
  return {v.data, v.dtype, row, column};
}

/// Cost of packing an element. It is a rough guess, since packing decides for thin products only.
constexpr double kCopied = 1, kTurned = 2;
double packing_cost(const Matrix& right, int64_t k, int64_t n) {
  return static_cast<double>(k) * static_cast<double>(n) * (right.column == 1 ? kCopied : kTurned);
}

/// Results of a block on their way to c: alpha, bias, beta, epilogue and rounding.
class Finish {
 public:
  Finish(const View& c, const GemmArgs& args, const Epilogue& epilogue)
      : c_(c),
        alpha_(static_cast<float>(args.alpha)),
        beta_(static_cast<float>(args.beta)),
        epilogue_(epilogue) {
    if (!args.bias.data) return;
    bias_.emplace(Shape{c.shape[1]}, DType::f32);
    FIRN_ISA::copy(args.bias, bias_->view(), Stream{});
  }

  /// True if the product can be computed in c itself, from at(i, j) on with rows ld() apart. A sum
  /// that begins with c has other bits than one that is added to c, as a transposed product does.
  bool direct() const {
    return c_.dtype == DType::f32 && (c_.strides[1] == 1 || c_.shape[1] == 1) && alpha_ == 1 &&
           (beta_ == 0 || (beta_ == 1 && !batch_invariance_required()));
  }
  bool adds() const { return beta_ == 1; }
  float* at(int64_t i, int64_t j) const { return c_.as<float>() + i * c_.strides[0] + j; }
  int64_t ld() const { return c_.shape[0] == 1 ? c_.shape[1] : c_.strides[0]; }

  /// Begins to load a block of c, which is written once its product is known.
  void fetch_block(int64_t i, int64_t rows, int64_t j, int64_t cols) const {
    if (c_.strides[1] != 1) return;
    const int64_t bytes = cols * static_cast<int64_t>(size_of(c_.dtype));
    for (int64_t r = i; r < i + rows; ++r) fetch(element(r, j), bytes);
  }

  /// `values`, row-major with leading dimension `ld`, are the product. They are c itself if
  /// direct().
  void operator()(int64_t i, int64_t rows, int64_t j, int64_t cols, float* values, int64_t ld,
                  bool in_place) const {
    const float* const bias = bias_ ? bias_->view().as<float>() + j : nullptr;
    alignas(64) float old[kRow];
    for (int64_t r = 0; r < rows; ++r) {
      float* const row = values + r * ld;
      if (!in_place && alpha_ != 1)
        for (int64_t p = 0; p < cols; ++p) row[p] *= alpha_;
      if (!in_place && beta_ != 0) {
        for (int64_t p = 0; p < cols; p += kRow) {
          const int64_t n = std::min(kRow, cols - p);
          const float* const before =
              load_row(element(i + r, j + p), c_.dtype, c_.strides[1], n, old);
          for (int64_t q = 0; q < n; ++q) row[p + q] += beta_ * before[q];
        }
      }
      if (bias)
        for (int64_t p = 0; p < cols; ++p) row[p] += bias[p];
    }
    if (epilogue_)
      epilogue_({i, rows, j, cols, {values, DType::f32, Device::cpu(), {rows, cols}, {ld, 1}}});
    if (in_place) return;
    store_rows(values, ld, element(i, j), c_.dtype, c_.strides[0], c_.strides[1], rows, cols);
  }

 private:
  void* element(int64_t i, int64_t j) const {
    return advance(c_.data, c_.dtype, i * c_.strides[0] + j * c_.strides[1]);
  }

  View c_;
  float alpha_, beta_;
  const Epilogue& epilogue_;
  std::optional<Workspace> bias_;
};

/// Returns about `size` rows of the left factor: whole panels of `unit`, and a multiple of 16,
/// since they are columns of a block if the product is transposed.
int64_t whole_panels(int64_t size, const Microkernel& unit) {
  const int64_t step = std::lcm<int64_t>(unit.rows, 16);
  return std::max(size / step, int64_t{1}) * step;
}

/// The cut of a result [m, n] into blocks for threads, between panels of `unit`.
struct Grid {
  Cut rows, cols;
};
Grid grid_of(const Microkernel& unit, int64_t m, int64_t n, int64_t k) {
  // Blocks have at least 4 MFLOP, and 128 rows, for which a panel of columns stays in L1. A single
  // row of blocks is cut into many columns of them: each block packs its own, and none waits.
  constexpr int64_t kFlops = int64_t{1} << 22, kMost = 64, kHigh = 128, kWide = 256, kLeast = 64;
  constexpr int64_t kElement = 64, kTwoTiles = 32;
  // An element of the result costs as much as some 32 multiplications. Two threads share an even
  // number of blocks.
  const int64_t pieces = m * n * (2 * k + kElement) / kFlops;
  const int64_t blocks = std::clamp<int64_t>(math::ceil_div(pieces, 2) * 2, 1, kMost);
  const int64_t rows = std::clamp<int64_t>(m / kHigh, 1, blocks);
  const int64_t cols = std::clamp<int64_t>(n / (rows == 1 ? kLeast : kWide), 1, blocks / rows);
  return {Cut(m, rows, whole_panels(kTwoTiles, unit)), Cut(n, cols, kTwoTiles)};
}

/// Number of lines that are packed as one piece of work. Every unit's panels of columns divide it.
constexpr int64_t kSlice = 64;

/// Packs `right` [k, n] at `to`, on all threads.
void pack_slices(const Microkernel& unit, const Matrix& right, int64_t k, int64_t n, char* to) {
  const Cut slices(n, math::ceil_div(n, kSlice), kSlice);
  parallel_for(slices.parts(), n * k, [&](int64_t part) {
    const int64_t j = slices.begin(part);
    unit.pack_right(right.at(0, j), k, slices.size(part), to + unit.right_bytes(k, j));
  });
}

/// The product left x right, whose result is c or its transpose.
class PackedProduct {
 public:
  PackedProduct(const Microkernel& unit, const Matrix& left, const Matrix& right, int64_t m,
                int64_t n, int64_t k, bool turned, const Finish& finish)
      : unit_(unit),
        left_(left),
        right_(right),
        m_(m),
        n_(n),
        k_(k),
        turned_(turned),
        finish_(finish),
        grid_(grid_of(unit, m, n, k)),
        part_rows_(whole_panels(kPartRows, unit)) {}

  /// `all` is the packed right factor, or null if it is to be packed.
  void run(const char* all) {
    in_place_ = unit_.places_left(left_);
    std::optional<Workspace> left_memory, right_memory;
    // Factors that several blocks need are packed first, by all threads.
    const bool shares_left = !in_place_ && grid_.cols.parts() > 1;
    if (shares_left) {
      left_memory.emplace(Shape{rounded(unit_.left_bytes(m_, k_))}, DType::u8);
      char* const to = left_memory->view().as<char>();
      const int64_t size = whole_panels(kSlice, unit_);
      const Cut cut(m_, math::ceil_div(m_, size), size);
      parallel_for(cut.parts(), m_ * k_, [&](int64_t slice) {
        const int64_t i = cut.begin(slice);
        const Left packed =
            unit_.pack_left(left_.at(i, 0), cut.size(slice), k_, to + unit_.left_bytes(i, k_));
        if (slice == 0) packed_left_ = packed;
      });
    }
    if (all) return blocks(0, n_, all, shares_left);
    if (grid_.rows.parts() == 1) {
      const int64_t bytes = slot_bytes(rounded(unit_.right_bytes(k_, grid_.cols.most()))) +
                            left_parts(m_, shares_left).bytes();
      parallel_for_with_scratch(bytes, grid_.cols.parts(), m_ * n_ * k_, [&](int64_t part) {
        const int64_t j = grid_.cols.begin(part), cols = grid_.cols.size(part);
        const Workspace packed(Shape{rounded(unit_.right_bytes(k_, cols))}, DType::u8);
        unit_.pack_right(right_.at(0, j), k_, cols, packed.view().as<char>());
        block(0, m_, j, cols, packed.view().as<char>(), shares_left);
      });
      return;
    }
    // Columns are packed in panels that fit in the caches.
    constexpr int64_t kPanel = int64_t{1} << 22;
    const int64_t column = std::max<int64_t>(1, rounded(unit_.right_bytes(k_, kSlice)) / kSlice);
    const int64_t width = std::max<int64_t>(kSlice, kPanel / column / kSlice * kSlice);
    right_memory.emplace(Shape{rounded(unit_.right_bytes(k_, std::min(width, n_)))}, DType::u8);
    char* const panel = right_memory->view().as<char>();
    for (int64_t first = 0; first < n_; first += width) {
      const int64_t count = std::min(width, n_ - first);
      pack_slices(unit_, right_.at(0, first), k_, count, panel);
      blocks(first, count, panel, shares_left);
    }
  }

 private:
  static constexpr int64_t kPartRows = 128, kCols = 64;  ///< most rows and columns of a part

  /// The parts in which a block of rows packs the left factor. They stay in the L2 cache.
  struct LeftParts {
    int64_t rows, size, edge_size;  ///< rows of a part, its bytes, and those of an incomplete panel
    int64_t memory() const { return size + edge_size + 1; }
    int64_t bytes() const { return slot_bytes(memory()); }
  };
  LeftParts left_parts(int64_t rows, bool left_is_packed) const {
    constexpr int64_t kLeft = int64_t{1} << 19;
    const int64_t line =
        std::max<int64_t>(1, rounded(unit_.left_bytes(part_rows_, k_)) / part_rows_);
    const int64_t most = std::min(math::ceil_div(rows, part_rows_),
                                  std::max<int64_t>(1, kLeft / line / part_rows_)) *
                         part_rows_;
    return {most, left_is_packed ? 0 : rounded(unit_.left_bytes(most, in_place_ ? 1 : k_)),
            in_place_ ? rounded(unit_.left_bytes(unit_.rows, k_)) : 0};
  }

  /// Computes all blocks of the `count` columns from `first` on, which are packed.
  void blocks(int64_t first, int64_t count, const char* packed, bool left_is_packed) const {
    const Cut cols(count, math::ceil_div(count * grid_.cols.parts(), n_), 32);
    const int64_t bytes = left_parts(grid_.rows.most(), left_is_packed).bytes();
    const int64_t tasks = grid_.rows.parts() * cols.parts();
    parallel_for_with_scratch(bytes, tasks, m_ * count * k_, [&](int64_t task) {
      const int64_t row = task / cols.parts(), part = task % cols.parts();
      const int64_t j = cols.begin(part);
      block(grid_.rows.begin(row), grid_.rows.size(row), first + j, cols.size(part),
            packed + unit_.right_bytes(k_, j), left_is_packed);
    });
  }

  /// Computes one block on one thread. The result is finished in parts that stay in the L1 cache.
  void block(int64_t first, int64_t rows, int64_t j, int64_t cols, const char* right,
             bool left_is_packed) const {
    const LeftParts parts = left_parts(rows, left_is_packed);
    // Not every unit reads an incomplete panel in place.
    const bool reads_edges = unit_.takes_strides(left_.dtype);
    const Workspace memory(Shape{parts.memory()}, DType::u8);
    char* const left_memory = memory.view().as<char>();
    for (int64_t i = first; i < first + rows;) {
      int64_t count = std::min(parts.rows, first + rows - i);
      Left left;
      if (left_is_packed) {
        left = rows_from(packed_left_, i);
      } else if (in_place_ && (reads_edges || count >= unit_.rows)) {
        if (!reads_edges) count = count / unit_.rows * unit_.rows;
        left = unit_.place_left(left_.at(i, 0), count, k_, left_memory);
      } else {
        left =
            unit_.pack_left(left_.at(i, 0), count, k_, left_memory + (in_place_ ? parts.size : 0));
      }
      for (int64_t q = 0; q < cols; q += kCols) {
        const int64_t width = std::min(kCols, cols - q);
        const char* const panels = right + unit_.right_bytes(k_, q);
        for (int64_t r = 0; r < count; r += part_rows_)
          part(i + r, std::min(part_rows_, count - r), j + q, width, rows_from(left, r), panels);
      }
      i += count;
    }
  }

  void part(int64_t i, int64_t rows, int64_t j, int64_t cols, const Left& left,
            const char* right) const {
    if (finish_.direct() && !turned_) {
      float* const out = finish_.at(i, j);
      unit_.multiply(rows, cols, k_, left, right, out, finish_.ld(), finish_.adds());
      return finish_(i, rows, j, cols, out, finish_.ld(), true);
    }
    if (turned_) {
      finish_.fetch_block(j, cols, i, rows);
    } else {
      finish_.fetch_block(i, rows, j, cols);
    }
    alignas(kAlign) float result[kPartRows * kCols];
    unit_.multiply(rows, cols, k_, left, right, result, cols, false);
    if (!turned_) return finish_(i, rows, j, cols, result, cols, false);
    alignas(kAlign) float upright[kPartRows * kCols];
    transpose_block(result, cols, upright, rows, cols, rows);
    finish_(j, cols, i, rows, upright, rows, false);
  }

  Left rows_from(Left left, int64_t i) const {
    left.turned = turned_;
    left.data += i / unit_.rows * left.panel;
    if (left.tail) left.tail += unit_.left_bytes(i, 1);
    return left;
  }

  const Microkernel& unit_;
  Matrix left_, right_;
  int64_t m_, n_, k_;
  bool turned_, in_place_ = false;
  const Finish& finish_;
  Grid grid_;
  int64_t part_rows_;  ///< whole panels, so that each part of the left factor begins with one
  Left packed_left_{};
};

/// The product of a few rows x by a 16-bit y, which is read once and never packed as a whole.
void rows_product(Microkernel::AddRows* add_rows, const Matrix& x, const Matrix& y, int64_t m,
                  int64_t n, int64_t k, int64_t parts, const Finish& finish) {
  constexpr int64_t kWide = 256;  // columns of a part, if they are not contiguous
  const Cut cols(n, y.column == 1 ? std::min(parts, n / kWide) : parts, 32);
  const int64_t deep = y.column == 1 ? 32 : 4 * kRow / m / 32 * 32, room = cols.most() + kSlice;
  const int64_t bytes = slot_bytes_of<float>(m * room);
  parallel_for_with_scratch(bytes, cols.parts(), m * n * k, [&](int64_t part) {
    const int64_t j = cols.begin(part), width = cols.size(part);
    const Workspace memory(Shape{m * room}, DType::f32);
    float* const sums = memory.view().as<float>();
    std::fill_n(sums, m * room, 0.0f);
    for (int64_t p = 0; p < k; p += deep)
      add_rows(m, x.at(0, p), y.at(p, j), std::min(deep, k - p), width, sums, room);
    finish(0, m, j, width, sums, room, false);
  });
}

}  // namespace

void pack_right(const ConstView& b, const PackedRight& to) {
  pack_slices(*to.unit, matrix_of(b), b.shape[0], b.shape[1], static_cast<char*>(to.data));
}

void packed_product(const Microkernel& unit, const ConstView& a, const ConstView& b, const View& c,
                    const GemmArgs& args, const Epilogue& epilogue) {
  const int64_t m = c.shape[0], n = c.shape[1], k = a.shape[1];
  const Matrix x = matrix_of(a), y = matrix_of(b);
  const Finish finish(c, args, epilogue);
  if (args.packed.unit)
    return PackedProduct(unit, x, y, m, n, k, false, finish)
        .run(static_cast<const char*>(args.packed.data));
  const bool in_place = x.column == 1 && k % 32 == 0 && (y.column == 1 ? n % 32 == 0 : y.row == 1);
  if (m <= Microkernel::kFewRows && in_place && args.beta == 0 && size_of(b.dtype) == 2)
    if (Microkernel::AddRows* const add_rows = unit.add_rows[b.dtype == DType::bf16])
      return rows_product(add_rows, x, y, m, n, k, grid_of(unit, m, n, k).cols.parts(), finish);
  // Either factor can be the left one, since c^T = b^T a^T. The left one may be read in place. The
  // cost of packing and of transposing the result decides.
  const Matrix xt = x.transposed(), yt = y.transposed();
  const auto cost = [&](const Matrix& left, int64_t rows, const Matrix& right, int64_t columns) {
    const double placed = unit.places_left(left) ? 0 : packing_cost(left, k, rows);
    return placed + packing_cost(right, k, columns);
  };
  const double turning = static_cast<double>(m) * static_cast<double>(n) * kTurned;
  if (k > 0 && cost(yt, n, xt, m) + turning < cost(x, m, y, n)) {
    PackedProduct(unit, yt, xt, n, m, k, true, finish).run(nullptr);
  } else {
    PackedProduct(unit, x, y, m, n, k, false, finish).run(nullptr);
  }
}

}  // namespace firn::kernels::cpu::FIRN_ISA
