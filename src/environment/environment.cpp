// environment() puts the parts together.
#include "firn/environment.h"

#include <sys/utsname.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "base/check.h"
#include "data/files/fashion_mnist_files.h"
#include "environment/parts.h"
#include "firn/error.h"
#include "io/json.h"

namespace firn {
namespace environment_parts {
namespace {

/// Replaces `folder` in `text` wherever it ends with a whole name of a path.
void replace_folder(std::string& text, const std::string& folder, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(folder, at)) != std::string::npos;) {
    const std::size_t end = at + folder.size();
    const bool whole =
        end == text.size() || std::string("/:;, '\n").find(text[end]) != std::string::npos;
    if (whole) text.replace(at, folder.size(), by);
    at += whole ? by.size() : 1;
  }
}

}  // namespace

std::string as_utf8(std::string text) {
  for (std::size_t bad; (bad = io::not_utf8(text)) != std::string::npos;) text[bad] = '?';
  return text;
}

std::string presentable(std::string text) {
  text = as_utf8(std::move(text));
  std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  while (home.ends_with('/')) home.pop_back();
  if (!home.empty()) replace_folder(text, home, "~");
  const char* const user = std::getenv("USER");
  if (user && *user) replace_folder(text, std::string("/") + user, "/USER");
  return text;
}

std::vector<Environment::DataSet> data_sets() {
  Environment::DataSet fashion;
  fashion.name = "FashionMNIST";
  try {
    fashion.folder = presentable(data::find_fashion_mnist());
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {
    fashion.why = presentable(e.message());
  }
  return {fashion};
}

}  // namespace environment_parts

Environment environment(const EnvironmentOptions& options) try {
  namespace parts = environment_parts;
  Environment e;
  e.build = parts::build();
  utsname system{};
  ::uname(&system);
  e.system = std::string(system.sysname) + " " + system.release;
  e.cpu = parts::cpu();
  e.memory = parts::memory();
  e.cuda = parts::cuda(options);
  parts::add_libraries(e);
  parts::add_ranks(e, options);
  e.data = parts::data_sets();
  e.variables = parts::variables();
  return e;
}
FIRN_OUT_OF_MEMORY("environment")

}  // namespace firn
