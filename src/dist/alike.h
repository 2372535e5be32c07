// The comparison of the ranks' optimizers in distribute(). Each exchange has memory that was
// allocated before, so that a rank without memory can tell the others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "firn/dist/group.h"
#include "optim/impl.h"

namespace firn::dist {

/// The facts that ranks compare. Those that are left out are not compared.
struct OptimizerFacts {
  std::int64_t micro_steps = 0;               ///< those of the cycle under way, at least 1; 0: none
  std::int64_t number = 0;                    ///< number of the optimizer on this rank
  std::string kind = {};                      ///< settings and state, one item a line
  std::vector<std::int64_t> formats = {};     ///< memory format of each parameter
  std::vector<optim::NamedState> state = {};  ///< tensors whose values are compared
};

/// Returns the memory format of each parameter. Sums over ranks, shards and 8-bit states go by the
/// place of an element in memory.
std::vector<std::int64_t> formats_of(const optim::ParamStore& store);
/// Returns true for state of the optimizer itself: learning rate, loss scale, counters.
bool is_of_optimizer(const optim::NamedState& s);

/// A comparison among the ranks of `group`, which is one of the CPU. All ranks make these calls in
/// this order. Those that exchange allocate nothing.
class Comparison {
 public:
  Comparison(Group group, OptimizerFacts mine);
  void exchange_sizes() const { group_.all_gather(size_, sizes_); }
  void reserve();
  void exchange() const { group_.all_gather(fact_, facts_); }
  /// Throws Error, on all ranks or on none, unless the ranks' facts are alike.
  void require_alike(const optim::ParamStore& store) const;
  /// Returns the number of rank 0's optimizer.
  std::int64_t number() const { return size_of(0).number; }

 private:
  struct Size {
    std::int64_t micro_steps, number, text, numbers;
  };
  Size size_of(std::size_t rank) const;
  const std::int64_t* numbers_of(std::size_t rank) const;
  std::string_view text_of(std::size_t rank) const;

  Group group_;
  OptimizerFacts mine_;
  std::vector<std::int64_t> numbers_;  ///< formats, then hashes of the values
  Tensor size_, sizes_;                ///< i64: Size of this rank, and of all ranks
  Tensor fact_, facts_;                ///< u8: numbers and text, padded to the longest
};

}  // namespace firn::dist
