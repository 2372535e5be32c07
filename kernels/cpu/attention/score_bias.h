// The bias that is added to a block of scores.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention/geometry.h"

namespace firn::kernels::cpu::FIRN_ISA {

template <class C>
class ScoreBias {
 public:
  explicit ScoreBias(const AttentionArgs& args) : bias_(args.bias), scale_(C(args.scale)) {}

  bool given() const { return bias_.data != nullptr; }
  /// x = scale x + bias for the products x of a block of a batch entry's query head, whose rows are
  /// `ld` apart. Both passes call it, so that they see the same scores.
  void add(std::int64_t b, std::int64_t head, const PairBlock& block, C* x, std::int64_t ld) const;

 private:
  ConstView bias_;
  C scale_;
};

}  // namespace firn::kernels::cpu::FIRN_ISA
