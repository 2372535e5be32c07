// Merges runs of one function on batches of different sizes into one model. A size that differs
// between the runs is a multiple of the batch's.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "onnx/trace.h"

namespace firn::io::onnx {

/// A fixed number, or `times` the batch's size.
struct Size {
  std::int64_t fixed = 0;
  std::int64_t times = 0;  ///< multiple of the batch; then `fixed` is 0
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
  std::string name;     ///< name of a parameter or buffer; else empty
  Tensor value;         ///< its size is 1 along axes on which it repeats with the batch
  bool counts = false;  ///< true for 0, 1, 2, ... up to the batch; `value` is undefined
};

struct Model {
  Trace trace;  ///< trace of the first run; `ops` point into it
  std::vector<ModelValue> values;
  std::vector<ModelOp> ops;
  std::map<int, ModelConstant> constants;
};

/// Trace of a function on a batch of this size.
struct BatchRun {
  Trace trace;
  std::int64_t batch;
};

/// Returns the model of all runs; with one run, every size is fixed. Throws Error if the runs
/// differ in more than sizes. Throws Error for a size that is neither fixed nor the same multiple
/// of the batch in all runs.
Model merge(BatchRun first, std::span<const BatchRun> others = {});

}  // namespace firn::io::onnx
