// The file of a run whose state ranks divide: each rank writes what it has at its place.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "autograd/peers.h"
#include "firn/io/safetensors.h"
#include "io/run/run_file.h"

namespace firn::io {

/// Whether ranks open rank 0's file. Off: they send it what they have, as ranks do that find no
/// such file. Tests set it.
bool& ranks_open_one_file() noexcept;

/// Writes the file as write_run() does, of entries of which some have parts. A call of all ranks:
/// if it throws on one, it throws on all. Entries without parts are rank 0's. No rank needs memory
/// for more than some MiB of another's parts.
void write_parts(const char* op, const std::string& path, std::vector<RunEntry> entries,
                 std::span<const Metadata> metadata, const autograd::Peers& peers);

/// Rank 0 gets the whole of each entry. A call of all ranks; null: there are no parts.
std::vector<NamedTensor> whole_of(const char* op, std::vector<RunEntry> entries,
                                  const autograd::Peers* peers);

}  // namespace firn::io
