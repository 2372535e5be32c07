// Module: a part of a model that holds parameters. A model is a struct with members and a forward:
//
//   struct Net : firn::nn::Module {
//     nn::Linear fc1{784, 512}, fc2{512, 10};
//     FIRN_MEMBERS(fc1, fc2)
//     Tensor forward(const Tensor& x) override { return fc2(relu(fc1(flatten(x, 1)))); }
//   };
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "firn/nn/call.h"
#include "firn/nn/members.h"
#include "firn/nn/parameter.h"
#include "firn/tensor.h"

namespace firn::nn {

using firn::NamedTensor;
/// A module with its path; the root's is empty.
struct NamedModule {
  std::string name;  ///< its path, such as "encoder.0"
  Module* module;    ///< never null
};

namespace detail {

/// True in an object that was moved from, until it is assigned to.
class MovedFrom {
 public:
  MovedFrom() noexcept = default;
  MovedFrom(const MovedFrom&) noexcept = default;
  MovedFrom(MovedFrom&& from) noexcept : is_(std::exchange(from.is_, true)) {}
  MovedFrom& operator=(const MovedFrom&) noexcept = default;
  MovedFrom& operator=(MovedFrom&& from) noexcept {
    const bool was = std::exchange(from.is_, true);
    is_ = was;
    return *this;
  }
  explicit operator bool() const noexcept { return is_; }

 private:
  bool is_ = false;
};

/// Replaces the parameters, buffers and shared modules of `copy`, which the copy constructor made
/// from `original`, by copies of its own.
void separate(Module& copy, const Module& original);
[[noreturn]] void refuse_slicing(const Module& m);
/// Returns true if `m` was moved from and so holds nothing.
bool was_moved_from(const Module& m) noexcept;

template <class M>
class ForwardOf;
template <class M>
class CallOf;

}  // namespace detail

/// Base of all layers and models; ModuleOf (module_of.h) is the base of those with several inputs.
///
/// A module keeps no pointer to its members, so it may be copied, moved and held in containers. A
/// copy has the same parameters (handles are copied, not elements): `std::vector<Linear>(3, layer)`
/// is three layers with one weight, and parameters() and summary() warn about them. Layers that are
/// to share their weights are held as one by std::shared_ptr, which causes no warning. nn::clone()
/// copies the elements too, and copy_from() copies them into another module. Every call on a module
/// that was moved from throws Error, which names the call. Such a module may be assigned to,
/// destroyed and copied, and it prints that it was moved from.
class Module {
 public:
  Module() = default;
  Module(const Module&) = default;
  Module(Module&&) noexcept = default;
  Module& operator=(const Module&) = default;
  Module& operator=(Module&&) noexcept = default;
  virtual ~Module() = default;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"  // a ModuleOf hides it on purpose
  /// Computes the module's result. The default throws Error. A module with several inputs derives
  /// from ModuleOf instead.
  virtual Tensor forward(const Tensor& x);
#pragma GCC diagnostic pop
  /// Calls the hooks and forward(), in the mode of set_autocast() if one is set. An Error that
  /// passes through gets this module's path, counted from the outermost module being called:
  /// Error::module().
  Tensor operator()(const Tensor& x);
  /// A module with several inputs derives from firn::nn::ModuleOf<itself>; nn::Module takes one.
  template <class... Args>
  requires(sizeof...(Args) != 1) Tensor operator()(Args&&...) = delete;  // base: ModuleOf<Net>

  /// Adds a hook that runs before each call of this module through its call operator, in the order
  /// of adding. A moved module keeps its hooks; a copy has none. A hook may add and remove hooks,
  /// which takes effect at the next call. It must not destroy, move or assign to a module whose
  /// call is running, its own included. Throws Error if the module has a call operator of its own,
  /// which runs no hooks.
  HookId add_forward_pre_hook(ForwardPreHook hook);
  /// Adds a hook that runs after each call.
  HookId add_forward_hook(ForwardHook hook);
  /// Throws Error if this module has no hook `id`.
  void remove_hook(HookId id);

  // ---- State ----
  // A module's own tensors come before those of its sub-modules; otherwise the order is that of
  // FIRN_MEMBERS. A tensor or module that has several paths (tied weights) is listed once, under
  // the first.

  /// Returns all parameters of this module and of all below it, for an optimizer. Frozen ones are
  /// among them, for which an optimizer throws Error: optim::decay_groups() leaves them out.
  std::vector<Tensor> parameters() const;
  /// Returns these parameters with their paths.
  std::vector<NamedTensor> named_parameters() const;
  /// Returns the buffers of this module and of all below it, with their paths.
  std::vector<NamedTensor> named_buffers() const;
  /// Returns this module and all below it, each before its sub-modules.
  std::vector<NamedModule> named_modules();
  /// Number of elements of all parameters, or of those that require a gradient.
  std::int64_t num_parameters(bool trainable_only = false) const;

  /// Overwrites parameters and buffers with those of `other`, paired by name and converted to this
  /// module's dtype and device. Gradients and BatchNorm's pools belong to the current cycle of an
  /// optimizer: those of `other` are not copied, and this module's stay. Throws Error, before
  /// anything is written, that names what is missing, left over or of another shape.
  void copy_from(const Module& other);

  /// Sets training (the default) or evaluation mode for this module and all below: see Dropout.
  void train(bool on = true);
  /// Calls train(false).
  void eval() { train(false); }
  /// True if this module is in training mode.
  bool training() const noexcept { return training_; }

  /// Sets the autocast dtype of calls of this module, in place of that of the guard around
  /// (autocast.h): f16, bf16 or f32. nullopt, the default, means that of the calling module or
  /// guard. It applies to modules called inside unless they have their own, and to calls through
  /// operator(), not to forward() itself. Copies and moves keep it. Throws Error for another dtype,
  /// and if the module has a call operator of its own, which would ignore it.
  void set_autocast(std::optional<DType> dtype);
  std::optional<DType> autocast() const noexcept { return autocast_; }

  /// Makes calls of this module keep only the tensors for the backward pass that these options
  /// name, and compute the rest again: checkpoint() of firn/checkpoint.h. {} means the defaults of
  /// CheckpointOptions. The setting applies to calls through operator(), in which the arguments are
  /// copied; hooks of the module itself see the same tensors as without it. Copies and moves keep
  /// it; nn/checkpoint.h sets it for many modules. Throws Error if the module has a call operator
  /// of its own, which would ignore it.
  void set_checkpoint(const CheckpointOptions& options);
  /// Switches checkpoints off, as they are at first: calls of this module keep all.
  void set_checkpoint(std::nullopt_t);
  /// Sets what checkpoint_options() of a module has returned. It is a template so that {} is not an
  /// empty optional.
  template <std::same_as<std::optional<CheckpointOptions>> Options>
  void set_checkpoint(const Options& options) {
    if (options)
      set_checkpoint(*options);
    else
      set_checkpoint(std::nullopt);
  }
  /// Returns the options that set_checkpoint() was given; nullopt if checkpoints are off.
  const std::optional<CheckpointOptions>& checkpoint_options() const noexcept {
    return checkpoint_;
  }

  /// Moves parameters, their gradients and buffers to `device`. Copies of a tensor's handle follow
  /// the move; views made before keep the old memory. On failure (DeviceError, OutOfMemory) nothing
  /// has changed. Throws Error if an optimizer holds a parameter: convert first, then make the
  /// optimizer. Do not call it between a forward pass and its backward pass.
  void to(Device device);
  /// Converts floating parameters and buffers to `dtype` (floating), as to(Device) moves them.
  /// Buffers that stay wide are an exception: see OnConversion.
  void to(DType dtype);

  /// Calls fn on every module, sub-modules before the module that holds them. Throws Error if fn is
  /// empty.
  void apply(const std::function<void(Module&)>& fn);
  /// Clears the gradients that backward() has collected in the parameters. Throws Error if an
  /// optimizer holds one of them: its own zero_grad() drops the weight of the cycle too.
  void zero_grad();
  /// Freezes (false) or unfreezes all parameters. Throws Error if an optimizer holds one that is
  /// to be frozen.
  void set_requires_grad(bool on);

  // ---- Printing ----
  /// The type's name without namespaces, e.g. "Linear".
  virtual std::string type_name() const;
  /// Describes this module among others of its type, e.g. "784, 512, bias = false".
  virtual std::string extra_repr() const { return {}; }
  /// Returns a table of each module's path, type, parameter shapes, count and bytes, and totals.
  std::string summary() const;
  /// Adds each module's output shape, found by running forward() on zeros of this shape in
  /// evaluation mode, with the dtype and device of the first parameter.
  std::string summary(const Shape& input) const;
  /// Finds the output shapes with an input of your own, e.g. of integers for an embedding.
  std::string summary(const Tensor& input) const;

  /// Defined by FIRN_MEMBERS: passes every member to the visitor.
  virtual void visit_members(MemberVisitor&) {}
  /// Defined by FIRN_MEMBERS: returns facts about the type; null without FIRN_MEMBERS.
  virtual const detail::ModuleTraits* firn_traits() const noexcept { return nullptr; }

 protected:
  /// Returns summary() with the output shapes that `call` produces.
  std::string summarize_call(const CallTensors& inputs, const std::function<void()>& call);
  /// Returns zeros of this shape with the dtype and device of the first parameter.
  Tensor zeros_as_input(const Shape& shape) const;

 private:
  friend class detail::Call;
  template <class M>
  friend class detail::ForwardOf;
  template <class M>
  friend class detail::CallOf;
  friend class detail::EvalScope;
  friend class detail::MemberCheck;
  friend void detail::separate(Module& copy, const Module& original);
  friend bool detail::was_moved_from(const Module& m) noexcept;

  /// Called after clone() has given this module parameters and buffers of its own.
  virtual void was_separated() {}
  void require_seen_calls(const char* op) const;
  /// Called before a setting changes. At the end of a plan of a step the setting is put back.
  void about_to_set();

  bool training_ = true;
  detail::MovedFrom moved_from_;
  std::uint8_t member_checks_left_ = 3;  ///< see MemberCheck
  std::optional<DType> autocast_;
  detail::HookList hooks_;
  detail::PathLabel path_label_;
  std::optional<CheckpointOptions> checkpoint_;
  detail::ModuleLink link_;
};

namespace detail {

/// Calls forward() of a module, wherever it has moved, in the training mode of the first call.
template <class M>
class ForwardOf {
 public:
  explicit ForwardOf(M& m) : place_(m.link_.place(m)), training_(m.training_) {}
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    Module& m = ModuleLink::at(*place_);
    struct Training {
      bool& mode;
      bool before;
      ~Training() { mode = before; }
    } const training{m.training_, std::exchange(m.training_, training_)};
    return static_cast<M&>(m).forward(std::forward<Args>(args)...);
  }

 private:
  std::shared_ptr<const ModuleLink::Place> place_;
  bool training_;
};

/// Calls a module, wherever it has moved.
template <class M>
class CallOf {
 public:
  explicit CallOf(M& m) : place_(static_cast<Module&>(m).link_.place(m)) {}
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    return static_cast<M&>(ModuleLink::at(*place_))(std::forward<Args>(args)...);
  }

 private:
  std::shared_ptr<const ModuleLink::Place> place_;
};

}  // namespace detail

/// Returns the handle that checkpoint() keeps for a module.
template <class M>
requires(std::is_base_of_v<Module, M>) detail::CallOf<M> kept_module(M& m) {
  return detail::CallOf<M>(m);
}

/// Returns a copy with elements of its own: parameters, buffers and modules held by std::shared_ptr
/// are copied. Tensors that are tied inside stay tied inside; modes, dtypes, devices and
/// requires_grad stay. Gradients, hooks and an optimizer's hold are not copied. The pools of
/// BatchNorm begin empty, since their content belongs to the original's cycle. Members that
/// FIRN_MEMBERS does not list are copied by the copy constructor.
///
///   Net target = nn::clone(net);
///
/// Throws Error if `m` is of a type derived from M, or shares a module that has no FIRN_MEMBERS or
/// cannot be copied.
template <class M>
requires(std::is_base_of_v<Module, M> && !std::is_same_v<M, Module>) M clone(const M& m) {
  static_assert(detail::copyable<M>(),
                "nn::clone: the module has a member that cannot be copied; hold it by value, "
                "std::shared_ptr or nn::AnyModule instead of std::unique_ptr");
  if (typeid(m) != typeid(M)) detail::refuse_slicing(m);
  try {
    M copy(m);
    detail::separate(copy, m);
    return copy;
  } catch (const std::bad_alloc&) {
    detail::out_of_memory("nn::clone");
  }
}
/// Clones a module that is known as its base. Also throws Error if its type has no FIRN_MEMBERS or
/// cannot be copied.
std::unique_ptr<Module> clone(const Module& m);

/// Prints the structure: one line per module with its name, type and extra_repr().
std::ostream& operator<<(std::ostream& out, const Module& m);

}  // namespace firn::nn
