// The repository's own files, for the tests that read them.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

namespace repo {

/// The folder with the root CMakeLists.txt.
std::filesystem::path root();

/// The text of a file, by its path relative to root(). Throws std::runtime_error where it cannot be
/// read.
std::string read(const std::string& path);

/// Paths, relative to root() and sorted, of the C++ and CUDA files in the given folders.
std::vector<std::string> sources(std::initializer_list<const char*> folders);

/// The file of the library, relative to root(), that `#include "name"` means.
std::string file_included(const std::string& name);

}  // namespace repo
