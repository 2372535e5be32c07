// Activation checkpointing: a part of a model keeps its inputs, and drops the tensors that its
// operations save. The backward pass computes those again when it reaches the part (Chen et al.
// 2016).
//
//   Tensor h = checkpoint(block, x);                             // block(x), with less memory
//   Tensor y = checkpoint([&](const Tensor& t) { return f(t); }, h);
//
// nn::Module::set_checkpoint() checkpoints every call of a module; nn/checkpoint.h does so for many
// modules. Rules such as S36 are in docs/semantics.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#include "firn/autograd.h"
#include "firn/error.h"
#include "firn/tensor.h"

namespace firn {

/// Tensors that a checkpointed part keeps until its backward pass.
enum class Keep : std::uint8_t {
  /// Its inputs alone: the whole part is computed again.
  inputs,
  /// Also the results of linear, matmul, mlp, convolutions and attention. The rest is computed
  /// again, with some of these products: together at most a tenth of the work of all.
  products,
  /// Everything, inputs too, in pinned memory of the host. The forward pass throws Error for
  /// tensors on the CPU.
  on_host,
  /// Everything, inputs too, in a temporary file of the process. On a CUDA device the host waits
  /// for each copy. The file is in FIRN_OFFLOAD_DIR, else TMPDIR, else /tmp. These variables are
  /// read when the file is first needed.
  in_file
};

struct CheckpointOptions {
  Keep keep = Keep::inputs;  ///< tensors that the forward pass keeps
  /// Compares hashes of the recomputed values with those of the first pass. Each pass reads these
  /// values once more. Has no effect with on_host and in_file.
  bool check_values = true;
};

namespace autograd {
class Segment;
}

namespace detail {

/// Alive while the function given to checkpoint() runs for the first time.
class CheckpointScope {
 public:
  /// `again` calls the function once more. A checkpointed call inside a function that is being
  /// recomputed does not run if nothing needs its results: the constructor then throws.
  [[nodiscard]] CheckpointScope(const CheckpointOptions& options, std::function<void()> again);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  ///< held by this object alone
};

/// Returns the function to call a second time: a copy of `fn`, or for a module a handle that finds
/// it (kept_module() of nn/module.h).
template <class Fn>
auto kept(Fn& fn) {
  if constexpr (requires { kept_module(fn); }) {
    return kept_module(fn);
  } else {
    static_assert(std::is_copy_constructible_v<Fn>,
                  "checkpoint: the function is copied, for the second call: capture what can be "
                  "copied, such as a std::shared_ptr in place of a std::unique_ptr");
    return std::remove_cv_t<Fn>(fn);
  }
}

[[noreturn]] void refuse_empty_function();
/// Throws Error for an empty std::function and a null pointer.
template <class R, class... Args>
void require_function(const std::function<R(Args...)>& fn) {
  if (!fn) refuse_empty_function();
}
template <class R, class... Args>
void require_function(R (*const& fn)(Args...)) {
  if (!fn) refuse_empty_function();
}
template <class Fn>
void require_function(const Fn&) {}

/// Version counter of a tensor's storage; 0 for other inputs.
std::uint32_t version_of(const Tensor& input) noexcept;
template <class T>
std::uint32_t version_of(const T&) noexcept {
  return 0;
}

/// `e` came out of the second call. Throws an Error that names input number `i` if that input was
/// written since the first call; else returns.
void blame_input(const Error& e, std::size_t i, std::uint32_t version_then, const Tensor& now);
template <class T>
void blame_input(const Error&, std::size_t, std::uint32_t, const T&) {}

/// Returns the scope of the first call. The second call is made by a copy of `fn`, with the same
/// inputs.
template <class Fn, class... Inputs>
CheckpointScope begin_checkpoint(const CheckpointOptions& options, Fn& fn,
                                 const Inputs&... inputs) try {
  using Kept = decltype(detail::kept(fn));
  auto again = std::make_shared<std::tuple<Kept, std::decay_t<const Inputs&>...>>(detail::kept(fn),
                                                                                  inputs...);
  using Versions = std::array<std::uint32_t, sizeof...(Inputs)>;
  return CheckpointScope(options, [again, then = Versions{detail::version_of(inputs)...}] {
    std::apply(
        [&then](auto& f, const auto&... in) {
          try {
            static_cast<void>(std::invoke(f, in...));
          } catch (const Error& e) {
            std::size_t i = 0;
            ((detail::blame_input(e, i, then[i], in), ++i), ...);
            throw;
          }
        },
        *again);
  });
} catch (const std::bad_alloc&) {
  out_of_memory("checkpoint");
}

}  // namespace detail

/// Returns fn(inputs...), with the same gradients to the bit, but keeps less memory. The result may
/// have any type: a tensor, a Loss, a tuple, or void. grad() with create_graph throws Error for
/// operations that `fn` has recorded.
///
/// With Keep::inputs and Keep::products, the backward pass calls a copy of `fn` with the same
/// inputs. The autocast, the default device and the training modes are those of the first call.
/// Random operations give the same numbers; statistics of BatchNorm move once, and hooks of modules
/// and tensors run once. All other effects of `fn` happen twice. The second call ends once nothing
/// more is needed, by an exception that does not derive from std::exception. So neither `fn` nor a
/// function that it calls may be noexcept, and no destructor may run recorded operations. With
/// on_host and in_file, the pass fetches the saved tensors, and `fn` runs once.
///
/// Tensors that `fn` captures, such as a module's parameters, get their gradients too. `fn` and the
/// inputs are kept until the backward pass ends. A captured reference must stay valid until then. A
/// module given as `fn` is not copied, and may be moved meanwhile.
///
/// Checkpoints nest. An outer checkpoint that contains only an inner one frees no further memory.
/// Settings of modules must not change before the backward pass. Under NoGrad this is
/// fn(inputs...). backward() throws Error if the second call computes something else (S36); the
/// message names the module and the operation. On a CUDA device the error comes at the next wait of
/// the host. backward() also throws if the module has been destroyed. backward() and grad() throw
/// Error if `fn` calls them. Throws Error if `fn` is an empty std::function or a null pointer.
template <class Fn, class... Inputs>
decltype(auto) checkpoint(const CheckpointOptions& options, Fn&& fn, const Inputs&... inputs) {
  static_assert(!std::is_nothrow_invocable_v<Fn&, const Inputs&...>,
                "checkpoint: the function must not be noexcept, since operations throw");
  detail::require_function(fn);
  if (!grad_enabled()) return std::invoke(fn, inputs...);
  const detail::CheckpointScope scope = detail::begin_checkpoint(options, fn, inputs...);
  return std::invoke(fn, inputs...);
}
template <class Fn, class... Inputs>
requires(!std::is_same_v<std::remove_cvref_t<Fn>, CheckpointOptions>) decltype(auto)
    checkpoint(Fn&& fn, const Inputs&... inputs) {
  return checkpoint(CheckpointOptions(), std::forward<Fn>(fn), inputs...);
}

}  // namespace firn
