// Golden trajectories of optimizers: files of tests/goldens/optim/optim*.py.
#pragma once

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "support/golden.h"
#include "support/source_path.h"

namespace firn::testing {

/// One run of an optimizer.
struct GoldenRun {
  std::string title, algorithm;  // "SGD f64 lr=0.05", "SGD"
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

/// The rows of a matrix.
inline std::vector<std::vector<double>> rows_of(const GoldenTensor& t) {
  std::vector<std::vector<double>> rows;
  for (auto at = t.values.begin(); at != t.values.end(); at += t.shape[1])
    rows.emplace_back(at, at + t.shape[1]);
  return rows;
}

/// `name` is relative to tests/goldens/optim.
inline GoldenRuns read_runs(const std::string& name) {
  GoldenRuns out;
  for (const GoldenGroup& group : read_golden_groups(source_path("tests/goldens/optim/" + name))) {
    if (group.title.empty()) {
      for (const auto& [item, tensor] : group.items) out.data[item] = tensor.values;
      continue;
    }
    GoldenRun& run = out.runs.emplace_back();
    run.title = group.title;
    std::istringstream words(run.title);
    std::string dtype;
    words >> run.algorithm >> dtype;
    run.dtype = dtype == "f64" ? f64 : f32;
    run.options = options_in(run.title);
    run.steps = rows_of(group.items.at("weights"));
  }
  return out;
}

}  // namespace firn::testing
