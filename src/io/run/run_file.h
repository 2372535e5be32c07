// The file of a saved run: entries by name, with the CRC-32 of each and of the header.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "firn/io/run.h"
#include "firn/io/safetensors_file.h"
#include "io/run/run_parts.h"

namespace firn::io {

/// The version of the files that this firn writes, and the only one that it reads.
inline constexpr std::int64_t kRunVersion = 1;

/// What is saved under a name, which ranks may have in parts.
struct RunEntry {
  std::string name;
  Tensor tensor;
  optim::TensorParts parts = {};
};

/// A file that was read as a whole and verified.
struct RunFile {
  std::map<std::string, Tensor> entries;
  std::int64_t version = 0;
};

/// Throws IoError if the file cannot be read, is not a saved run, or is damaged. With `map` its
/// tensors are pages of the file, which the system takes back if it needs memory.
RunFile read_run(const char* op, const std::string& path, bool map = false);
/// Writes the entries atomically, with their sums. Throws as save_run() does.
void write_run(const char* op, const std::string& path, std::vector<NamedTensor> entries,
               std::span<const Metadata> metadata = {});
/// The same of what ranks have. A call of all ranks, of which the first copy writes, or if state is
/// divided each its parts.
void write_run_of_ranks(const char* op, const std::string& path, std::vector<RunEntry> entries,
                        std::span<const Metadata> metadata, const autograd::StepRanks& ranks);
/// The file is read by pages if this rank needs a part of it alone.
RunFile read_run_of_ranks(const char* op, const std::string& path,
                          const autograd::StepRanks& ranks);

// ---- For who writes such a file ----

/// The entries that firn adds, and what they are to have when all others are known.
class RunSums {
 public:
  /// Adds the entries, whose tensors live on the CPU.
  explicit RunSums(std::vector<NamedTensor>& entries);
  /// CRC-32 of an entry of the layout, in its order; those of firn's sums are not asked for.
  static bool is_sum(const NamedTensor& named);
  void add(std::int64_t crc) { values_.push_back(crc); }
  /// Fills in the sums, when all were added.
  void finish(const std::string& header);

 private:
  std::vector<std::int64_t> values_;
  Tensor sums_, header_sum_;
};

/// Compares the file with the parts, then writes it into them. Throws as load_run() does.
void restore_run(const char* op, const std::string& path, RunFile file,
                 std::span<const RunPart> parts, const LoadRunOptions& options);

/// What save_run() writes of these parts.
std::vector<RunEntry> entries_of(const char* op, std::span<const RunPart> parts);

}  // namespace firn::io
