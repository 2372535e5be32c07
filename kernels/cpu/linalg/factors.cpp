// Cholesky, QR and LU factors on the CPU, and solutions by them, through Eigen.
#include <Eigen/Cholesky>
#include <Eigen/LU>
#include <Eigen/QR>
#include <limits>
#include <string_view>

#include "kernels/cpu/linalg/matrices.h"
#include "kernels/linalg.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// lstsq() solves with a factor of its operand.
const char* singular_hint(const char* op) {
  return std::string_view(op) == "lstsq"
             ? "columns of a (rows, if it is wide) depend on others: leave them out, or use "
               "linalg::svd()"
             : "add a multiple of eye(), or use linalg::lstsq() or linalg::svd()";
}

/// Returns the position of the first exact 0 among the pivots of LU factors, or -1.
template <class T>
std::int64_t zero_pivot(const Matrix<T>& factors) {
  for (std::int64_t i = 0; i < factors.rows(); ++i)
    if (factors(i, i) == 0) return i;
  return -1;
}

template <unsigned kMode, class T, class A>
void solve_by(const A& a, const TriangularArgs& args, Matrix<T>& x) {
  if (args.transposed) {
    a.template triangularView<kMode>().transpose().solveInPlace(x);
  } else {
    a.template triangularView<kMode>().solveInPlace(x);
  }
}

}  // namespace

void cholesky(const char* op, const ConstView& x, const View& l, Stream) {
  for_each_matrix(x, [&]<class T>(std::int64_t i) {
    const Eigen::LLT<Matrix<T>, Eigen::Lower> factors(matrix_at<T>(x, i));
    const Matrix<T> lower = factors.matrixL();
    // A NaN passes Eigen's own test.
    if (factors.info() != Eigen::Success || !(lower.diagonal().array() > 0).all() ||
        !lower.diagonal().allFinite())
      refuse(op, x, i, "is not positive definite", "add a multiple of eye()");
    matrix_at<T>(l, i) = lower;
  });
}

void qr(const ConstView& x, const View& q, const View& r, Stream) {
  for_each_matrix(x, [&]<class T>(std::int64_t i) {
    // This runs in f64, with the largest element near 1: squares of elements neither vanish nor
    // overflow.
    Matrix<double> wide = matrix_at<T>(x, i).template cast<double>();
    const double largest = wide.cwiseAbs().maxCoeff();
    const int exponent = largest > 0 && std::isfinite(largest) ? std::ilogb(largest) : 0;
    wide = wide.unaryExpr([exponent](double v) { return std::ldexp(v, -exponent); });
    const Eigen::HouseholderQR<Matrix<double>> factors(wide);
    const std::int64_t k = r.shape[1];
    const Matrix<double> upper =
        factors.matrixQR().topRows(k).template triangularView<Eigen::Upper>();
    matrix_at<T>(r, i) = upper.unaryExpr([exponent](double v) { return std::ldexp(v, exponent); })
                             .template cast<T>();
    const Matrix<double> columns =
        factors.householderQ().setLength(k) * Matrix<double>::Identity(x.shape[1], k);
    matrix_at<T>(q, i) = columns.template cast<T>();
  });
}

void determinant(const ConstView& x, const View& value, const View& sign, const View& log, Stream) {
  for_each_matrix(x, [&]<class T>(std::int64_t i) {
    const Eigen::PartialPivLU<Matrix<T>> lu(matrix_at<T>(x, i));
    T whole = static_cast<T>(lu.permutationP().determinant()), signs = whole, logs = 0;
    for (std::int64_t k = 0; k < x.shape[1]; ++k) {
      const T pivot = lu.matrixLU()(k, k);
      whole *= pivot;
      signs = pivot == 0 ? T(0) : pivot < 0 ? -signs : std::isnan(pivot) ? pivot : signs;
      logs += std::log(std::abs(pivot));
    }
    value.as<T>()[i * value.strides[0]] = whole;
    sign.as<T>()[i * sign.strides[0]] = signs;
    log.as<T>()[i * log.strides[0]] = signs == 0 ? -std::numeric_limits<T>::infinity() : logs;
  });
}

void solve(const char* op, const ConstView& a, const ConstView& b, const View& x, bool transposed,
           bool checked, Stream) {
  for_each_matrix(a, [&]<class T>(std::int64_t i) {
    const Eigen::PartialPivLU<Matrix<T>> lu(matrix_at<T>(a, i));
    const std::int64_t zero = checked ? zero_pivot<T>(lu.matrixLU()) : -1;
    if (zero >= 0)
      refuse(op, a, i, "is singular: pivot " + std::to_string(zero) + " is 0", singular_hint(op));
    if (b.shape[2] == 0) return;
    const Matrix<T> right = matrix_at<T>(b, i);
    if (transposed) {
      matrix_at<T>(x, i) = lu.transpose().solve(right);
    } else {
      matrix_at<T>(x, i) = lu.solve(right);
    }
  });
}

void solve_triangular(const char* op, const ConstView& a, const ConstView& b, const View& x,
                      const TriangularArgs& args, Stream) {
  for_each_matrix(a, [&]<class T>(std::int64_t i) {
    const Eigen::Map<const RowMajor<T>> factor = matrix_at<T>(a, i);
    for (std::int64_t k = 0; args.checked && !args.unit && k < a.shape[1]; ++k)
      if (factor(k, k) == 0)
        refuse(op, a, i, "is singular: element " + std::to_string(k) + " of its diagonal is 0",
               singular_hint(op));
    if (b.shape[2] == 0) return;
    Matrix<T> right = matrix_at<T>(b, i);
    if (args.upper) {
      args.unit ? solve_by<Eigen::UnitUpper>(factor, args, right)
                : solve_by<Eigen::Upper>(factor, args, right);
    } else {
      args.unit ? solve_by<Eigen::UnitLower>(factor, args, right)
                : solve_by<Eigen::Lower>(factor, args, right);
    }
    matrix_at<T>(x, i) = right;
  });
}

}  // namespace firn::kernels::cpu::FIRN_ISA
