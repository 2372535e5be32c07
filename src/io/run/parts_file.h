// The file of a run whose state is sharded: each rank writes its shards at their place.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "autograd/peers.h"
#include "firn/io/safetensors.h"
#include "io/run/run_file.h"

namespace firn::io {

/// True if ranks open rank 0's file. False: they send it their shards, as ranks do that do not find
/// the file. Tests set it.
bool& ranks_open_one_file() noexcept;

/// Writes the file as write_run() does, from entries of which some have shards. All ranks make the
/// call: if it throws on one, it throws on all. Entries without shards are rank 0's. A rank needs
/// memory for only some MiB of another rank's shards.
void write_parts(const char* op, const std::string& path, std::vector<RunEntry> entries,
                 std::span<const Metadata> metadata, const autograd::Peers& peers);

/// Returns the entries, complete on rank 0. All ranks make the call; `peers` is null if nothing is
/// sharded.
std::vector<NamedTensor> whole_of(const char* op, std::vector<RunEntry> entries,
                                  const autograd::Peers* peers);

}  // namespace firn::io
