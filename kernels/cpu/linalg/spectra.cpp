// Singular values and eigenvalues on the CPU, with their vectors, through Eigen.
#include <Eigen/Eigenvalues>
#include <Eigen/SVD>
#include <limits>

#include "kernels/cpu/linalg/matrices.h"
#include "kernels/linalg.h"

namespace firn::kernels::cpu::FIRN_ISA {

namespace {
constexpr const char* kFinite = "find what made them: AnomalyMode names the operation";
}  // namespace

void svd(const char* op, const ConstView& x, const View& u, const View& s, const View& vt,
         bool checked, Stream) {
  for_each_matrix(x, [&]<class T>(std::int64_t i) {
    const Matrix<T> own = matrix_at<T>(x, i);
    if (!own.allFinite()) {
      if (checked) refuse(op, x, i, "has elements that are not finite", kFinite);
      matrix_at<T>(u, i).setConstant(std::numeric_limits<T>::quiet_NaN());
      list_at<T>(s, i).setConstant(std::numeric_limits<T>::quiet_NaN());
      matrix_at<T>(vt, i).setConstant(std::numeric_limits<T>::quiet_NaN());
      return;
    }
    // This always runs in f64: f32 keeps its small values, and Eigen's code, which takes a minute
    // to compile, exists once.
#if EIGEN_VERSION_AT_LEAST(5, 0, 0)
    const Eigen::BDCSVD<Matrix<double>, Eigen::ComputeThinU | Eigen::ComputeThinV> factors(
        own.template cast<double>());
#else
    const Eigen::BDCSVD<Matrix<double>> factors(own.template cast<double>(),
                                                Eigen::ComputeThinU | Eigen::ComputeThinV);
#endif
    if (factors.info() != Eigen::Success)
      refuse(op, x, i, "has singular values that were not found", "scale it, or take f64");
    matrix_at<T>(u, i) = factors.matrixU().template cast<T>();
    list_at<T>(s, i) = factors.singularValues().template cast<T>();
    matrix_at<T>(vt, i) = factors.matrixV().transpose().template cast<T>();
  });
}

void eigh(const char* op, const ConstView& x, const View& w, const View& v, Stream) {
  for_each_matrix(x, [&]<class T>(std::int64_t i) {
    Matrix<T> lower = matrix_at<T>(x, i).template triangularView<Eigen::Lower>();
    if (!lower.allFinite()) refuse(op, x, i, "has elements that are not finite", kFinite);
    const Eigen::SelfAdjointEigenSolver<Matrix<T>> factors(lower);
    if (factors.info() != Eigen::Success)
      refuse(op, x, i, "has eigenvalues that were not found", "scale it, or take f64");
    list_at<T>(w, i) = factors.eigenvalues();
    matrix_at<T>(v, i) = factors.eigenvectors();
  });
}

}  // namespace firn::kernels::cpu::FIRN_ISA
