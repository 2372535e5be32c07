// The members of a module: FIRN_MEMBERS lists them, a MemberVisitor receives them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>

#include "firn/nn/parameter.h"
#include "firn/random.h"

namespace firn::nn {

class Module;

/// Receives a module's members from FIRN_MEMBERS, in the order in which they are listed.
class MemberVisitor {
 public:
  /// Receives a tensor that is trained.
  virtual void parameter(std::string_view name, Parameter& p) = 0;
  /// Receives a tensor that belongs to the state and is not trained.
  virtual void buffer(std::string_view name, Buffer& b) = 0;
  /// Receives a part that is a module itself.
  virtual void module(std::string_view name, Module& m) = 0;
  /// Receives a random stream of the module's own.
  virtual void generator(std::string_view, Generator&) {}

  // clone() replaces a member held by std::shared_ptr by the result of these functions before the
  // member is visited.
  /// Returns the module that takes the place of a member; null keeps the member.
  virtual std::shared_ptr<Module> own_module(const std::shared_ptr<Module>&) { return nullptr; }
  /// Returns the place that holds the copy of an object that is not a module; it is empty at first.
  virtual std::shared_ptr<void>* own_slot(const void*) { return nullptr; }

 protected:
  ~MemberVisitor() = default;
};

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
inline constexpr bool kShared = false;
template <class T>
inline constexpr bool kShared<std::shared_ptr<T>> = true;

/// True if a T can be copied. std::is_copy_constructible is true for
/// std::vector<std::unique_ptr<T>> too, whose copy does not compile.
template <class T>
constexpr bool copyable() {
  if constexpr (!std::is_copy_constructible_v<T> || std::is_abstract_v<T>) {
    return false;
  } else if constexpr (requires { T::firn_copyable(); }) {
    return T::firn_copyable();
  } else if constexpr (std::is_base_of_v<Tensor, T> || kShared<T>) {
    return true;
  } else if constexpr (HandleMember<T>) {
    return copyable<std::remove_cvref_t<decltype(*std::declval<T&>())>>();
  } else if constexpr (RangeMember<T>) {
    return copyable<std::remove_cvref_t<decltype(*std::declval<T&>().begin())>>();
  } else {
    return true;
  }
}

template <class... Ts>
struct MemberTypes {
  static constexpr bool copyable = (detail::copyable<Ts>() && ...);
};
template <class... Ts>
MemberTypes<Ts...> member_types(Ts&...);

/// Facts about the type that contains FIRN_MEMBERS.
struct ModuleTraits {
  const std::type_info* type;
  Module* (*copy)(const Module&);  ///< uses the copy constructor; null if there is none
  bool own_call;  ///< the type has a call operator of its own, which hides Module's
};

template <class M>
Module* copy_as(const Module& m) {
  return new M(static_cast<const M&>(m));
}

/// Base of every ModuleOf.
struct AnySignature {};
template <class M>
concept InheritsCall = std::is_base_of_v<AnySignature, M> ||
    requires(Tensor (Module::*call)(const Tensor&)) {
  call = &M::operator();
};

/// One object for each type.
template <class M>
const ModuleTraits& traits_of() noexcept {
  if constexpr (copyable<M>()) {
    static constexpr ModuleTraits traits{&typeid(M), &copy_as<M>, !InheritsCall<M>};
    return traits;
  } else {
    static constexpr ModuleTraits traits{&typeid(M), nullptr, !InheritsCall<M>};
    return traits;
  }
}

/// Replaces a shared member by the visitor's own copy, if it has one.
template <class T>
void take_own_copy(MemberVisitor& visitor, std::shared_ptr<T>& member) {
  if (!member) return;
  if constexpr (std::is_base_of_v<Module, T>) {
    if (std::shared_ptr<Module> own = visitor.own_module(member))
      member = std::static_pointer_cast<T>(std::move(own));
  } else if constexpr (copyable<T>()) {
    std::shared_ptr<void>* const slot = visitor.own_slot(member.get());
    if (!slot) return;
    if (!*slot) *slot = std::make_shared<T>(*member);
    member = std::static_pointer_cast<T>(*slot);
  }
}

template <class T>
void visit_member(MemberVisitor& visitor, const std::string& name, T& member) {
  if constexpr (std::is_base_of_v<Parameter, T>) {
    visitor.parameter(name, member);
  } else if constexpr (std::is_base_of_v<Buffer, T>) {
    visitor.buffer(name, member);
  } else if constexpr (std::is_base_of_v<Module, T>) {
    visitor.module(name, member);
  } else if constexpr (std::is_same_v<Generator, T>) {
    visitor.generator(name, member);
  } else if constexpr (requires { member.visit(visitor, name); }) {
    member.visit(visitor, name);
  } else if constexpr (HandleMember<T>) {
    if constexpr (kShared<T>) take_own_copy(visitor, member);
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
        "FIRN_MEMBERS: a member must be a Parameter, a Buffer, a Module, a Generator, or a smart "
        "pointer, std::optional, std::vector or std::array of these");
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
/// Parameter, a Buffer, a Module, a Generator, or a smart pointer, std::optional, std::vector or
/// std::array of these; elements of a vector `blocks` are named "blocks.0", "blocks.1", ... A
/// Generator is a random stream of the module's own, which io::save_run() saves. (A RollbackPoint
/// puts it back whether it is listed or not.) Templates take this macro too, since
/// FIRN_DEFINE_MEMBERS names one type. A struct that derives from a module with members must list
/// those of its base again. With FIRN_MEMBERS(), a module without members can be cloned as part of
/// another.
#define FIRN_MEMBERS(...)                                                                 \
  void visit_members(::firn::nn::MemberVisitor& firn_visitor) override {                  \
    ::firn::nn::detail::visit_all(firn_visitor, #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
  }                                                                                       \
  static constexpr bool firn_copyable() noexcept {                                        \
    return decltype(::firn::nn::detail::member_types(__VA_ARGS__))::copyable;             \
  }                                                                                       \
  const ::firn::nn::detail::ModuleTraits* firn_traits() const noexcept override {         \
    return &::firn::nn::detail::traits_of<::std::remove_cvref_t<decltype(*this)>>();      \
  }

/// FIRN_MEMBERS in two parts, for a module whose header many files include: the header declares,
/// and one source file lists the members, in the module's namespace. Then only that file compiles
/// the list. firn's own layers do so.
///
///   struct Net : nn::Module {          // net.h
///     nn::Linear fc1{784, 512}, fc2{512, 10};
///     FIRN_DECLARE_MEMBERS()
///     Tensor forward(const Tensor& x) override;
///   };
///
///   FIRN_DEFINE_MEMBERS(Net, fc1, fc2)  // net.cpp
///
/// Without the second part the linker reports an undefined reference to `vtable for Net`, or to
/// Net::visit_members().
#define FIRN_DECLARE_MEMBERS()                                          \
  void visit_members(::firn::nn::MemberVisitor& firn_visitor) override; \
  static constexpr bool firn_copyable() noexcept { return true; }       \
  const ::firn::nn::detail::ModuleTraits* firn_traits() const noexcept override;

/// Lists the members of a module that has FIRN_DECLARE_MEMBERS(). It does not compile for a module
/// that cannot be copied, which takes FIRN_MEMBERS.
#define FIRN_DEFINE_MEMBERS(Type, ...)                                                       \
  void Type::visit_members(::firn::nn::MemberVisitor& firn_visitor) {                        \
    static_assert(decltype(::firn::nn::detail::member_types(__VA_ARGS__))::copyable &&       \
                      ::std::is_copy_constructible_v<Type>,                                  \
                  "FIRN_DEFINE_MEMBERS: a module with a member that cannot be copied takes " \
                  "FIRN_MEMBERS");                                                           \
    ::firn::nn::detail::visit_all(firn_visitor, #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__);    \
  }                                                                                          \
  const ::firn::nn::detail::ModuleTraits* Type::firn_traits() const noexcept {               \
    return &::firn::nn::detail::traits_of<Type>();                                           \
  }
