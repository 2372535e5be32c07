// Containers of modules.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "firn/nn/any_module.h"
#include "firn/nn/module.h"

namespace firn::nn {

/// Runs its modules one after the other:
///
///   nn::Sequential net{nn::Flatten(), nn::Linear(784, 512), nn::ReLU(), nn::Linear(512, 10)};
///
/// Sub-modules are named "0", "1", ... They are held by value: a copy of a Sequential has copies of
/// them, with the same parameters and modes of their own (see AnyModule).
class Sequential : public Module {
 public:
  Sequential() = default;
  /// Takes the modules by value; `Sequential{other}` with a single Sequential is a copy of it.
  template <std::derived_from<Module>... Ms>
  requires(sizeof...(Ms) > 1 ||
           (!std::same_as<Ms, Sequential> && ...)) explicit Sequential(Ms... modules) {
    (push_back(std::move(modules)), ...);
  }

  /// By value. A Module& is refused, because copying it would slice the module. If this Sequential
  /// is in evaluation mode, the module is set to it too.
  template <std::derived_from<Module> M>
  requires(!std::same_as<M, Module>) void push_back(M module) { add(AnyModule(std::move(module))); }
  /// For a shared module: copies of the Sequential hold the same one. Throws Error if it is null,
  /// or if it is this Sequential or holds it.
  void push_back(std::shared_ptr<Module> module);

  std::size_t size() const noexcept { return modules_.size(); }
  bool empty() const noexcept { return modules_.empty(); }
  /// The module at `index`. Throws Error if there is none.
  Module& operator[](std::size_t index) const;
  /// The module at `index` with its own type: `net.at<nn::Linear>(1).weight`. Throws Error if it is
  /// of another type.
  template <std::derived_from<Module> M>
  M& at(std::size_t index) const {
    Module& m = (*this)[index];
    if (M* typed = dynamic_cast<M*>(&m)) return *typed;
    wrong_type(index, m);
  }

  Tensor forward(const Tensor& x) override;
  void visit_members(MemberVisitor& visitor) override;
  const detail::ModuleTraits* firn_traits() const noexcept override;

 private:
  [[noreturn]] static void wrong_type(std::size_t index, const Module& m);

  void add(AnyModule module);

  std::vector<AnyModule> modules_;
};

}  // namespace firn::nn
