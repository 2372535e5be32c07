// Checks that FIRN_MEMBERS lists the members that forward() uses.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "autograd/op_mode.h"
#include "firn/nn/module.h"

namespace firn::nn {

/// Finds members that FIRN_MEMBERS leaves out. It notes the parameters that a training call of an
/// outermost module uses. A parameter is never trained if the tree does not list it and no
/// optimizer holds it, while an optimizer holds some of the tree.
class detail::MemberCheck final : public autograd::OpListener {
 public:
  ~MemberCheck() override { stop(); }
  /// True if this call of `m` is to be checked. Counts the call.
  static bool due(Module& m) noexcept {
    const std::atomic_ref<std::uint8_t> left(m.member_checks_left_);
    const std::uint8_t n = left.load(std::memory_order_relaxed);
    if (n > 0) left.store(n - 1, std::memory_order_relaxed);
    return n > 0;
  }

  void ran(const char* op, std::span<const Tensor* const> operands, const Tensor&) override;
  /// Warns of parameters that the calls of `root` have used and that no optimizer trains.
  void report(Module& root);

 private:
  struct Use {
    Tensor parameter;
    const char* op;
    const Module* module;  ///< may be gone at the end of the outermost call
    std::string name;
  };

  static bool is_trained(const Tensor& t) noexcept;

  std::unordered_set<const TensorImpl*> seen_;
  std::vector<Use> uses_;
};

}  // namespace firn::nn
