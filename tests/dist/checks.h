// Collectives beside plain loops, for every kind of group: ranks that are threads, processes, or
// CUDA devices.
// These functions are called by all ranks, and throw on failure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "firn/dist/group.h"
#include "firn/dtype.h"

namespace firn::test {

enum class Collective { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, barrier };

/// A collective with inputs that follow from `salt` and the rank.
struct Trial {
  Collective call = Collective::barrier;
  DType dtype = f32;
  dist::Reduce op = dist::Reduce::sum;
  std::int64_t count = 0;  ///< of a part
  int root = 0;
  std::uint64_t salt = 0;
  bool in_place = false;  ///< the part is a part of the whole
};
std::string describe(const Trial& trial);

/// Makes the call and compares the result with a plain loop over what all ranks gave. Floats among
/// the inputs are infinite and NaN, and sums of integers wrap around.
void check(const dist::Group& group, const Trial& trial);

/// Every collective, dtype, operation and root with parts of these sizes; in place too. Returns the
/// number of calls.
int check_every_call(const dist::Group& group, const std::vector<std::int64_t>& counts);

/// Calls in an order that follows from `seed`, with sizes up to `most`.
void check_random_calls(const dist::Group& group, std::uint64_t seed, int calls, std::int64_t most);

/// Messages of every dtype with these sizes between all pairs of ranks, and around the ring.
/// Returns the number of messages that this rank has taken part in.
int check_messages(const dist::Group& group, const std::vector<std::int64_t>& counts);

/// Parts of the group and parts of these, in their order, with calls and messages in each.
void check_splits(const dist::Group& group);

/// What an element of `rank` is: bits that follow from all three numbers.
std::uint64_t mixed(std::uint64_t salt, std::uint64_t rank, std::uint64_t i);

}  // namespace firn::test
