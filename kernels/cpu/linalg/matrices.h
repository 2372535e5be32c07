// Batches of matrices as Eigen's maps, and the loop over them.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <string>

#include "firn/error.h"
#include "firn/view.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Returns matrix i of a batch [batch, rows, columns].
template <class T>
Eigen::Map<const RowMajor<T>> matrix_at(const ConstView& v, std::int64_t i) {
  return {v.as<T>() + i * v.strides[0], v.shape[1], v.shape[2]};
}
template <class T>
Eigen::Map<RowMajor<T>> matrix_at(const View& v, std::int64_t i) {
  return {v.as<T>() + i * v.strides[0], v.shape[1], v.shape[2]};
}
/// Returns list i of a batch [batch, n].
template <class T>
Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, 1>> list_at(const View& v, std::int64_t i) {
  return {v.as<T>() + i * v.strides[0], v.shape[1]};
}

/// Calls fn.operator()<T>(i) for each matrix of x that has elements, where T is x's dtype.
template <class Fn>
void for_each_matrix(const ConstView& x, Fn&& fn) {
  if (x.shape[1] == 0 || x.shape[2] == 0) return;
  const std::int64_t work = x.shape[0] * x.shape[1] * x.shape[2] * (x.shape[1] + x.shape[2]);
  parallel_for(x.shape[0], work, [&](std::int64_t i) {
    if (x.dtype == DType::f64) {
      fn.template operator()<double>(i);
    } else {
      fn.template operator()<float>(i);
    }
  });
}

/// Throws Error, which names the matrix: "matrix 3 of [5, 2, 2] ...".
[[noreturn]] inline void refuse(const char* op, const ConstView& x, std::int64_t i,
                                const std::string& what, const char* hint) {
  throw Error(op, "matrix " + std::to_string(i) + " of " + to_string(x.shape) + " " + what, hint);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
