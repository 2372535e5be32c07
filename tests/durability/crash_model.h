// Which files a power failure can leave, by what POSIX promises: fsync() makes a file's bytes last,
// fsync() of the folder makes its names last. All else may be lost, in part or as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "durability/syscalls.h"
#include "durability/training.h"
#include "support/values.h"

namespace firn::testing {

/// How many of the many states are built.
struct CrashSamples {
  std::size_t cuts = 8;      ///< lengths of a file whose writes were not flushed
  std::size_t random = 8;    ///< sets of its sectors that arrived
  std::size_t folders = 64;  ///< sets of names that arrived
};

/// A folder without folders in it, on a disk. Bytes that were written and not flushed may be there,
/// missing, zero or garbage, each sector of 512 bytes by itself; the length may be any in between.
/// A create, rename or unlink that was not flushed may have happened or not, each by itself.
class CrashModel {
 public:
  CrashModel(const Snapshot& files, std::uint64_t seed, const CrashSamples& samples);
  /// Takes note of a call that was done.
  void apply(const Call& call);
  /// The folder as running programs see it.
  Snapshot live() const;
  /// What may be there if the power fails now.
  std::vector<Snapshot> states();

 private:
  struct Change {
    std::size_t offset = 0;
    std::string data;
    bool cuts = false;  ///< the length becomes `offset`
  };
  struct File {
    std::string flushed;
    std::vector<Change> pending;
    std::string live() const;
  };
  using Names = std::map<std::string, std::size_t>;
  struct Naming {
    std::string removed, added;  ///< either may be empty
    std::size_t file = 0;
    void apply(Names& names) const;
  };

  void rename(Naming naming);
  std::vector<Names> folders();
  std::vector<std::string> contents(const File& file);

  Rng rng_;
  CrashSamples samples_;
  std::vector<File> files_;
  Names names_, flushed_names_;
  std::vector<Naming> pending_;
};

/// Calls `check` once for every different state that a power failure can leave at any point of
/// `calls`, with the files, whether the save had returned, and a description of the point.
using CrashCheck = std::function<void(const Snapshot&, bool returned, const std::string& where)>;
std::size_t for_each_crash(const Snapshot& before, const std::vector<Call>& calls,
                           const CrashSamples& samples, const CrashCheck& check);

}  // namespace firn::testing
