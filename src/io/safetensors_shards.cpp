// Writes a model as several files and an index. Until the index is renamed, the old index and all
// of its files are untouched.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "io/file/atomic_file.h"
#include "io/file/input_file.h"
#include "io/file/locked_folder.h"
#include "io/file/path.h"
#include "io/safetensors_header.h"
#include "io/safetensors_layout.h"
#include "io/shard_index.h"

namespace firn::io {
namespace {

constexpr const char* kOp = "save_safetensors_shards";
using nn::NamedTensor;
using Shard = std::span<const NamedTensor>;

/// Files that the destructor removes unless the index has been written.
class Written {
 public:
  /// Must be called before the file exists, so that nothing can fail afterwards.
  void add(const std::string& path) { paths_.push_back(path); }
  void keep() noexcept { paths_.clear(); }
  Written() = default;
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;
  ~Written() {
    for (const std::string& path : paths_) ::unlink(path.c_str());
  }

 private:
  std::vector<std::string> paths_;
};

/// Throws IoError if the lookup fails; otherwise the file of an old model would count as a free
/// name.
bool exists(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) return true;
  if (errno == ENOENT) return false;
  throw IoError(kOp, path, fmt::format("cannot be looked up: {}", std::strerror(errno)));
}

/// Divides the tensors into shards, in their order.
std::vector<Shard> divided(std::span<const NamedTensor> tensors, std::uint64_t most) {
  std::vector<Shard> shards;
  std::uint64_t bytes = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t more = tensors[i].tensor.bytes();
    if (i > first && more > most - std::min(most, bytes)) {
      shards.push_back(tensors.subspan(first, i - first));
      first = i;
      bytes = 0;
    }
    bytes += more;
  }
  shards.push_back(tensors.subspan(first));
  return shards;
}

/// Returns "model-00001-of-00003.safetensors" and so on, with "-r2", "-r3", ... if such a file
/// exists.
std::vector<std::string> free_names(const std::string& folder, std::size_t count) {
  for (int revision = 1;; ++revision) {
    const std::string stem = revision == 1 ? "model" : fmt::format("model-r{}", revision);
    std::vector<std::string> names;
    bool taken = false;
    for (std::size_t i = 1; i <= count; ++i) {
      names.push_back(fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i, count));
      taken = taken || exists(folder + names.back());
    }
    if (!taken) return names;
  }
}

/// Returns the files that an index names. Throws IoError if it cannot be read.
std::set<std::string> files_of_index(const std::string& path) {
  std::set<std::string> files;
  std::string text;
  for (const auto& weight : read_shard_index(kOp, path, text).weights) files.emplace(weight.file);
  return files;
}

bool is_shard(std::string_view file) {
  return file.starts_with("model-") && file.ends_with(".safetensors");
}

/// The index in a folder, and the files that it names.
struct OldIndex {
  std::set<std::string> files;
  std::string text;  ///< empty: no index, or an unreadable one whose files stay
};

OldIndex old_index(const std::string& path) {
  OldIndex old;
  if (!exists(path)) return old;
  try {
    old.files = files_of_index(path);
    InputFile file(kOp, path);
    old.text.resize(file.bytes());
    file.read_all(old.text.data(), old.text.size());
  } catch (const IoError&) {
    old = {};
  }
  return old;
}

/// Removes the files that killed savers left. These are files being written, whose names may not be
/// used again, and whole shards that no index names. A killed saver leaves a temporary index with
/// the names of its shards, or with those that its own index replaced.
void remove_leftovers(const std::string& prefix, const OldIndex& old) {
  AtomicFile::remove_leftovers(prefix, is_shard);
  if (old.text.empty() && exists(prefix + std::string(kIndexName))) return;
  AtomicFile::remove_leftovers(
      prefix, [](std::string_view target) { return target == kIndexName; },
      [&](const std::string& left) {
        for (const std::string& file : files_of_index(left))
          if (is_shard(file) && !old.files.contains(file)) ::unlink((prefix + file).c_str());
      });
}

std::string index_of(const std::vector<Shard>& shards, const std::vector<std::string>& names,
                     std::span<const Metadata> metadata) {
  std::uint64_t total = 0;
  std::string map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const NamedTensor& named : shards[i]) {
      total += named.tensor.bytes();
      map += fmt::format("{}\n    {}: {}", map.empty() ? "" : ",", json_string(named.name),
                         json_string(names[i]));
    }
  }
  std::string head = fmt::format("\n    \"{}\": {}", kTotalSize, total);
  for (const auto& [key, value] : metadata)
    head += fmt::format(",\n    {}: {}", json_string(key), json_string(value));
  return fmt::format("{{\n  \"metadata\": {{{}\n  }},\n  \"weight_map\": {{{}\n  }}\n}}\n", head,
                     map);
}

}  // namespace

std::string save_safetensors_shards(const std::string& folder, std::span<const NamedTensor> tensors,
                                    std::span<const Metadata> metadata,
                                    const ShardOptions& options) try {
  check_names(kOp, tensors, metadata);
  FIRN_CHECK(options.max_bytes > 0, kOp, "give the most bytes of one file",
             "max_bytes is 0, and a file has at least one byte of tensors");
  for (const Metadata& m : metadata)
    FIRN_CHECK(m.first != kTotalSize, kOp, "leave it out: it is written by itself",
               "the metadata key \"{}\" is the index's own", kTotalSize);

  if (folder.empty())
    throw IoError(kOp, folder, "the path is empty", "name a folder: \".\" is the current one");
  const LockedFolder lock(kOp, folder, LockedFolder::IfLocked::wait);
  const std::string prefix = folder.back() == '/' ? folder : folder + "/";
  std::string index_path = prefix + std::string(kIndexName);  // not const: returned by a move
  const std::vector<Shard> shards = divided(tensors, options.max_bytes);
  const OldIndex old = old_index(index_path);
  remove_leftovers(prefix, old);
  const std::vector<std::string> names = free_names(prefix, shards.size());
  std::vector<std::string> replaced;
  for (const std::string& name : old.files) replaced.push_back(prefix + name);
  const std::string index = index_of(shards, names, metadata);
  FIRN_CHECK(index.size() <= kLongestHeader, kOp, "shorten names and metadata",
             "the index takes {} bytes; it may have at most {}", index.size(), kLongestHeader);

  Written written;
  // If this process dies between the new index and the removal of the old shards, this file names
  // the old shards. It never becomes the index.
  std::optional<AtomicFile> names_of_old;
  if (!old.text.empty()) {
    names_of_old.emplace(kOp, index_path);
    names_of_old->write(old.text.data(), old.text.size());
  }
  AtomicFile index_file(kOp, index_path);
  index_file.write(index.data(), index.size());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string path = prefix + names[i];
    written.add(path);
    write_safetensors(kOp, path, layout_of(kOp, shards[i], metadata));
  }
  try {
    index_file.commit();
  } catch (...) {
    // If only the flush of the folder failed, the index names the new files. The old ones stay too.
    if (index_file.is_renamed()) written.keep();
    throw;
  }
  written.keep();
  // The index no longer names them.
  for (const std::string& path : replaced) ::unlink(path.c_str());
  return index_path;
}
FIRN_OUT_OF_MEMORY("save_safetensors_shards")

}  // namespace firn::io
