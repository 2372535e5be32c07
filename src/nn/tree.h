// A module's tree as a flat list, from which every walk over a model starts (parameters, train, to,
// summary).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "firn/nn/module.h"

namespace firn::nn::detail {

struct TreeTensor {
  std::string name;  ///< within its module, e.g. "weight"
  std::string path;  ///< from the root, e.g. "fc1.weight"
  Tensor tensor;
  bool buffer = false;
  OnConversion on_conversion = OnConversion::follow;  ///< how Module::to() converts a buffer
  bool of_cycle = false;                              ///< true for a buffer of an optimizer's cycle
  std::string tied_to;  ///< the earlier path of the same tensor, if there is one
};

/// A random stream that a module has of its own.
struct TreeStream {
  std::string path;  ///< from the root, e.g. "drop.stream"
  Generator* stream;
};

struct TreeModule {
  std::string name;  ///< within its parent; "blocks.0" for an element of a vector
  std::string path;  ///< from the root, whose path is empty
  Module* module;
  int depth;
  std::vector<TreeTensor> tensors;  ///< its own; undefined ones are left out
  std::vector<TreeStream> streams = {};
};

/// Lists modules before their sub-modules. A module that is reached again is left out.
std::vector<TreeModule> tree_of(Module& root);

/// For functions that only read. visit_members() is not const, since it passes on writable
/// references.
inline std::vector<TreeModule> tree_of(const Module& root) {
  return tree_of(const_cast<Module&>(root));
}

/// True if a path ends in the number of an element, as "blocks.1" does.
bool is_element(std::string_view path);
/// Returns "blocks.1, blocks.2 share all parameters with blocks.0" for elements of one list that
/// are modules of their own; empty if there are none.
std::string shared_elements(const std::vector<TreeModule>& tree);
/// Warns of such elements, once for each text in a process.
void warn_of_shared_elements(const Module& root, const std::vector<TreeModule>& tree);

/// Returns "Linear(784, 10)"; "Linear(moved from)" for a module that was moved from and has no
/// members to describe.
std::string described(const Module& m);
/// Returns the text that described() has in brackets.
std::string repr_of(const Module& m);

/// Throws Error that names `op` if `m` was moved from: it holds nothing, and a change of it would
/// be lost.
void require_members(const char* op, const Module& m);

/// Calls fn for every tensor of the tree, once each.
template <class Fn>
void for_each_tensor(const std::vector<TreeModule>& tree, Fn&& fn) {
  for (const TreeModule& m : tree)
    for (const TreeTensor& t : m.tensors)
      if (t.tied_to.empty()) fn(t);
}

/// While alive, the modules of a tree are in evaluation mode. The destructor restores each one's
/// mode, without allocating.
class EvalScope {
 public:
  explicit EvalScope(const std::vector<TreeModule>& tree) : EvalScope(tree, false) {}
  ~EvalScope();
  EvalScope(const EvalScope&) = delete;
  EvalScope& operator=(const EvalScope&) = delete;

 protected:
  EvalScope(const std::vector<TreeModule>& tree, bool training);

 private:
  std::vector<std::pair<Module*, bool>> before_;
};

/// While alive, all modules are in training mode.
class TrainScope : public EvalScope {
 public:
  explicit TrainScope(const std::vector<TreeModule>& tree) : EvalScope(tree, true) {}
};

/// While alive, called() runs after every module call of this thread.
class CallListener {
 public:
  CallListener() noexcept;
  virtual ~CallListener();
  CallListener(const CallListener&) = delete;
  CallListener& operator=(const CallListener&) = delete;
  virtual void called(const Module& m, const CallTensors& outputs) = 0;

  static CallListener* current() noexcept;

 private:
  CallListener* previous_;
};

/// The outermost module whose call this thread is in; null outside of one.
Module* called_root() noexcept;

/// The path of `m` in the outermost module whose call this thread is in; empty if it is that
/// module, or not a part of it.
std::string path_in_call(const Module& m);

/// A type's name without its namespaces.
std::string short_type_name(const char* mangled);

}  // namespace firn::nn::detail
