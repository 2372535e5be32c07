// A layer includes only what stands below it: reads every #include of the library against floors.h.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <regex>
#include <sstream>
#include <string>

#include "repo/files.h"
#include "repo/floors.h"
#include "support/catch.h"

namespace repo {
namespace {

bool starts_with_any(std::string_view text, const std::vector<std::string_view>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view p) { return text.starts_with(p); });
}

bool contains(const std::vector<std::string_view>& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// Breaches of the law in one file, each a sentence; empty where it keeps the law.
std::vector<std::string> breaches(const std::string& path, const std::string& text) {
  std::vector<std::string> found;
  const auto breach = [&](const std::string& what) { found.push_back(path + " " + what); };
  const Part* part = part_of(path);
  if (part == nullptr) {
    breach("belongs to no layer: add it to the table");
    return found;
  }
  static const std::regex include(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch m;
    if (!std::regex_search(line, m, include)) continue;
    const std::string name = m[2];
    if (m[1] == "\"") {
      const Part* other = part_of(file_included(name));
      if (other == nullptr || !std::filesystem::exists(root() / file_included(name))) {
        breach("includes \"" + name + "\", which is no file of include/, src/ or kernels/");
      } else if (other != part && !contains(part->may_include, other->name)) {
        breach("(" + std::string(part->name) + ") includes \"" + name + "\" (" +
               std::string(other->name) + ")");
      }
      for (const Stranger& s : kStrangers)
        for (const std::string_view word : s.words)
          if (starts_with_any(path, s.files) && name.find(word) != std::string::npos)
            breach("includes \"" + name + "\", and is to know no " + std::string(word));
      if (path.starts_with("include/") && !name.starts_with("firn/"))
        breach("is public and includes \"" + name + "\", which is not installed");
      continue;
    }
    const auto foreign = std::find_if(kForeign.begin(), kForeign.end(),
                                      [&](const Foreign& f) { return name.starts_with(f.prefix); });
    if (foreign != kForeign.end()) {
      if (!starts_with_any(path, foreign->allowed)) breach("includes <" + name + ">");
    } else if (name.find_first_of("./") != std::string::npos) {
      breach("includes <" + name + ">, of which the table knows nothing");
    }
    if (path.starts_with("include/") && contains(kHeavy, name)) {
      breach("includes <" + name + ">, which is too heavy for a public header");
    }
    if (part->name == "math" && !contains(kMathStd, name)) breach("includes <" + name + ">");
    if (path.ends_with(".cu") && name.starts_with("Eigen/")) breach("is device code with Eigen");
  }
  return found;
}

TEST_CASE("every file of the library includes only what stands below it") {
  const auto files = sources({"include", "src", "kernels"});
  REQUIRE(files.size() > 50);
  std::vector<std::string> all;
  for (const auto& file : files) {
    const auto found = breaches(file, read(file));
    all.insert(all.end(), found.begin(), found.end());
  }
  CAPTURE(all);
  CHECK(all.empty());
}

TEST_CASE("the include law sees a breach") {
  const auto refused = [](const std::string& path, const std::string& line) {
    return breaches(path, line).size() == 1;
  };
  CHECK(refused("src/tensor/tensor.cpp", "#include \"firn/ops/ops.h\""));
  CHECK(refused("src/optim/rules/sgd.cpp", "#include \"firn/nn/module.h\""));
  CHECK(refused("src/optim/rules/sgd.cpp", "#include \"firn/ops/ops.h\""));
  CHECK(refused("kernels/gemm.h", "#include \"firn/tensor.h\""));
  CHECK(refused("kernels/cpu/gemm/gemm.cpp", "  #  include \"autograd/node.h\""));
  CHECK(refused("kernels/cuda/device/gpu.h", "#include \"runtime/memory/allocator.h\""));
  CHECK(refused("kernels/cpu/index/gather.cpp", "#include \"base/check.h\""));
  CHECK(refused("include/firn/tensor.h", "#include \"base/check.h\""));
  CHECK(refused("src/ops/unary.cpp", "#include \"kernels/cpu/device/parallel.h\""));
  CHECK(refused("src/ops/unary.cpp", "#include \"ops/nowhere.h\""));
  CHECK(refused("src/ops/unary.cpp", "#include <Eigen/Core>"));
  CHECK(refused("kernels/math/unary.h", "#include <vector>"));
  CHECK(refused("include/firn/tensor.h", "#include <fmt/format.h>"));
  CHECK(refused("include/firn/tensor.h", "#include <boost/any.hpp>"));
  CHECK(refused("include/firn/tensor.h", "#include <iostream>"));
  CHECK(refused("include/firn/unheard_of.h", ""));
  CHECK(refused("src/autograd/engine.cpp", "#include \"kernels/optim.h\""));
  CHECK(refused("kernels/rows.h", "#include \"kernels/plan/step_memory.h\""));
  CHECK(refused("kernels/cpu/rows/cross_entropy.cpp", "#include \"kernels/cpu/optim/arena.h\""));

  CHECK(refused("src/io/run/run_parts.cpp", "#include \"firn/data/loader.h\""));
  CHECK(refused("src/data/tensor_source.cpp", "#include \"firn/train/record.h\""));
  CHECK(refused("src/metrics/mistakes.cpp", "#include \"firn/train/record.h\""));
  CHECK(refused("src/ops/product/matmul.cpp", "#include \"firn/ops/linalg.h\""));
  CHECK(refused("src/optim/step.cpp", "#include \"firn/dist/group.h\""));
  CHECK(refused("src/io/npy.cpp", "#include \"firn/onnx/export.h\""));
  CHECK(refused("src/io/npy.cpp", "#include \"firn/lm/gguf.h\""));
  CHECK(refused("include/firn/core.h", "#include \"firn/data/loader.h\""));
  CHECK(refused("src/tools/report/main.cpp", "#include \"io/json.h\""));
  CHECK(refused("src/train/fit/fit.cpp", "#include <nlohmann/json.hpp>"));

  CHECK(breaches("src/tools/report/main.cpp", "#include <nlohmann/json.hpp>").empty());
  CHECK(breaches("src/optim/rules/sgd.cpp", "#include \"firn/ops/losses.h\"").empty());
  CHECK(breaches("src/autograd/engine.cpp", "#include \"kernels/copy.h\"").empty());
  CHECK(
      breaches("kernels/cuda/device/gpu.h", "#include \"firn/runtime/kernel_support.h\"").empty());
  CHECK(breaches("include/firn/tensor.h", "#include <vector>").empty());
  CHECK(breaches("kernels/cpu/gemm/gemm.cpp", "#include <Eigen/Core>").empty());
}

}  // namespace
}  // namespace repo
