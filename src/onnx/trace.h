// What a function did with its inputs: operations with operands, results and attributes. Values are
// numbered in the order in which they appear, so two runs of one function are compared number by
// number.
//
// What no input has a part in is a constant: only the values that meet an input are kept.
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
  std::string op;            ///< as errors name it, e.g. "add_"
  std::string rule;          ///< what it computes: the formula of an elementwise op, e.g. "add"
  std::string module;        ///< path of the module that was called; empty for the root
  std::vector<int> inputs;   ///< numbers of values; -1: none was given
  std::vector<int> outputs;  ///< the result; of sort and topk the positions too
  std::map<std::string, Number> numbers;
  std::map<std::string, int> tensors;  ///< operands that take no gradient; -1: none
};

/// A value that depends on no input.
struct Constant {
  std::string name;  ///< of a parameter or buffer; else empty
  Tensor value;      ///< a parameter itself, or a row-major copy on the CPU
};

struct Trace {
  std::vector<TracedValue> values;
  std::map<int, Constant> constants;
  std::vector<int> inputs, outputs;
  std::vector<TracedOp> ops;
};

/// Runs `f` on `inputs`, without gradients and outside of any Autocast guard. `named` are
/// parameters and buffers. Throws Error if f draws random numbers, writes to a named tensor, reads
/// a tensor that was written through a view, or returns nothing.
Trace trace(const Function& f, const std::vector<Tensor>& inputs,
            const std::vector<NamedTensor>& named);

/// Row-major and on the CPU, in a way that no listener sees.
Tensor on_host(const Tensor& t);

}  // namespace firn::io::onnx
