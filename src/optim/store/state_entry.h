// A tensor of an optimizer's state, whole or sharded over ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "firn/tensor.h"

namespace firn::optim {

/// The shards of a tensor: consecutive elements in row-major order, or in the order of memory
/// (StateEntry::parts_in_memory).
struct TensorParts {
  /// Rank r has the elements from bounds[r] up to bounds[r + 1]. Empty: the tensor is not sharded.
  std::vector<std::int64_t> bounds = {};
  Tensor part = {};  ///< this rank's shard, contiguous

  bool any() const noexcept { return !bounds.empty(); }
};

struct StateEntry {
  std::string name;
  Tensor tensor;  ///< value; with parts only its shape and dtype count
  /// For a sharded tensor: replaces it by another one, of which this rank keeps its shard. The
  /// first call allocates memory; calling its result writes, and must not throw.
  std::function<std::function<void()>(const Tensor&)> prepare = {};
  /// For a part of the state that depends on options: gives it the value that it has before the
  /// first step, for the weights as they are. Must neither allocate nor throw.
  std::function<void()> begin = {};
  /// True if a file may have any number of rows of it, or none. Without rows `prepare` gets an
  /// undefined tensor.
  bool any_rows = false;
  /// For codes of 8-bit states: the memory format of their weight. The tensor is flat if that is
  /// not contiguous.
  std::optional<MemoryFormat> codes_of = {};
  TensorParts parts = {};
  /// Set instead of `parts` if the order of elements in memory is not row-major. Then
  /// StepExtension::gather_entries() gathers the tensor, whose strides are `strides`.
  TensorParts parts_in_memory = {};
  Strides strides = {};
};

}  // namespace firn::optim
