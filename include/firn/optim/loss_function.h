// Overloads for loss functions that return a tensor: the compiler says to return a Loss.
#pragma once

#include <concepts>
#include <type_traits>

#include "firn/tensor.h"

namespace firn::detail {

/// True if a call of Fn with Args returns a tensor.
template <class Fn, class... Args>
concept GivesTensor = requires(Fn& fn, Args... args) {
  requires std::same_as<std::remove_cvref_t<decltype(fn(args...))>, Tensor>;
};

/// Stops the compilation with an explanation.
template <class Fn>
[[noreturn]] void refuse_tensor_as_loss() {
  static_assert(!sizeof(Fn*),
                "a loss function returns a Loss, which has a weight, not a Tensor: return "
                "cross_entropy(net(x), y), or LossTerms{terms}.loss() of terms of your own");
  throw;
}

}  // namespace firn::detail
