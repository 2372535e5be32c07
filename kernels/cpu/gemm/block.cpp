#include "kernels/cpu/gemm/block.h"

#include <Eigen/Core>
#include <algorithm>
#include <atomic>
#include <string>
#ifdef FIRN_HAS_ONEDNN
#include <dnnl.h>

#include "firn/error.h"
#include "kernels/cpu/device/reserve.h"
#include "kernels/cpu/device/transpose.h"
#include "kernels/cpu/device/workspace.h"
#include "kernels/cpu/gemm/onednn.h"

#endif

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

template <class T>
void through_eigen(std::int64_t m, std::int64_t n, std::int64_t k, T alpha,
                   const BlockOperand<T>& a, const BlockOperand<T>& b, T beta, T* c,
                   std::int64_t ldc) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using In = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;
  using Out = Eigen::Map<Matrix, 0, Eigen::OuterStride<>>;
  Out out(c, m, n, Eigen::OuterStride<>(ldc));
  if (beta == 0) {
    out.setZero();
  } else if (beta != 1) {
    out *= beta;
  }
  const In x(a.data, a.transposed ? k : m, a.transposed ? m : k, Eigen::OuterStride<>(a.ld));
  const In y(b.data, b.transposed ? n : k, b.transposed ? k : n, Eigen::OuterStride<>(b.ld));
  if (!a.transposed && !b.transposed) out.noalias() += alpha * x * y;
  if (a.transposed && !b.transposed) out.noalias() += alpha * x.transpose() * y;
  if (!a.transposed && b.transposed) out.noalias() += alpha * x * y.transpose();
  if (a.transposed && b.transposed) out.noalias() += alpha * x.transpose() * y.transpose();
}

}  // namespace

#ifdef FIRN_HAS_ONEDNN
namespace {

/// Sets of product kernels. oneDNN generates all of a set at its first use: those for every shape,
/// and on CPUs with AVX-512 those for a few rows times a transposed matrix.
enum class KernelSet { general, few_rows };

bool takes_few_rows(std::int64_t m, const BlockOperand<float>& a, const BlockOperand<float>& b) {
  return m > 1 && m < 16 && !a.transposed && b.transposed;
}

/// Makes oneDNN generate the set, unless it has. oneDNN never retries if that fails, and may then
/// crash, so there must be memory for all of it. Throws OutOfMemory.
void generate(KernelSet set) {
  static constinit std::atomic<bool> known[2] = {};
  std::atomic<bool>& done = known[static_cast<int>(set)];
  if (done.load(std::memory_order_relaxed)) [[likely]]
    return;
  const Reserve reserve(kMakeReserve, kCodeReserve);
  // A product of few numbers takes the kernels that read operands in place. oneDNN generates them
  // after those that all products need.
  const float a[4] = {}, b[4] = {};
  float c[4];
  const char of_b = set == KernelSet::few_rows ? 'T' : 'N';
  if (dnnl_sgemm('N', of_b, 2, 2, 2, 1, a, 2, b, 2, 0, c, 2) != dnnl_success)
    throw OutOfMemory("no memory left for the code of products", kCodeReserve);
  done.store(true, std::memory_order_relaxed);
  end_before_onednn();
}

void through_onednn(std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                    const BlockOperand<float>& a, const BlockOperand<float>& b, float beta,
                    float* c, std::int64_t ldc) {
  generate(KernelSet::general);
  if (takes_few_rows(m, a, b)) generate(KernelSet::few_rows);
  const auto status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, alpha,
                                 a.data, a.ld, b.data, b.ld, beta, c, ldc);
  if (status == dnnl_out_of_memory)
    throw OutOfMemory("no memory left for oneDNN's copies of the operands of a product", 0);
  if (status != dnnl_success)
    throw Error("gemm", "dnnl_sgemm answered " + std::to_string(static_cast<int>(status)) +
                            " for [" + std::to_string(m) + ", " + std::to_string(k) + "] x [" +
                            std::to_string(k) + ", " + std::to_string(n) + "]");
}

/// From this number of rows and columns on, transposing b first pays. oneDNN reaches 0.95 of the
/// peak with b, and 0.3 to 0.9 with a transposed b, less for fewer rows.
constexpr std::int64_t kPackedRows = 32, kPackedColumns = 16;
/// oneDNN reaches 0.7 to 0.9 with a transposed a, less for longer rows. Transposing pays if the sum
/// is long and every element is multiplied by many columns.
constexpr std::int64_t kPackedDepth = 128, kMeetings = 128;
/// Elements of a panel that stays in the L2 cache, and its depth. Deeper panels are slower, too.
constexpr std::int64_t kPanel = 1 << 17, kDepth = 256;

/// Decides which operand is transposed first, if any, and the panels for that: [depth, side].
struct Turn {
  bool a, b;
  std::int64_t depth = 0, side = 0;

  Turn(std::int64_t m, std::int64_t n, std::int64_t k, bool a_transposed, bool b_transposed)
      : a(a_transposed && k >= kPackedDepth && n >= kMeetings),
        b(b_transposed && m >= kPackedRows && n >= kPackedColumns) {
    if (b) a = false;
    if (!any() || m == 0 || k == 0) return;
    side = b ? n : m;
    depth = std::clamp<std::int64_t>(std::min(kPanel / side, kDepth), 1, k);
  }
  bool any() const { return a || b; }
};

}  // namespace

template <>
std::int64_t gemm_block_scratch<float>(std::int64_t m, std::int64_t n, std::int64_t k,
                                       bool a_transposed, bool b_transposed) {
  const Turn turn(m, n, k, a_transposed, b_transposed);
  return slot_bytes_of<float>(turn.depth * turn.side);
}

template <>
void gemm_block(std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                const BlockOperand<float>& a, const BlockOperand<float>& b, float beta, float* c,
                std::int64_t ldc) {
  if (k == 0) {  // dnnl_sgemm would leave c as it is
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
    return;
  }
  const OneThread guard;
  if (!guard.usable()) return through_eigen(m, n, k, alpha, a, b, beta, c, ldc);
  const Turn turn(m, n, k, a.transposed, b.transposed);
  if (!turn.any()) return through_onednn(m, n, k, alpha, a, b, beta, c, ldc);
  const std::int64_t depth = turn.depth;
  const Workspace panel({depth, turn.side}, DType::f32);
  float* const turned = panel.view().as<float>();
  for (std::int64_t p = 0; p < k; p += depth) {
    const std::int64_t part = std::min(depth, k - p);
    BlockOperand<float> x{a.at(0, p), a.ld, a.transposed}, y{b.at(p, 0), b.ld, b.transposed};
    if (turn.b) {
      transpose_block(y.data, y.ld, turned, n, part, n);
      y = {turned, n, false};
    } else {
      transpose_block(x.data, x.ld, turned, part, m, part);
      x = {turned, part, false};
    }
    through_onednn(m, n, part, alpha, x, y, p == 0 ? beta : 1, c, ldc);
  }
}
#else
template <>
std::int64_t gemm_block_scratch<float>(std::int64_t, std::int64_t, std::int64_t, bool, bool) {
  return 0;
}

template <>
void gemm_block(std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                const BlockOperand<float>& a, const BlockOperand<float>& b, float beta, float* c,
                std::int64_t ldc) {
  through_eigen(m, n, k, alpha, a, b, beta, c, ldc);
}
#endif

template <>
std::int64_t gemm_block_scratch<double>(std::int64_t, std::int64_t, std::int64_t, bool, bool) {
  return 0;
}

template <>
void gemm_block(std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
                const BlockOperand<double>& a, const BlockOperand<double>& b, double beta,
                double* c, std::int64_t ldc) {
  through_eigen(m, n, k, alpha, a, b, beta, c, ldc);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
