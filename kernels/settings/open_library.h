// Finds a vendor's library at run time.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

namespace firn::kernels {

struct OpenedLibrary {
  std::string name;   ///< the one of `names` that was opened, or empty
  std::string tried;  ///< a line for each that was not, with the reason
};

/// Returns the names of lib`library`: the system's libLIBRARY.so.MAJOR, in the process or the
/// search path, then the file that the build found, if it found one.
inline std::vector<std::string> library_names(const std::string& library, int major,
                                              const std::string& found_by_build) {
  std::vector<std::string> names = {"lib" + library + ".so." + std::to_string(major)};
  if (!found_by_build.empty()) names.push_back(found_by_build);
  return names;
}

/// Opens the libraries in turn until take(handle) returns "": the library then has the functions
/// that it needs. Else `take` returns the reason. The library stays open, since objects that it
/// makes live as long as the process.
template <class Take>
OpenedLibrary open_library(const std::vector<std::string>& names, const Take& take) {
  OpenedLibrary out;
  for (const std::string& name : names) {
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::string why;
    if (library) {
      why = take(library);
      if (why.empty()) {
        out.name = name;
        return out;
      }
      dlclose(library);
    } else {
      const char* const error = dlerror();
      why = error ? error : "not found";
    }
    out.tried += "\n  " + name + ": " + why;
  }
  return out;
}

}  // namespace firn::kernels
