// Modules with any number and types of inputs and outputs.
#pragma once

#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#include "firn/nn/module.h"

#ifdef __CUDACC__
// A ModuleOf hides Module's forward() on purpose, and so does every class derived from it.
#pragma nv_diag_suppress 997
#endif

namespace firn::nn {

namespace detail {

/// True if forward() of M takes these arguments.
template <class M, class... Args>
concept ForwardsTo = requires(M& m, Args&&... args) {
  m.forward(std::forward<Args>(args)...);
};

}  // namespace detail

/// Base of a module whose forward() has any signature; the template argument is the struct itself:
///
///   struct Attention : nn::ModuleOf<Attention> {
///     nn::Linear q{64, 64}, k{64, 64}, v{64, 64};
///     FIRN_MEMBERS(q, k, v)
///     Tensor forward(const Tensor& x, const Tensor& memory, const Tensor& mask = {});
///   };
///   Attention attention;
///   Tensor y = attention(x, memory);
///
/// If forward() takes one tensor and returns something else, take it by value: `std::pair<Tensor,
/// Tensor> forward(Tensor x)`. With `const Tensor&` it would override Module's forward(), which
/// returns a Tensor, and compilers call that an invalid return type.
///
/// A call runs forward() with these arguments and returns its result. It behaves like the call of a
/// module with one input: set_autocast() applies, hooks run, errors name the path,
/// summary(inputs...) shows the outputs. Arguments in braces have no type to forward: write
/// Tensor() or give the parameter a default. Such a module cannot be part of a Sequential, unless
/// its forward() takes one Tensor and returns one.
template <class Derived>
class ModuleOf : public Module, public detail::AnySignature {
 public:
  /// Calls forward() with these arguments.
  template <class... Args, class Self = Derived>
  requires detail::ForwardsTo<Self, Args...>
  decltype(auto) operator()(Args&&... args) try {
    Derived& self = static_cast<Derived&>(*this);
    detail::Call call(*this);
    try {
      if (!call.watched()) [[likely]]
        return forward_of(call, self, std::forward<Args>(args)...);
      return watched_call(call, self, std::forward<Args>(args)...);
    } catch (Error& e) {
      call.failed(e);
      throw;
    }
  } catch (const std::bad_alloc&) {
    detail::out_of_memory("a module");
  }

  using Module::summary;
  /// These work as those of Module, for any result of forward().
  std::string summary(const Tensor& input) const {
    if constexpr (requires(Derived & self) { self.forward(input); })
      return const_cast<ModuleOf*>(this)->summary_of(input);
    else
      return Module::summary(input);
  }
  std::string summary(const Shape& input) const { return summary(zeros_as_input(input)); }
  /// Returns the table with each module's output shape, found by a call with these inputs in
  /// evaluation mode.
  template <class First, class Second, class... Rest>
  std::string summary(const First& first, const Second& second, const Rest&... rest) const {
    return const_cast<ModuleOf*>(this)->summary_of(first, second, rest...);
  }
  template <class Only>
  requires(!std::is_convertible_v<const Only&, Shape> &&
           !std::is_convertible_v<const Only&, Tensor>) std::string summary(const Only& only)
  const { return const_cast<ModuleOf*>(this)->summary_of(only); }

 protected:
  /// Hides Module's forward(), so that compilers do not warn that the one of `Derived` does.
  static void forward() = delete;

 private:
  /// Calls forward(), by checkpoint() if set_checkpoint() says so.
  template <class... Args>
  static decltype(auto) forward_of(detail::Call& call, Derived& self, Args&&... args) {
    // The second pass needs arguments of its own, which it does not write to.
    constexpr bool repeats = requires {
      self.forward(static_cast<const std::remove_reference_t<Args>&>(args)...);
    }
    &&(std::is_copy_constructible_v<std::decay_t<Args>> && ...);
    if constexpr (repeats) {
      if (call.checkpointed()) [[unlikely]]
        return firn::checkpoint(call.checkpoint_options(), detail::ForwardOf<Derived>(self),
                                static_cast<const std::remove_reference_t<Args>&>(args)...);
    } else if (call.checkpointed()) {
      detail::refuse_checkpoint(self);
    }
    return self.forward(std::forward<Args>(args)...);
  }

  template <class... Args>
  static decltype(auto) watched_call(detail::Call& call, Derived& self, Args&&... args) {
    // A forward() that writes to its arguments receives the caller's objects.
    constexpr bool reads = requires {
      self.forward(static_cast<const std::remove_reference_t<Args>&>(args)...);
    };
    using All = std::conditional_t<reads, std::tuple<detail::Kept<Args>...>, std::tuple<Args&&...>>;
    All all(std::forward<Args>(args)...);
    return std::apply(
        [&](auto&... kept) -> decltype(auto) {
          const CallTensors inputs = detail::tensors_in(kept...);
          call.before(inputs);
          // No alias: its name would shadow a type of the user's (-Wshadow).
          if constexpr (std::is_void_v<decltype(self.forward(std::forward<Args>(args)...))>) {
            forward_of(call, self, static_cast<Args&&>(kept)...);
            call.after(inputs, {});
          } else {
            decltype(auto) result = forward_of(call, self, static_cast<Args&&>(kept)...);
            call.after(inputs, detail::tensors_in(result));
            return result;
          }
        },
        all);
  }

  template <class... Inputs>
  std::string summary_of(const Inputs&... inputs) {
    std::tuple<Inputs...> kept(inputs...);
    return std::apply(
        [&](auto&... input) {
          return summarize_call(detail::tensors_in(input...), [&] { (*this)(input...); });
        },
        kept);
  }
};

}  // namespace firn::nn
