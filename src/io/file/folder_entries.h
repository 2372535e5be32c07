// Lists a folder's entries. std::filesystem's iterators end the program if the heap has no memory
// left: they allocate in a function that cannot throw.
#pragma once

#include <string>
#include <vector>

namespace firn::io {

struct FolderEntry {
  std::string name;        ///< without its folder
  bool is_folder = false;  ///< true for a folder or a link to one
  bool is_link = false;
};

/// Returns the entries of `folder` ("": the current one), without "." and "..", sorted by name.
/// Throws IoError in the name of `op` if the folder cannot be listed, and OutOfMemory.
std::vector<FolderEntry> folder_entries(const char* op, const std::string& folder);

}  // namespace firn::io
