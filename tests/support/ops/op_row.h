// The op table. A row says how to call an op, what its operands look like and how exact it is; from
// that one row comes a test case, of these sections (firn_test_ops exp -c "integers" runs one):
//   gradient (f64)    analytic gradient = central difference, f64 (not with `kinks`)
//   second derivative (f64)   the recorded gradient equals the other, and its own gradient the
//                     central difference (rows without first_derivative_only)
//   f16 is f32 rounded once   (and bf16) the result is that of f32 on the same operands
//   f32 against f64   (and f16, bf16) forward and backward against f64, with the bounds of
//   op_check.h non-contiguous    the same in f32 for transposed, stepped, misaligned and repeated
//   operands against PyTorch   values and gradients of tests/goldens/ops (rows with `golden`)
//   integers          exact (rows with `integers`)
//   in place          the form with an underscore (rows with `in_place`)
//   dry run           by shapes alone it allocates the same and writes nothing (dry_run.h)
// They run on the default device: the CPU, or what FIRN_TEST_DEVICE says (main.cpp).
// A row is registered while the program starts, so it must not touch a tensor then: everything is
// in the functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "firn/firn.h"

namespace firn::testing {

/// How the values of one operand are drawn.
struct Arg {
  enum class Kind { real, index, boolean };
  Kind kind = Kind::real;
  double low = -2, high = 2;   ///< reals: uniform in [low, high)
  std::vector<double> avoid;   ///< reals: kinks and poles, kept 0.05 away from
  bool apart = false;          ///< reals: on a grid of 1/64; up to 256 values, no two equal
  double phase = 0;            ///< reals: where that grid begins
  bool whole = false;          ///< reals: rounded down, so that some values are equal
  std::int64_t classes = 1;    ///< indices: in [0, classes)
  bool differentiable = true;  ///< reals: whether gradients are checked
  double special = 0;          ///< indices: a value that every third one takes, if
  bool has_special = false;    ///<   has_special (ignore_index)
};
Arg real(double low = -2, double high = 2, std::vector<double> avoid = {});
/// All values differ by more than the step of a central difference (max, min); so do those of two
/// operands whose phases, in [0, 1/64), differ.
Arg apart(double low = -2, double high = 2, double phase = 0);
/// Whole numbers in [low, high): ties and exact zeros.
Arg whole(double low = -2, double high = 3);
/// A real operand whose gradient the op does not give.
Arg constant(double low = -2, double high = 2);
/// Both.
Arg whole_constant(double low = -2, double high = 3);
Arg index(std::int64_t classes);
Arg index_or(std::int64_t classes, std::int64_t special);
Arg mask();

/// How exact a result is; the bounds are in op_check.h.
enum class Accuracy {
  exact,      ///< copies and comparisons: to the bit
  rounded,    ///< one correctly rounded operation
  pointwise,  ///< a few ulp of each value
  normwise,   ///< a few ulp of the largest value: cancellation within the op
  sum,        ///< sums of products: 4 sqrt(K) u of the sum of magnitudes
};

using Args = std::vector<Tensor>;
using OpFn = std::function<Tensor(const Args&)>;

struct OpRow {
  std::string name;
  OpFn op;
  std::vector<Arg> args;
  std::vector<std::vector<Shape>> shapes;  ///< each entry: a shape for every operand
  Accuracy accuracy = Accuracy::pointwise;
  double terms = 1;   ///< K: the longest sum of the forward pass
  double scale = 0;   ///< values inside the op reach this size, however small the result
  double slope = 0;   ///< derivatives inside the op reach this size, however small the gradient
  int roundings = 1;  ///< roundings to the dtype on the way from operands to result
  bool golden = false;
  bool integers = false;
  bool smooth = true;       ///< no operand meets a kink: central differences hold
  bool second = true;       ///< grad() with create_graph gives its gradient a graph
  bool keeps_dtype = true;  ///< the result has the operands' dtype
  std::function<void(Tensor&, const Args&)> in_place;
  std::vector<Shape> perf_shapes;
  double perf_flops = 0;  ///< 0: bandwidth-bound, GB/s are printed

  bool differentiable() const;
};

/// Fills in a row; it is registered at the end of the statement.
class Row {
 public:
  Row(std::string name, OpFn op) {
    row_.name = std::move(name);
    row_.op = std::move(op);
  }
  ~Row();
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  Row& args(std::vector<Arg> a) { return row_.args = std::move(a), *this; }
  Row& shapes(std::vector<std::vector<Shape>> s) { return row_.shapes = std::move(s), *this; }
  Row& accuracy(Accuracy a, double terms = 1) {
    return row_.accuracy = a, row_.terms = terms, *this;
  }
  /// For ops whose result or gradient can be the small difference of larger numbers.
  Row& cancels(double scale, double slope) { return row_.scale = scale, row_.slope = slope, *this; }
  Row& roundings(int n) { return row_.roundings = n, *this; }
  Row& golden() { return row_.golden = true, *this; }
  Row& integers() { return row_.integers = true, *this; }
  Row& kinks() { return row_.smooth = false, *this; }
  Row& first_derivative_only() { return row_.second = false, *this; }
  Row& own_dtype() { return row_.keeps_dtype = false, *this; }
  Row& in_place(std::function<void(Tensor&, const Args&)> fn) {
    return row_.in_place = std::move(fn), *this;
  }
  Row& perf(std::vector<Shape> shapes, double flops = 0) {
    return row_.perf_shapes = std::move(shapes), row_.perf_flops = flops, *this;
  }

 private:
  OpRow row_;
};

/// Every row that this program registered.
const std::vector<OpRow>& rows();

/// Times the forward pass of the rows that have perf shapes and whose name holds `part`; prints one
/// line each.
void measure_rows(std::string_view part);

}  // namespace firn::testing

/// Opens a block of rows: FIRN_OP_ROWS(unary) { Row("exp", ...).args(...); ... }
#define FIRN_OP_ROWS(family)                                     \
  static void firn_rows_##family();                              \
  static const bool firn_rows_##family##_registered =            \
      (firn_rows_##family(), true); /* NOLINT(cert-err58-cpp) */ \
  static void firn_rows_##family()
