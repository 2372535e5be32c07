// Reads the golden files: values of PyTorch and other libraries, written by tests/goldens/*.py.
//
// A file is in the safetensors format. A tensor's name is "TITLE/ITEM", and the tensors of one
// title belong together. Most files have a record for each call of an operation or layer. A
// record's title is its name, and its items are
//   input 0, input 1, ...   operands
//   output
//   seed                    gradient of the output, where there is one
//   gradient INDEX          one for each differentiable operand
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

/// The tensors "TITLE/ITEM" of one title, by item. Tensors whose name has no slash have the title
/// "".
struct GoldenGroup {
  std::string title;
  std::map<std::string, GoldenTensor> items;
};

/// A record of an operation or a layer.
struct Golden {
  std::vector<GoldenTensor> inputs;
  GoldenTensor output;
  std::vector<double> seed;
  std::map<int, std::vector<double>> gradients;  // by operand
};

/// The groups of a file, in its order. Throws IoError for what is not a file in the format.
std::vector<GoldenGroup> read_golden_groups(const std::string& path);

/// The numbers of a title such as "schedule cosine lr=0.1 steps=50", by their names.
std::map<std::string, double> options_in(const std::string& title);

/// All records of one file; throws IoError for an item that no record has.
std::map<std::string, Golden> read_goldens(const std::string& path);

/// All records of all files in tests/goldens/ops.
const std::map<std::string, Golden>& op_goldens();

}  // namespace firn::testing
