// Two runs of one function, for batches of different sizes, as one model: a size that differs
// between them is a multiple of the batch's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "io/onnx/trace.h"

namespace firn::io::onnx {

/// A number that is fixed, or `times` the batch's size.
struct Size {
  std::int64_t fixed = 0;
  std::int64_t times = 0;  ///< if it is not 0, `fixed` is
  bool is_fixed() const noexcept { return times == 0; }
  bool operator==(const Size&) const = default;
};
using Sizes = std::vector<Size>;

struct ModelValue {
  DType dtype;
  Sizes shape;
};

using ModelNumber = std::variant<Size, double, Sizes, std::string>;

struct ModelOp {
  const TracedOp* traced;  ///< names and operands
  std::map<std::string, ModelNumber> numbers;
};

struct ModelConstant {
  std::string name;     ///< of a parameter or buffer; else empty
  Tensor value;         ///< of size 1 along the axes along which it is repeated with the batch
  bool counts = false;  ///< it is 0, 1, 2, ... as far as the batch goes; `value` is undefined
};

struct Model {
  Trace trace;  ///< of the first run; `ops` point into it
  std::vector<ModelValue> values;
  std::vector<ModelOp> ops;
  std::map<int, ModelConstant> constants;
};

/// The model of one run: every size is fixed.
Model fixed_model(Trace trace);
/// Of two runs, for batches of `n1` and `n2`. Throws Error if they differ in more than sizes.
Model merge(Trace first, const Trace& second, std::int64_t n1, std::int64_t n2);

}  // namespace firn::io::onnx
