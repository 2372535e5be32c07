#include "io/file/folder_entries.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/check.h"
#include "io/file/path.h"

namespace firn::io {
namespace {

[[noreturn]] void fail(const char* op, const std::string& folder, int error) {
  if (error == ENOMEM) throw std::bad_alloc();
  throw IoError(op, folder, fmt::format("cannot be listed: {}", std::strerror(error)),
                "name a folder that is there and may be read");
}

FolderEntry describe(int folder, const dirent& entry) {
  FolderEntry out{.name = entry.d_name};
  // Some file systems leave the kind out. A link without a target is not a folder.
  struct stat info {};
  out.is_link = entry.d_type == DT_LNK;
  if (entry.d_type == DT_UNKNOWN)
    out.is_link =
        ::fstatat(folder, entry.d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode);
  out.is_folder = entry.d_type == DT_DIR;
  if (out.is_link || entry.d_type == DT_UNKNOWN)
    out.is_folder = ::fstatat(folder, entry.d_name, &info, 0) == 0 && S_ISDIR(info.st_mode);
  return out;
}

}  // namespace

std::vector<FolderEntry> folder_entries(const char* op, const std::string& folder) try {
  check_path(op, folder);
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.empty() ? "." : folder.c_str()),
                                                 ::closedir);
  if (!open) fail(op, folder, errno);
  std::vector<FolderEntry> out;
  for (;;) {
    errno = 0;  // NULL means the end or a failure
    const dirent* entry = ::readdir(open.get());
    if (!entry && errno != 0) fail(op, folder, errno);
    if (!entry) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") out.push_back(describe(::dirfd(open.get()), *entry));
  }
  std::sort(out.begin(), out.end(),
            [](const FolderEntry& a, const FolderEntry& b) { return a.name < b.name; });
  return out;
}
FIRN_OUT_OF_MEMORY(op)

}  // namespace firn::io
