// Containers of modules.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "firn/nn/any_module.h"
#include "firn/nn/module.h"

namespace firn::nn {

/// A module with its name in a container: {"conv", nn::Conv2d(3, 8, 3)}.
struct NamedPart {
  std::string name;  ///< not empty, without a dot
  AnyModule module;  ///< not null
};

namespace detail {

/// Contents of a container: modules in order, with names or numbers.
class Parts {
 public:
  /// Adds a part to `owner`, which errors call `what`, and sets it to the owner's mode. An empty
  /// name stands for the part's number. With `replace` the part takes the place of a part of that
  /// name. Throws Error if it is null, holds the owner, or if the name is taken or not valid.
  void add(const char* what, const Module& owner, NamedPart part, bool replace = false);
  /// Returns a part. Throws Error if there is no such part.
  Module& at(const char* what, std::size_t index) const;
  Module& at(const char* what, std::string_view name) const;
  /// Returns at() as an M. Throws Error if its type is another.
  template <std::derived_from<Module> M, class Key>
  M& as(const char* what, Key key) const {
    Module& m = at(what, key);
    if (M* typed = dynamic_cast<M*>(&m)) return *typed;
    wrong_type(what, key, m);
  }
  /// Returns the number of the part of that name, or size().
  std::size_t find(std::string_view name) const;
  std::string name_of(std::size_t index) const;
  void erase(std::size_t index);
  std::size_t size() const noexcept { return parts_.size(); }
  void visit(MemberVisitor& visitor);

 private:
  [[noreturn]] static void wrong_type(const char* what, std::size_t index, const Module& m);
  [[noreturn]] static void wrong_type(const char* what, std::string_view name, const Module& m);

  std::vector<NamedPart> parts_;
};

}  // namespace detail

/// Runs its modules one after the other:
///
///   nn::Sequential net{nn::Flatten(), nn::Linear(784, 512), nn::ReLU(), nn::Linear(512, 10)};
///   nn::Sequential named{{"hidden", nn::Linear(784, 512)}, {"act", nn::ReLU()}};
///   named["hidden"];
///
/// Sub-modules without a name are named "0", "1", ... They are held by value: a copy of a
/// Sequential has copies of them, with the same parameters and modes of their own (see AnyModule).
class Sequential : public Module {
 public:
  Sequential() = default;
  /// Takes the modules by value; `Sequential{other}` with a single Sequential is a copy of it.
  template <std::derived_from<Module>... Ms>
  requires(sizeof...(Ms) > 1 ||
           (!std::same_as<Ms, Sequential> && ...)) explicit Sequential(Ms... modules) {
    (push_back(std::move(modules)), ...);
  }
  /// Takes modules with names. Throws Error if one is taken twice, empty, or has a dot.
  explicit Sequential(std::initializer_list<NamedPart> parts);

  /// Takes the module by value. A Module& is refused, because copying it would slice the module. If
  /// this Sequential is in evaluation mode, the module is set to it too.
  template <std::derived_from<Module> M>
  requires(!std::same_as<M, Module>) void push_back(M module) {
    parts_.add(kName, *this, {"", AnyModule(std::move(module))});
  }
  /// Adds a shared module: copies of the Sequential hold the same one. Throws Error if it is null,
  /// or if it is this Sequential or holds it.
  void push_back(std::shared_ptr<Module> module);
  /// Adds a module with a name. Throws Error if the name is taken, empty, or has a dot.
  void push_back(std::string name, AnyModule module);

  std::size_t size() const noexcept { return parts_.size(); }
  bool empty() const noexcept { return parts_.size() == 0; }
  /// Returns the module at `index`, or the one of that name. Throws Error if there is none.
  Module& operator[](std::size_t index) const { return parts_.at(kName, index); }
  Module& operator[](std::string_view name) const { return parts_.at(kName, name); }
  /// Returns the module at `index` with its own type: `net.at<nn::Linear>(1).weight`. Throws Error
  /// if its type is another.
  template <std::derived_from<Module> M>
  M& at(std::size_t index) const {
    return parts_.as<M>(kName, index);
  }
  /// Returns the module of that name with its own type.
  template <std::derived_from<Module> M>
  M& at(std::string_view name) const {
    return parts_.as<M>(kName, name);
  }

  Tensor forward(const Tensor& x) override;
  void visit_members(MemberVisitor& visitor) override;
  const detail::ModuleTraits* firn_traits() const noexcept override;

 private:
  static constexpr const char* kName = "Sequential";

  detail::Parts parts_;
};

/// Modules by name, in the order in which they were added. It has no forward() of its own: call the
/// modules, as `dict["left"](x)`. They are held by value, as in a Sequential.
///
///   nn::ModuleDict heads{{"class", nn::Linear(64, 10)}, {"depth", nn::Linear(64, 1)}};
class ModuleDict : public Module {
 public:
  ModuleDict() = default;
  /// Throws Error if a name is taken twice, empty, or has a dot.
  explicit ModuleDict(std::initializer_list<NamedPart> parts);

  /// Adds a module, or replaces the one of this name. If the dictionary is in evaluation mode, the
  /// module is set to it too. Throws Error if the module is null or holds the dictionary, and if
  /// the name is empty or has a dot.
  void set(std::string name, AnyModule module);
  /// Removes the module of that name. Throws Error if there is none.
  void remove(std::string_view name);

  /// True if there is a module of that name.
  bool contains(std::string_view name) const { return parts_.find(name) != parts_.size(); }
  /// Returns the names in order.
  std::vector<std::string> names() const;
  std::size_t size() const noexcept { return parts_.size(); }
  bool empty() const noexcept { return parts_.size() == 0; }
  /// Returns the module of that name. Throws Error if there is none.
  Module& operator[](std::string_view name) const { return parts_.at(kName, name); }
  /// Returns the module with its own type. Throws Error if its type is another.
  template <std::derived_from<Module> M>
  M& at(std::string_view name) const {
    return parts_.as<M>(kName, name);
  }

  void visit_members(MemberVisitor& visitor) override;
  const detail::ModuleTraits* firn_traits() const noexcept override;

 private:
  static constexpr const char* kName = "ModuleDict";

  detail::Parts parts_;
};

/// A function as a module, for a Sequential: `nn::Lambda([](const Tensor& x) { return 2 * x; })`.
/// It has no parameters: tensors and modules that the function captures belong to no module. Copies
/// and clones copy the function.
class Lambda : public Module {
 public:
  /// `name` is shown by extra_repr(). Throws Error if the function is empty.
  explicit Lambda(std::function<Tensor(const Tensor&)> function, std::string name = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override { return name_; }
  FIRN_DECLARE_MEMBERS()

 private:
  std::function<Tensor(const Tensor&)> function_;
  std::string name_;
};

}  // namespace firn::nn
