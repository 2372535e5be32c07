// The list of a folder's entries. std::filesystem's iterators end the program if the heap has no
// memory left: they allocate in a function that cannot throw.
#pragma once

#include <string>
#include <vector>

namespace firn::io {

struct FolderEntry {
  std::string name;        ///< without its folder
  bool is_folder = false;  ///< or a link to a folder
  bool is_link = false;
};

/// What is in `folder` ("": the current one), without "." and "..", in the order of the names.
/// Throws IoError in the name of `op` if the folder cannot be listed, and OutOfMemory.
std::vector<FolderEntry> folder_entries(const char* op, const std::string& folder);

}  // namespace firn::io
