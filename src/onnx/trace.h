// The trace of a function: operations with operands, results and attributes. Values are numbered in
// the order of their appearance, so two runs of one function are compared number by number.
//
// A value that depends on no input is a constant. Only constants that are combined with such values
// are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "firn/tensor.h"

namespace firn::io::onnx {

inline constexpr const char* kExport = "export_onnx";

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
using Number = std::variant<std::int64_t, double, Dims, std::string>;

struct TracedValue {
  DType dtype;
  Shape shape;
};

struct TracedOp {
  std::string op;            ///< name in errors, e.g. "add_"
  std::string rule;          ///< its computation: the formula of an elementwise op, e.g. "add"
  std::string module;        ///< path of the module that was called; empty for the root
  std::vector<int> inputs;   ///< numbers of values; -1: the operand was not given
  std::vector<int> outputs;  ///< number of the result; for sort and topk also of the positions
  std::map<std::string, Number> numbers;
  std::map<std::string, int> tensors;  ///< operands without gradients; -1: not given
};

/// A value that depends on no input.
struct Constant {
  std::string name;  ///< name of a parameter or buffer; else empty
  Tensor value;      ///< a parameter itself, or a row-major copy on the CPU
};

struct Trace {
  std::vector<TracedValue> values;
  std::map<int, Constant> constants;
  std::vector<int> inputs, outputs;
  std::vector<TracedOp> ops;
};

/// Runs `f` on `inputs`, without gradients and outside any Autocast guard. `named` are parameters
/// and buffers. Throws Error if f draws random numbers, writes to a named tensor, reads a tensor
/// that was written through a view, or returns nothing.
Trace trace(const Function& f, const std::vector<Tensor>& inputs,
            const std::vector<NamedTensor>& named);

/// Returns a row-major copy on the CPU, of which no listener is notified.
Tensor on_host(const Tensor& t);

}  // namespace firn::io::onnx
