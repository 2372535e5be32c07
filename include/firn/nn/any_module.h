// A module of any type, held as a value.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "firn/nn/module.h"

namespace firn::nn {

namespace detail {
/// AnyModule cannot hold an M that does not derive from Module, or Module itself.
template <class M>
concept NoModule = !std::is_base_of_v<Module, M> || std::is_same_v<Module, M>;
}  // namespace detail

/// Holds a module of any type, or none. Copying copies the module. As with every copy of a module,
/// the copy has the same parameters and a mode of its own:
///
///   struct Block : nn::Module {
///     nn::AnyModule norm = nn::LayerNorm(64);
///     FIRN_MEMBERS(norm)
///     Tensor forward(const Tensor& x) override { return x + (*norm)(x); }
///   };
///
/// A module given as a std::shared_ptr is shared: copies of the AnyModule hold the same module. So
/// do copies of an AnyModule whose module cannot be copied.
class AnyModule {
 public:
  AnyModule() noexcept = default;
  AnyModule(std::nullptr_t) noexcept {}  // NOLINT: meant to convert
  /// Takes the module by value. A Module& is refused, because copying it would slice the module.
  template <class M>
  requires(std::is_base_of_v<Module, M> && !std::is_same_v<Module, M>)
      AnyModule(M module)  // NOLINT: meant to convert
      : module_(std::make_shared<M>(std::move(module))) {
    if constexpr (detail::copyable<M>()) copy_ = &detail::copy_as<M>;
  }
  template <class M>
  requires(std::is_base_of_v<Module, M>)
      AnyModule(std::shared_ptr<M> module)  // NOLINT: meant to convert
      : module_(std::move(module)) {}
  /// A type that is not a module does not compile. nn::Lambda makes a module of a function.
  template <detail::NoModule M>
  AnyModule(M) = delete;  // give a type derived from nn::Module, or a std::shared_ptr to one

  AnyModule(const AnyModule& other);
  AnyModule(AnyModule&& other) noexcept;
  AnyModule& operator=(AnyModule other) noexcept;

  /// Returns the module, or null if there is none.
  Module* get() const noexcept { return module_.get(); }
  /// Returns the module. Throws Error if there is none.
  Module& operator*() const { return *held(); }
  Module* operator->() const { return held(); }
  explicit operator bool() const noexcept { return static_cast<bool>(module_); }
  bool operator==(std::nullptr_t) const noexcept { return !module_; }

  /// Called by FIRN_MEMBERS.
  void visit(MemberVisitor& visitor, const std::string& name);

 private:
  Module* held() const {
    if (!module_) [[unlikely]]
      refuse_empty();
    return module_.get();
  }
  [[noreturn]] static void refuse_empty();

  std::shared_ptr<Module> module_;
  Module* (*copy_)(const Module&) = nullptr;  ///< null: copies share the module
};

}  // namespace firn::nn
