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

/// Version of the files that this firn writes, and the only one that it reads.
inline constexpr std::int64_t kRunVersion = 1;
/// Name of the entry that has the version, which no other file has.
inline constexpr const char* kRunVersionName = "firn.run";

/// A saved tensor with its name; it may be sharded.
struct RunEntry {
  std::string name;
  Tensor tensor;
  optim::TensorParts parts = {};
};

/// Contents of a file that was read completely and verified.
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
/// Writes the entries of all ranks. All ranks make the call. The first copy writes, or each rank
/// writes its shards if state is sharded.
void write_run_of_ranks(const char* op, const std::string& path, std::vector<RunEntry> entries,
                        std::span<const Metadata> metadata, const autograd::StepRanks& ranks);
/// Reads a run on this rank; maps the file if this rank needs only a part of it.
RunFile read_run_of_ranks(const char* op, const std::string& path,
                          const autograd::StepRanks& ranks);

// ---- For writers of such a file ----

/// The checksum entries that firn adds; finish() fills them in.
class RunSums {
 public:
  /// Adds the entries, whose tensors are on the CPU.
  explicit RunSums(std::vector<NamedTensor>& entries);
  /// Returns true for an entry of checksums. add() takes the CRC-32 of the other entries, in the
  /// layout's order.
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

/// Returns the entries that save_run() writes for these parts.
std::vector<RunEntry> entries_of(const char* op, std::span<const RunPart> parts);

}  // namespace firn::io
