// Reads the golden files: values computed by PyTorch, written by tests/goldens/*.py.
//
// A file is text, one item a line:
//   record NAME
//   input DTYPE SIZE SIZE ... : VALUE VALUE ...      one per operand
//   output SIZE ... : VALUE ...
//   seed : VALUE ...                                 gradient of the output, where there is one
//   gradient INDEX : VALUE ...                       per differentiable operand
// Values are the shortest decimal numbers that give the f64 back.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "firn/firn.h"

namespace firn::testing {

struct GoldenTensor {
  DType dtype = f64;
  Shape shape;
  std::vector<double> values;
};

struct Golden {
  std::vector<GoldenTensor> inputs;
  GoldenTensor output;
  std::vector<double> seed;
  std::map<int, std::vector<double>> gradients;  // by operand
};

/// All records of one file; throws IoError on what it does not understand.
std::map<std::string, Golden> read_goldens(const std::string& path);

/// All records of all files in tests/goldens/ops.
const std::map<std::string, Golden>& op_goldens();

}  // namespace firn::testing
