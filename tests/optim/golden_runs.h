// Golden trajectories of optimizers: files of tests/goldens/optim/optim*.py.
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/source_path.h"

namespace firn::testing {

/// One run of an optimizer.
struct GoldenRun {
  std::string title, algorithm;
  DType dtype = f64;
  std::map<std::string, double> options;
  std::vector<std::vector<double>> steps;

  double get(const char* key, double otherwise) const {
    const auto found = options.find(key);
    return found == options.end() ? otherwise : found->second;
  }
};

struct GoldenRuns {
  std::map<std::string, std::vector<double>> data;  // initial, goal, curve
  std::vector<GoldenRun> runs;
};

inline std::vector<double> numbers(std::istream& in) {
  std::vector<double> out;
  for (double v = 0; in >> v;) out.push_back(v);
  return out;
}

/// `name` is relative to tests/goldens.
inline GoldenRuns read_runs(const std::string& name) {
  std::ifstream file(source_path("tests/goldens/optim/" + name));
  REQUIRE(file);
  GoldenRuns out;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string key, word;
    line >> key;
    if (key == "run") {
      GoldenRun& run = out.runs.emplace_back();
      run.title = text;
      line >> run.algorithm >> word;
      run.dtype = word == "f64" ? f64 : f32;
      while (line >> word)
        run.options[word.substr(0, word.find('='))] = std::stod(word.substr(word.find('=') + 1));
    } else if (key == "step") {
      line >> word >> word;
      out.runs.back().steps.push_back(numbers(line));
    } else {
      line >> word;
      out.data[key] = numbers(line);
    }
  }
  return out;
}

}  // namespace firn::testing
