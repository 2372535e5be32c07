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

/// A file that was read as a whole and verified.
struct RunFile {
  std::map<std::string, Tensor> entries;
  std::int64_t version = 0;
};

/// Throws IoError if the file cannot be read, is not a saved run, or is damaged.
RunFile read_run(const char* op, const std::string& path);
/// Writes the entries atomically, with their sums. Throws as save_run() does.
void write_run(const char* op, const std::string& path, std::vector<NamedTensor> entries,
               std::span<const Metadata> metadata = {});

/// Compares the file with the parts, then writes it into them. Throws as load_run() does.
void restore_run(const char* op, const std::string& path, RunFile file,
                 std::span<const RunPart> parts, const LoadRunOptions& options);

/// What save_run() writes of these parts.
std::vector<NamedTensor> entries_of(const char* op, std::span<const RunPart> parts);

}  // namespace firn::io
