// GEMM. The microkernels (packed.h) take 16-bit factors, and a library takes f64 ones. The faster
// of the two takes f32 ones, or the microkernel if products must be batch-invariant. The result is
// cut into blocks by shape, so that the bits do not depend on the number of threads.
#include "kernels/gemm.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "kernels/copy.h"
#include "kernels/cpu/device/scratch.h"
#include "kernels/cpu/device/transpose.h"
#include "kernels/cpu/gemm/block.h"
#include "kernels/cpu/gemm/cut.h"
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/gemm/fma.h"
#include "kernels/cpu/gemm/operand.h"
#include "kernels/cpu/gemm/packed.h"
#include "kernels/cpu/gemm/vectors.h"
#include "kernels/elementwise.h"
#include "kernels/math/macros.h"
#include "kernels/settings/settings.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// Returns an even number of parts of about `part` each, so that neither of two threads waits.
std::int64_t even_parts(std::int64_t size, std::int64_t part) {
  return std::max<std::int64_t>(1, (size + part) / (2 * part) * 2);
}

/// The block grid, which depends on the shape alone. The library is fastest with blocks of 128 rows
/// and some 512 columns; with fewer columns it packs its rows too often. There are at least eight
/// blocks, for as many threads, if each keeps 4 MFLOP. Rows are cut first: a thread then stores the
/// gradients of the rows that it will update.
struct Grid {
  Cut rows, cols;

  static Grid of(std::int64_t m, std::int64_t n, std::int64_t k) {
    constexpr std::int64_t kFlops = std::int64_t{1} << 22, kRows = 128, kCols = 512;
    constexpr std::int64_t kMost = 64, kThreads = 8, kLeast = 64;
    const std::int64_t blocks = even_parts(2 * m * n * k, kFlops);
    std::int64_t rows = std::min({blocks, even_parts(m, kRows), kMost});
    std::int64_t cols = std::clamp<std::int64_t>((n + kCols / 2) / kCols, 1, blocks / rows);
    const auto more = [&](std::int64_t parts, std::int64_t others, std::int64_t size) {
      const std::int64_t most = std::min(blocks / others, math::ceil_div(size, kLeast));
      return std::max(parts, std::min(most, math::ceil_div(kThreads, others)));
    };
    rows = more(rows, cols, m);
    cols = more(cols, rows, n);
    return {{m, rows}, {n, cols}};
  }

  /// Most bytes of a slot that the product of a block takes.
  template <class T>
  std::int64_t scratch(std::int64_t k, bool a_transposed, bool b_transposed) const {
    std::int64_t most = 0;
    if (!a_transposed && !b_transposed) return most;
    for (std::int64_t i = 0; i < rows.parts(); ++i)
      for (std::int64_t j = 0; j < cols.parts(); ++j)
        most = std::max(
            most, gemm_block_scratch<T>(rows.size(i), cols.size(j), k, a_transposed, b_transposed));
    return most;
  }
};

/// Returns a block of c, whose leading dimension is ldc, for an epilogue.
template <class T>
Block block_of(T* c, std::int64_t ldc, std::int64_t i, std::int64_t rows, std::int64_t j,
               std::int64_t cols) {
  return {i, rows, j, cols, {c + i * ldc + j, dtype_of<T>, Device::cpu(), {rows, cols}, {ldc, 1}}};
}

/// Adds bias [cols] to every row of c.
template <class T>
void add_to_rows(std::int64_t rows, std::int64_t cols, const T* bias, T* c, std::int64_t ldc) {
  for (std::int64_t i = 0; i < rows; ++i, c += ldc)
    for (std::int64_t j = 0; j < cols; ++j) c[j] += bias[j];
}

/// True if c^T = b^T a^T is to be computed. If b is stored transposed, this reads it contiguously,
/// and a and c are transposed instead. That is less work in a layer x w^T whose batch of m examples
/// is smaller than its weight.
template <class T>
bool prefers_transposed(std::int64_t m, std::int64_t n, std::int64_t k, const Operand<T>& b,
                        T beta) {
  constexpr std::int64_t kExamples = 8, kOutputs = 64;
  return b.transposed() && beta == 0 && m >= kExamples && n >= kOutputs && 2 * m * (n + k) < n * k;
}

/// Parts [first, last) of the rows of a row-major matrix of k columns, each transposed into [k, its
/// rows].
template <class T>
class TransposedPanels {
 public:
  TransposedPanels(const T* data, std::int64_t ld, std::int64_t k, const Cut& rows,
                   std::int64_t first, std::int64_t last)
      : rows_(rows),
        k_(k),
        from_(rows.begin(first)),
        own_({(rows.begin(last) - from_) * k}, dtype_of<T>) {
    constexpr std::int64_t kDepth = 64;
    const std::int64_t depths = math::ceil_div(k, kDepth);
    parallel_for((last - first) * depths, 4 * own_.view().numel(), [&](std::int64_t task) {
      const std::int64_t i = first + task / depths, p = task % depths * kDepth;
      transpose_block(data + rows.begin(i) * ld + p, ld, panel(i) + p * rows.size(i), rows.size(i),
                      std::min(kDepth, k - p), rows.size(i));
    });
  }
  BlockOperand<T> part(std::int64_t i) const { return {panel(i), rows_.size(i), false}; }

 private:
  T* panel(std::int64_t i) const {
    return own_.view().template as<T>() + (rows_.begin(i) - from_) * k_;
  }

  Cut rows_;
  std::int64_t k_, from_;
  Workspace own_;
};

template <class T>
void transposed_product(std::int64_t m, std::int64_t n, std::int64_t k, T alpha,
                        const BlockOperand<T>& a, const Operand<T>& b, T* c, std::int64_t ldc,
                        const T* bias, const Epilogue& epilogue) {
  constexpr std::int64_t kOutputs = 128;
  std::optional<TransposedPanels<T>> panel;
  if (!a.transposed) panel.emplace(a.data, a.ld, k, Cut(m, 1), 0, 1);
  const BlockOperand<T> x = panel ? panel->part(0) : BlockOperand<T>{a.data, a.ld, false};
  const Cut outputs(n, even_parts(n, kOutputs));
  const std::int64_t bytes = slot_bytes_of<T>(outputs.most() * m);
  parallel_for_with_scratch(bytes, outputs.parts(), m * n * k, [&](std::int64_t task) {
    const std::int64_t j = outputs.begin(task), cols = outputs.size(task);
    const Workspace block({cols, m}, dtype_of<T>);
    T* const out = block.view().template as<T>();
    if (bias)
      for (std::int64_t i = 0; i < cols; ++i) std::fill_n(out + i * m, m, bias[j + i]);
    gemm_block(cols, m, k, alpha, b.lines(j), x, T(bias ? 1 : 0), out, m);
    transpose_block(out, m, c + j, ldc, m, cols);
    if (epilogue) epilogue(block_of(c, ldc, 0, m, j, cols));
  });
}

/// True if c is summed from parts of k (split-K). The gradient dy w of a layer's m examples takes
/// longer to read w than to multiply by it. Rows of w are contiguous, and in the cache of the
/// thread that used them in the forward pass and updated them; columns are not.
template <class T>
bool is_split(std::int64_t m, std::int64_t n, std::int64_t k, const Operand<T>& a,
              const Operand<T>& b, T beta, const T* bias) {
  constexpr std::int64_t kExamples = 128, kDepth = 256, kWeight = std::int64_t{1} << 17;
  return !a.transposed() && !b.transposed() && beta == 0 && !bias && m <= kExamples &&
         k >= kDepth && n * k >= kWeight;
}

template <class T>
void split_product(std::int64_t m, std::int64_t n, std::int64_t k, T alpha,
                   const BlockOperand<T>& a, const Operand<T>& b, T* c, std::int64_t ldc,
                   const Epilogue& epilogue) {
  constexpr std::int64_t kDepth = 128, kRows = 8;
  const Cut depth(k, even_parts(k, kDepth));
  const Workspace rest({depth.parts() - 1, m, n}, dtype_of<T>);
  T* const others = rest.view().template as<T>();
  parallel_for(depth.parts(), m * n * k, [&](std::int64_t part) {
    const std::int64_t p = depth.begin(part);
    T* const sum = part == 0 ? c : others + (part - 1) * m * n;
    gemm_block(m, n, depth.size(part), alpha, {a.at(0, p), a.ld, false}, b.lines(p), T(0), sum,
               part == 0 ? ldc : n);
  });
  parallel_for(math::ceil_div(m, kRows), m * n * depth.parts(), [&](std::int64_t task) {
    const std::int64_t first = task * kRows, rows = std::min(kRows, m - first);
    for (std::int64_t i = first; i < first + rows; ++i) {
      T* const sum = c + i * ldc;
      for (std::int64_t part = 1; part < depth.parts(); ++part) {
        const T* const more = others + ((part - 1) * m + i) * n;
        for (std::int64_t j = 0; j < n; ++j) sum[j] += more[j];
      }
    }
    if (epilogue) epilogue(block_of(c, ldc, first, rows, 0, n));
  });
}

/// Computes row by row, so that a row's bits do not depend on the others. The columns are one
/// block: the library's order of sums could depend on where a block begins.
void row_products(std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
                  const BlockOperand<double>& a, const BlockOperand<double>& b, double beta,
                  double* c, std::int64_t ldc, const double* bias, const Epilogue& epilogue) {
  parallel_for(m, m * n * k, [&](std::int64_t i) {
    double* const out = c + i * ldc;
    gemm_block(1, n, k, alpha, {a.at(i, 0), a.ld, a.transposed}, b, beta, out, ldc);
    if (bias) add_to_rows(1, n, bias, out, ldc);
    if (epilogue) epilogue(block_of(c, ldc, i, 1, 0, n));
  });
}

template <class T>
void product(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const Operand<T>& left,
             const Operand<T>& right, T beta, T* c, std::int64_t ldc, const T* bias,
             const Epilogue& epilogue) {
  const BlockOperand<T> a = left.whole();
  if constexpr (std::is_same_v<T, double>) {
    if (batch_invariance_required())
      return row_products(m, n, k, alpha, a, right.whole(), beta, c, ldc, bias, epilogue);
  }
  if (prefers_transposed(m, n, k, right, beta))
    return transposed_product(m, n, k, alpha, a, right, c, ldc, bias, epilogue);
  if (is_split(m, n, k, left, right, beta, bias))
    return split_product(m, n, k, alpha, a, right, c, ldc, epilogue);
  const BlockOperand<T> b = right.whole();
  const Grid grid = Grid::of(m, n, k);
  // Each block would transpose its columns of b. If there are several rows of blocks, the columns
  // are transposed once for all, 4 MiB at a time.
  constexpr std::int64_t kPanel = std::int64_t{1} << 20;
  const bool transposes = b.transposed && grid.rows.parts() > 1;
  const std::int64_t parts = grid.cols.parts();
  const std::int64_t most =
      transposes && k > 0 ? std::clamp<std::int64_t>(kPanel * parts / (n * k), 1, parts) : parts;
  const std::int64_t bytes = grid.scratch<T>(k, a.transposed, b.transposed && !transposes);
  for (std::int64_t first = 0; first < parts; first += most) {
    const std::int64_t columns = std::min(most, parts - first);
    std::optional<TransposedPanels<T>> panels;
    if (transposes) panels.emplace(b.data, b.ld, k, grid.cols, first, first + columns);
    const std::int64_t tasks = grid.rows.parts() * columns;
    parallel_for_with_scratch(bytes, tasks, m * n * k, [&](std::int64_t task) {
      const std::int64_t row = task / columns, column = first + task % columns;
      const std::int64_t i = grid.rows.begin(row), rows = grid.rows.size(row);
      const std::int64_t j = grid.cols.begin(column), cols = grid.cols.size(column);
      T* out = c + i * ldc + j;
      const BlockOperand<T> x{a.at(i, 0), a.ld, a.transposed};
      const BlockOperand<T> y =
          transposes ? panels->part(column) : BlockOperand<T>{b.at(0, j), b.ld, b.transposed};
      gemm_block(rows, cols, k, alpha, x, y, beta, out, ldc);
      if (bias) add_to_rows(rows, cols, bias + j, out, ldc);
      if (epilogue) epilogue(block_of(c, ldc, i, rows, j, cols));
    });
  }
}

/// From this number of products in a batch on, one thread computes each.
constexpr std::int64_t kManyProducts = 8;

ConstView slice_of(const ConstView& v, std::int64_t batch) {
  if (v.rank() == 2) return v;
  ConstView out = v;
  out.data = static_cast<const char*>(v.data) +
             batch * v.strides[0] * static_cast<std::int64_t>(size_of(v.dtype));
  out.shape.erase(0);
  out.strides.erase(0);
  return out;
}

template <class T>
void multiply(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args,
              const Epilogue& epilogue) {
  const std::int64_t m = c.shape[0], n = c.shape[1], k = a.shape[1];
  const DType compute = dtype_of<T>;
  const bool direct = c.strides[1] == 1 && (m == 1 || c.strides[0] >= n);
  std::optional<Workspace> own;
  if (!direct) own.emplace(Shape{m, n}, compute);
  T* out = direct ? c.as<T>() : own->view().template as<T>();
  const std::int64_t ldc = direct && m > 1 ? c.strides[0] : n;

  const Operand<T> x(a), y(b);
  std::optional<Workspace> wide_bias;
  const T* row = nullptr;
  if (args.bias.data) {
    wide_bias.emplace(Shape{n}, compute);
    FIRN_ISA::copy(args.bias, wide_bias->view(), Stream{});
    row = wide_bias->view().template as<T>();
  }
  product<T>(m, n, k, static_cast<T>(args.alpha), x, y, direct ? static_cast<T>(args.beta) : T(0),
             out, ldc, row, epilogue);
  if (!direct) FIRN_ISA::axpby(1.0, own->view(), args.beta, c, Stream{});
}

/// Returns the microkernel that multiplies a [m, k] of f32 or 16 bits by b [k, n]; null if a
/// library does.
const Microkernel* unit_of(std::int64_t m, const ConstView& b) {
  if (b.dtype != DType::f32) return &microkernel(b.dtype);
  if (const Microkernel* const unit = bf16x3_kernel()) return unit;
  const bool columns = b.strides[0] == 1 && b.strides[1] != 1;
  return batch_invariance_required() || fma_beats_library(m, b.shape[1], b.shape[0], columns)
             ? &fma()
             : nullptr;
}

void multiply(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args,
              const Epilogue& epilogue) {
  const bool bare = !args.bias.data && !epilogue;
  if (bare && c.numel() == 1 && !batch_invariance_required()) return dot(a, b, c, args);
  if (bare && a.shape[1] == 1 && size_of(a.dtype) == 2) return outer(a, b, c, args);
  if (a.dtype == DType::f64) return multiply<double>(a, b, c, args, epilogue);
  // A setting may have changed since a factor was packed.
  const Microkernel* const unit = args.packed.unit ? args.packed.unit : unit_of(c.shape[0], b);
  if (unit) return packed_product(*unit, a, b, c, args, epilogue);
  multiply<float>(a, b, c, args, epilogue);
}

}  // namespace

PackedRight plan_right(const ConstView& b, std::int64_t m) {
  const std::int64_t k = b.shape[0], n = b.shape[1];
  if (b.dtype == DType::f64 || b.numel() == 0) return {};
  // A library would pack b for each product.
  const Microkernel* unit = unit_of(m, b);
  if (!unit) unit = &fma();
  return {unit, static_cast<std::int64_t>(unit->right_bytes(k, n))};
}

void gemm(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args, Stream) {
  if (c.numel() == 0) return;
  const std::int64_t batches = c.rank() == 3 ? c.shape[0] : 1;
  const auto one = [&](std::int64_t i) {
    const ConstView x = slice_of(a, i), y = slice_of(b, i), z = slice_of(c, i);
    multiply(x, y, {const_cast<void*>(z.data), z.dtype, z.device, z.shape, z.strides}, args, {});
  };
  if (batches >= kManyProducts) {
    // Within a chunk, a product takes as much scratch memory as it does alone on one thread.
    const std::int64_t bytes = scratch_of([&] { one(0); });
    parallel_for_with_scratch(bytes, batches, c.numel() * a.shape.back(), one);
  } else {
    for (std::int64_t i = 0; i < batches; ++i) one(i);
  }
}

void gemm_with_epilogue(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args,
                        const Epilogue& epilogue) {
  if (c.numel() > 0) multiply(a, b, c, args, epilogue);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
