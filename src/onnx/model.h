// Runs of one function, for batches of different sizes, as one model: a size that differs between
// them is a multiple of the batch's.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "onnx/trace.h"

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

/// What a function did with a batch of this size.
struct BatchRun {
  Trace trace;
  std::int64_t batch;
};

/// The model of all runs; of one alone, every size is fixed. Throws Error if they differ in more
/// than sizes, or in a size that is neither fixed nor the same multiple of the batch in all.
Model merge(BatchRun first, std::span<const BatchRun> others = {});

}  // namespace firn::io::onnx
