#include "base/control_groups.h"

#include <fstream>

namespace firn {

std::vector<ControlGroup> control_groups(const std::string& controller, const char* membership,
                                         const char* root) {
  std::vector<ControlGroup> groups;
  std::ifstream in(membership);
  for (std::string line; std::getline(in, line);) {
    // hierarchy:controllers:path
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find("," + controller + ",") == std::string::npos) continue;
    const std::string base = std::string(root) + (unified ? "" : "/" + controller);
    for (std::string path = line.substr(second + 1);; path.erase(path.rfind('/'))) {
      if (path == "/") path.clear();
      groups.push_back({base + path, unified});
      if (path.find('/') == std::string::npos) break;
    }
  }
  return groups;
}

}  // namespace firn
