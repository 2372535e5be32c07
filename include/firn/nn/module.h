// Module: a part of a model that holds parameters. A model is a struct with members and a forward:
//
//   struct Net : firn::nn::Module {
//     nn::Linear fc1{784, 512}, fc2{512, 10};
//     FIRN_MEMBERS(fc1, fc2)
//     Tensor forward(const Tensor& x) override { return fc2(relu(fc1(flatten(x, 1)))); }
//   };
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "firn/tensor.h"

namespace firn::nn {

class Module;

/// A tensor that is trained: a leaf that requires a gradient, in memory accounted to
/// Owner::weights. Copying a Parameter copies the handle, which is how weights are tied. A
/// Parameter without a value (a layer without bias) is no parameter of its module.
struct Parameter : Tensor {
  Parameter() noexcept = default;
  /// A copy of `value` in its memory format, outside its graph. Throws Error for an integer dtype.
  explicit Parameter(const Tensor& value);
  /// Uninitialised memory, to be filled by a function of nn::init.
  static Parameter empty(const Shape& shape, DType dtype = f32, Device device = default_device());
  /// All elements `value`, as scales and biases of norms begin.
  static Parameter full(const Shape& shape, double value, DType dtype = f32,
                        Device device = default_device());
};

/// What Module::to(dtype) makes of a floating buffer.
enum class OnConversion : std::uint8_t {
  follow,  ///< it gets the dtype, as the parameters do
  widen,   ///< f32, or f64 where the dtype is f64: statistics, which 16 bits would lose
  keep,    ///< its own dtype stays
};

/// A tensor that belongs to the model's state but is not trained, e.g. a running mean.
struct Buffer : Tensor {
  Buffer() noexcept = default;
  /// A copy of `value` in its memory format, outside its graph, accounted to Owner::weights.
  explicit Buffer(const Tensor& value, OnConversion on_conversion = OnConversion::follow);

  OnConversion on_conversion = OnConversion::follow;
};

/// What FIRN_MEMBERS hands a module's members to, in the order in which they are listed.
class MemberVisitor {
 public:
  virtual void parameter(std::string_view name, Parameter& p) = 0;
  virtual void buffer(std::string_view name, Buffer& b) = 0;
  virtual void module(std::string_view name, Module& m) = 0;

 protected:
  ~MemberVisitor() = default;
};

/// A parameter or buffer with its path from the root: "encoder.blocks.0.weight".
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
/// A module with its path; the root's is empty.
struct NamedModule {
  std::string name;
  Module* module;
};

/// Base of all layers and models.
///
/// A module keeps no pointer to its members, so it may be copied, moved and held in containers. A
/// copy holds the same parameters (handles are copied, not elements): `std::vector<Linear>(3,
/// layer)` is three layers with one weight. copy_from() copies the elements.
class Module {
 public:
  Module() = default;
  Module(const Module&) = default;
  Module(Module&&) noexcept = default;
  Module& operator=(const Module&) = default;
  Module& operator=(Module&&) noexcept = default;
  virtual ~Module() = default;

  /// What the module computes. The default throws Error: a module of several inputs has a member
  /// function of its own instead.
  virtual Tensor forward(const Tensor& x);
  /// Calls forward(), in the mode of set_autocast() where one is set.
  Tensor operator()(const Tensor& x);

  // ---- State ----
  // Own tensors before those of sub-modules, else in the order of FIRN_MEMBERS. A tensor or module
  // that can be reached on several paths (tied weights) is listed once, under the first.

  std::vector<Tensor> parameters() const;
  std::vector<NamedTensor> named_parameters() const;
  std::vector<NamedTensor> named_buffers() const;
  /// This module and all below it, each before its sub-modules.
  std::vector<NamedModule> named_modules();
  /// Number of elements of all parameters, or of those that require a gradient.
  std::int64_t num_parameters(bool trainable_only = false) const;

  /// Overwrites parameters and buffers with those of `other`, paired by name and converted to this
  /// module's dtype and device. Throws Error, before anything is written, naming what is missing,
  /// left over or of another shape.
  void copy_from(const Module& other);

  /// Training mode (the default) or evaluation mode, for this module and all below: see Dropout.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const noexcept { return training_; }

  /// The dtype that calls of this module run in, whatever guard is around them (autocast.h): f16,
  /// bf16 or f32 (throws Error for another); nothing, the default: that of the module or guard
  /// around. It holds for modules called inside unless they have their own, and for calls through
  /// operator(), not for forward() itself. Part of the module: copies and moves take it along.
  void set_autocast(std::optional<DType> dtype);
  std::optional<DType> autocast() const noexcept { return autocast_; }

  /// Moves parameters, their gradients and buffers to `device`. All handles that share them see the
  /// change. On failure (DeviceError, OutOfMemory) nothing has changed. Throws Error where an
  /// optimizer holds a parameter: convert first, then make the optimizer. Not between a forward and
  /// its backward.
  void to(Device device);
  /// The same for the element type: floating parameters and buffers become `dtype` (floating), but
  /// for buffers that are made to stay wide: see OnConversion.
  void to(DType dtype);

  /// Calls fn on every module, sub-modules before the module that holds them.
  void apply(const std::function<void(Module&)>& fn);
  /// Forgets the gradients that backward() has collected in the parameters. Throws Error where an
  /// optimizer holds one of them: its own zero_grad() drops the weight of the cycle too.
  void zero_grad();
  /// Freezes (false) or unfreezes all parameters. Throws Error where an optimizer holds one that is
  /// to be frozen.
  void set_requires_grad(bool on);

  // ---- For people ----
  /// The type's name without namespaces, e.g. "Linear".
  virtual std::string kind() const;
  /// What distinguishes this module from others of its kind, e.g. "784, 512, bias = false".
  virtual std::string settings() const { return {}; }
  /// A table: each module's path, kind, parameter shapes, parameter count and bytes, and totals.
  std::string summary() const;
  /// The same with each module's output shape, found by running forward() on zeros of this shape in
  /// evaluation mode, with the dtype and device of the first parameter.
  std::string summary(const Shape& input) const;
  /// The same with an input of your own, e.g. of integers for an embedding.
  std::string summary(const Tensor& input) const;

  /// Written by FIRN_MEMBERS: hands every member to the visitor.
  virtual void visit_members(MemberVisitor&) {}

 private:
  bool training_ = true;
  std::optional<DType> autocast_;
};

/// Prints the structure: one line per module with its name, kind and settings.
std::ostream& operator<<(std::ostream& out, const Module& m);

namespace detail {

/// Takes the next name from a list such as "fc1, fc2".
std::string next_name(std::string_view& list);

template <class T>
concept HandleMember = !std::is_pointer_v<T> && requires(T & t) {
  static_cast<bool>(t);
  *t;
};
template <class T>
concept RangeMember = requires(T& t) {
  t.begin();
  t.end();
};
template <class T>
inline constexpr bool kNever = false;

template <class T>
void visit_member(MemberVisitor& visitor, const std::string& name, T& member) {
  if constexpr (std::is_base_of_v<Parameter, T>) {
    visitor.parameter(name, member);
  } else if constexpr (std::is_base_of_v<Buffer, T>) {
    visitor.buffer(name, member);
  } else if constexpr (std::is_base_of_v<Module, T>) {
    visitor.module(name, member);
  } else if constexpr (HandleMember<T>) {
    if (member) visit_member(visitor, name, *member);
  } else if constexpr (RangeMember<T>) {
    int i = 0;
    for (auto& item : member) visit_member(visitor, name + "." + std::to_string(i++), item);
  } else if constexpr (std::is_base_of_v<Tensor, T>) {
    static_assert(kNever<T>,
                  "FIRN_MEMBERS: declare a Tensor member as nn::Parameter (trained) or nn::Buffer "
                  "(not trained)");
  } else if constexpr (std::is_pointer_v<T>) {
    static_assert(
        kNever<T>,
        "FIRN_MEMBERS: a raw pointer would dangle in a copy of the module; hold the module "
        "by value, std::shared_ptr, std::unique_ptr or std::optional");
  } else {
    static_assert(
        kNever<T>,
        "FIRN_MEMBERS: a member must be a Parameter, a Buffer, a Module, or a smart pointer, "
        "std::optional, std::vector or std::array of these");
  }
}

template <class... Ts>
void visit_all([[maybe_unused]] MemberVisitor& visitor, [[maybe_unused]] std::string_view names,
               Ts&... members) {
  (visit_member(visitor, next_name(names), members), ...);
}

}  // namespace detail
}  // namespace firn::nn

/// Registers the members of a module: one line in the struct, FIRN_MEMBERS(fc1, fc2). A member is a
/// Parameter, a Buffer, a Module, or a smart pointer, std::optional, std::vector or std::array of
/// these; elements of a vector `blocks` are named "blocks.0", "blocks.1", ... A struct that derives
/// from a module with members lists those of its base again.
#define FIRN_MEMBERS(...)                                                                 \
  void visit_members(::firn::nn::MemberVisitor& firn_visitor) override {                  \
    ::firn::nn::detail::visit_all(firn_visitor, #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
  }
