#include "support/golden.h"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>

#include "firn/io/safetensors.h"
#include "support/source_path.h"

namespace firn::testing {
namespace {

Golden record_of(const std::string& path, const GoldenGroup& group) {
  const auto& items = group.items;
  if (!items.contains("output"))
    throw IoError("read_goldens", path, "no output of the record " + group.title);
  Golden record;
  for (int i = 0; items.contains(fmt::format("input {}", i)); ++i) {
    record.inputs.push_back(items.at(fmt::format("input {}", i)));
    const auto gradient = items.find(fmt::format("gradient {}", i));
    if (gradient != items.end()) record.gradients[i] = gradient->second.values;
  }
  record.output = items.at("output");
  const auto seed = items.find("seed");
  if (seed != items.end()) record.seed = seed->second.values;
  const std::size_t known =
      record.inputs.size() + record.gradients.size() + 1 + (seed != items.end() ? 1 : 0);
  if (known != items.size())
    throw IoError("read_goldens", path, "an unknown item in the record " + group.title);
  return record;
}

}  // namespace

std::vector<GoldenGroup> read_golden_groups(const std::string& path) {
  std::vector<GoldenGroup> groups;
  std::map<std::string, std::size_t> positions;
  for (const NamedTensor& t : io::load_safetensors(path)) {
    const std::size_t slash = t.name.rfind('/');
    const bool has_title = slash != std::string::npos;
    const std::string title = has_title ? t.name.substr(0, slash) : "";
    const std::string item = has_title ? t.name.substr(slash + 1) : t.name;
    const auto [position, is_new] = positions.try_emplace(title, groups.size());
    if (is_new) groups.push_back({title, {}});
    groups[position->second].items[item] = {t.tensor.dtype(), t.tensor.shape(),
                                            t.tensor.to_vector<double>()};
  }
  return groups;
}

std::map<std::string, double> options_in(const std::string& title) {
  std::map<std::string, double> options;
  std::istringstream words(title);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos)
      options[word.substr(0, equals)] = std::stod(word.substr(equals + 1));
  }
  return options;
}

std::map<std::string, Golden> read_goldens(const std::string& path) {
  std::map<std::string, Golden> all;
  for (const GoldenGroup& group : read_golden_groups(path))
    all[group.title] = record_of(path, group);
  return all;
}

const std::map<std::string, Golden>& op_goldens() {
  static const std::map<std::string, Golden> all = [] {
    std::map<std::string, Golden> m;
    namespace fs = std::filesystem;
    for (const auto& entry : fs::directory_iterator(source_path("tests/goldens/ops")))
      if (entry.path().extension() == ".safetensors") m.merge(read_goldens(entry.path().string()));
    return m;
  }();
  return all;
}

}  // namespace firn::testing
