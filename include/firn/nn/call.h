// The call of a module: its input and output tensors, hooks on them, and what every call does
// around forward().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "firn/checkpoint.h"
#include "firn/error.h"
#include "firn/tensor.h"

namespace firn::nn {

class Module;

/// The tensors among the arguments or results of a call, in order. Assigning to one replaces it.
class CallTensors {
 public:
  std::size_t size() const noexcept { return tensors_.size(); }
  bool empty() const noexcept { return tensors_.size() == 0; }
  /// Throws Error if there is no tensor at `index`.
  Tensor& operator[](std::size_t index) const;
  /// Appends a tensor, which must outlive the call.
  void add(Tensor& t);

 private:
  std::vector<Tensor*> tensors_;
};

/// Runs before forward(): may look at the inputs, or replace them.
using ForwardPreHook = std::function<void(Module& module, const CallTensors& inputs)>;
/// Runs after forward(): may look at the outputs, or replace them.
using ForwardHook =
    std::function<void(Module& module, const CallTensors& inputs, const CallTensors& outputs)>;
/// Identifies a hook for Module::remove_hook(); no two hooks have the same id.
using HookId = std::uint64_t;

namespace detail {

struct Hooks;
class MemberCheck;
class EvalScope;

/// The hooks of a module. They stay with it when it is moved; a copy has none.
class HookList {
 public:
  HookList() noexcept = default;
  HookList(const HookList&) noexcept {}
  HookList(HookList&&) noexcept = default;
  HookList& operator=(const HookList&) noexcept { return *this; }
  HookList& operator=(HookList&&) noexcept = default;

  explicit operator bool() const noexcept { return static_cast<bool>(hooks_); }
  HookId add(ForwardPreHook hook);
  HookId add(ForwardHook hook);
  bool remove(HookId id);
  /// Returns the present hooks. A hook that another hook adds runs from the next call on.
  std::shared_ptr<const Hooks> all() const noexcept { return hooks_; }
  /// Returns a list with the same hooks.
  HookList again() const noexcept {
    HookList out;
    out.hooks_ = hooks_;
    return out;
  }

 private:
  std::shared_ptr<const Hooks> hooks_;  ///< null: none. Replaced as a whole, never changed
};

/// Path of a module in reports of memory (memory/report.h), once it is known. A copy and a module
/// that was moved are other modules, whose paths are not known yet.
class PathLabel {
 public:
  PathLabel() noexcept;
  PathLabel(const PathLabel&) noexcept : PathLabel() {}
  PathLabel& operator=(const PathLabel&) noexcept { return *this; }

  /// Returns the label in calls of this outermost module; 0: not known.
  std::uint32_t under(const PathLabel& root) const noexcept {
    const std::uint64_t known = known_.load(std::memory_order_relaxed);
    return known >> 32 == root.number_ ? static_cast<std::uint32_t>(known) : 0;
  }
  void note(const PathLabel& root, std::uint32_t label) noexcept {
    known_.store(std::uint64_t{root.number_} << 32 | label, std::memory_order_relaxed);
  }

 private:
  std::uint32_t number_;                 ///< unique number of this object
  std::atomic<std::uint64_t> known_{0};  ///< the root's number and the label
};

/// Finds a module that may be moved meanwhile.
class ModuleLink {
 public:
  struct Place;

  ModuleLink() noexcept = default;
  ModuleLink(const ModuleLink&) noexcept {}
  ModuleLink(ModuleLink&& from) noexcept { take(from); }
  ModuleLink& operator=(const ModuleLink& from) noexcept;
  ModuleLink& operator=(ModuleLink&& from) noexcept;
  ~ModuleLink() { cut(); }

  /// Returns the place of the module that has this link as a member.
  std::shared_ptr<const Place> place(Module& m);
  /// Throws Error if the module was destroyed or assigned to.
  static Module& at(const Place& place);
  /// Returns null if the module was destroyed or assigned to.
  static Module* find(const Place& place) noexcept;

 private:
  void take(ModuleLink& from) noexcept;
  void cut() noexcept;

  std::shared_ptr<Place> place_;  ///< null until place() is called
};

/// Alive during a call of a module: applies its autocast mode, adds its path to errors, and names
/// it to reports of memory.
class Call {
 public:
  /// Throws Error if the module was moved from.
  explicit Call(Module& m);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// True if before() and after() have anything to do.
  bool watched() const noexcept { return watched_; }
  void before(const CallTensors& inputs);
  void after(const CallTensors& inputs, const CallTensors& outputs);
  /// True if set_checkpoint() applies: checkpoint() is to call forward().
  bool checkpointed() const noexcept;
  const CheckpointOptions& checkpoint_options() const noexcept;

  /// Notes the path of the innermost called module in an error that passes through.
  void failed(Error& e) const noexcept;

  Module& module() const noexcept { return module_; }
  const Call* caller() const noexcept { return caller_; }

 private:
  struct Scopes;

  std::uint32_t label() const noexcept;
  Scopes& scopes();

  /// Records the call in the checkpoint's trace, or repeats it as recorded during recomputation.
  void join_trace();

  Module& module_;
  const Call* const caller_;
  Module& root_;  ///< the outermost module that is being called
  std::uint32_t label_, label_before_;
  bool watched_ = false;
  bool reads_ = false;  ///< the call opened a scope that may gather weights (autograd/reading.h)
  bool again_ = false, training_before_ = false;  ///< true while a checkpoint is recomputed
  std::size_t note_ = 0;                          ///< index of the call in the checkpoint's trace
  std::shared_ptr<Scopes> scopes_;                ///< null: the call needs none
};

/// Throws Error: a call of `m` has arguments that checkpoint() cannot keep.
[[noreturn]] void refuse_checkpoint(const Module& m);

/// Throws OutOfMemory: the heap has no memory left for `what`. Templates call it.
[[noreturn]] void out_of_memory(const char* what);

template <class T>
inline constexpr bool kTuple = requires {
  std::tuple_size<T>::value;
};
template <class T>
inline constexpr bool kOptional = false;
template <class T>
inline constexpr bool kOptional<std::optional<T>> = true;
template <class T>
concept TensorList = requires {
  requires std::is_base_of_v<Tensor, typename T::value_type>;
};
template <class T>
concept LossLike = requires(T& t) {
  requires std::is_same_v<decltype(t.sum), Tensor>;
};

/// The state of a recurrent layer or cell, with or without an output.
template <class T>
concept StateLike = requires(T& t) {
  requires std::is_same_v<decltype(t.h), Tensor>;
  requires std::is_same_v<decltype(t.c), Tensor>;
};

/// Adds the tensors in `value`: a Tensor, a Loss, the state of a recurrent layer, or an optional,
/// vector, array, pair or tuple of tensors. Other types hold no tensors.
template <class T>
void collect(CallTensors& list, T& value) {
  if constexpr (std::is_const_v<T>) {
    return;
  } else if constexpr (std::is_base_of_v<Tensor, T>) {
    list.add(value);
  } else if constexpr (LossLike<T>) {
    list.add(value.sum);
  } else if constexpr (StateLike<T>) {
    if constexpr (requires { value.output; }) list.add(value.output);
    if (value.h.defined()) list.add(value.h);
    if (value.c.defined()) list.add(value.c);
  } else if constexpr (kTuple<T>) {
    std::apply([&](auto&... parts) { (collect(list, parts), ...); }, value);
  } else if constexpr (kOptional<T>) {
    if (value) collect(list, *value);
  } else if constexpr (TensorList<T>) {
    for (auto& t : value) collect(list, t);
  }
}

template <class... Ts>
CallTensors tensors_in(Ts&... values) {
  CallTensors list;
  (collect(list, values), ...);
  return list;
}

/// Arguments that hooks may replace are copied (copies share the elements); others are forwarded.
template <class A, class T = std::remove_cvref_t<A>>
using Kept = std::conditional_t<std::is_copy_constructible_v<T> &&
                                    (std::is_base_of_v<Tensor, T> || TensorList<T> ||
                                     kOptional<T> || kTuple<T> || StateLike<T>),
                                T, A&&>;

}  // namespace detail
}  // namespace firn::nn
