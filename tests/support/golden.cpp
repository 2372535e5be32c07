#include "support/golden.h"
#include "support/source_path.h"
#include "support/values.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace firn::testing {
namespace {

DType dtype_named(const std::string& name) {
  for (DType t : kAllDTypes)
    if (name == to_string(t)) return t;
  throw Error("read_goldens", "unknown dtype " + name);
}

// Sizes up to the colon.
Shape read_shape(std::istringstream& in) {
  Shape shape;
  for (std::string word; in >> word && word != ":";) shape.push_back(std::stoll(word));
  return shape;
}

std::vector<double> read_values(std::istringstream& in) {
  std::vector<double> values;
  for (std::string word; in >> word;) values.push_back(std::strtod(word.c_str(), nullptr));
  return values;
}

}  // namespace

std::map<std::string, Golden> read_goldens(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw IoError("read_goldens", path, "cannot be opened");
  std::map<std::string, Golden> all;
  Golden* record = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream in(line);
    std::string key, word;
    in >> key;
    if (key == "record") {
      std::getline(in >> std::ws, word);
      if (all.contains(word)) throw IoError("read_goldens", path, "two records named " + word);
      record = &all[word];
      continue;
    }
    if (record == nullptr) throw IoError("read_goldens", path, "a line before the first record");
    GoldenTensor t;
    if (key == "input") {
      in >> word;
      t.dtype = dtype_named(word);
      t.shape = read_shape(in);
      t.values = read_values(in);
      record->inputs.push_back(std::move(t));
    } else if (key == "output") {
      t.shape = read_shape(in);
      t.values = read_values(in);
      record->output = std::move(t);
    } else if (key == "seed") {
      in >> word;
      record->seed = read_values(in);
    } else if (key == "gradient") {
      int index = 0;
      in >> index >> word;
      record->gradients[index] = read_values(in);
    } else {
      throw IoError("read_goldens", path, "unknown item " + key);
    }
  }
  return all;
}

const std::map<std::string, Golden>& op_goldens() {
  static const std::map<std::string, Golden> all = [] {
    std::map<std::string, Golden> m;
    namespace fs = std::filesystem;
    for (const auto& entry :
         fs::directory_iterator(firn::testing::source_path("tests/goldens/ops")))
      if (entry.path().extension() == ".txt") m.merge(read_goldens(entry.path().string()));
    return m;
  }();
  return all;
}

}  // namespace firn::testing
