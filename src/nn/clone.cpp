// clone(): a module with elements of its own.
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "firn/nn/module.h"
#include "nn/shown_weights.h"
#include "nn/tree.h"
#include "tensor/impl.h"

namespace firn::nn {
namespace {

constexpr const char* kOp = "nn::clone";

/// The addresses of the members of a module and of all modules below it.
class Places final : public MemberVisitor {
 public:
  void parameter(std::string_view, Parameter& p) override { all.insert(&p); }
  void buffer(std::string_view, Buffer& b) override { all.insert(&b); }
  void module(std::string_view, Module& m) override {
    if (all.insert(&m).second) m.visit_members(*this);
  }
  std::unordered_set<const void*> all;
};

/// Returns a copy made by the copy constructor of m's own type.
std::unique_ptr<Module> copy_of(const Module& m) {
  const detail::ModuleTraits* const traits = m.firn_traits();
  FIRN_CHECK(traits && *traits->type == typeid(m), kOp,
             "add FIRN_MEMBERS(...) to the struct, FIRN_MEMBERS() if it has no members",
             "{} has no FIRN_MEMBERS of its own, and so cannot be copied through its base",
             m.type_name());
  FIRN_CHECK(traits->copy, kOp,
             "hold members by value, std::shared_ptr or nn::AnyModule, not std::unique_ptr",
             "{} has a member that cannot be copied", m.type_name());
  return std::unique_ptr<Module>(traits->copy(m));
}

/// Gives the members that it visits elements of their own.
class Separation final : public MemberVisitor {
 public:
  explicit Separation(const Module& original) {
    originals_.module("", const_cast<Module&>(original));
  }

  void parameter(std::string_view name, Parameter& p) override {
    check_own(name, &p);
    make_own(p);
  }
  void buffer(std::string_view name, Buffer& b) override {
    check_own(name, &b);
    make_own(b);
  }
  void module(std::string_view name, Module& m) override {
    check_own(name, &m);
    if (!seen_.insert(&m).second) return;
    m.visit_members(*this);
    done.push_back(&m);
  }
  std::shared_ptr<Module> own_module(const std::shared_ptr<Module>& shared) override {
    if (seen_.contains(shared.get())) return nullptr;  // visited: already the clone's
    std::shared_ptr<Module>& copy = modules_[shared.get()];
    if (!copy) copy = copy_of(*shared);
    return copy;
  }
  std::shared_ptr<void>* own_slot(const void* shared) override { return &slots_[shared]; }

  std::vector<Module*> done;

 private:
  /// Tied tensors stay tied.
  void make_own(Tensor& t) {
    if (!t.defined() || made_.contains(t.impl())) return;
    Tensor& copy = tensors_[t.impl()];
    if (!copy.defined()) {
      copy = Buffer(t);
      if (t.requires_grad()) copy.set_requires_grad();
      copy.impl()->sharded = t.impl()->sharded;
      made_.insert(copy.impl());
    }
    t = copy;
  }

  /// A member behind a pointer type that firn does not know is still the original's: separating it
  /// would change the original.
  void check_own(std::string_view name, const void* member) const {
    FIRN_CHECK(!originals_.all.contains(member), kOp,
               "hold it by value, std::shared_ptr or nn::AnyModule, and list it in FIRN_MEMBERS",
               "a copy of the module shares its member \"{}\"", name);
  }

  Places originals_;
  std::unordered_set<const Module*> seen_;
  std::unordered_map<const Module*, std::shared_ptr<Module>> modules_;
  std::unordered_map<const void*, std::shared_ptr<void>> slots_;
  std::unordered_map<const TensorImpl*, Tensor> tensors_;  ///< the copy of each
  std::unordered_set<const TensorImpl*> made_;
};

}  // namespace

void detail::separate(Module& copy, const Module& original) try {
  require_members(kOp, original);
  show_weights(original);
  Separation separation(original);
  separation.module("", copy);
  for (Module* m : separation.done) m->was_separated();
}
FIRN_OUT_OF_MEMORY("nn::clone")

void detail::refuse_slicing(const Module& m) {
  firn::detail::fail(kOp, "clone(static_cast<const nn::Module&>(m)) copies the whole",
                     "the module is a {}, of a type derived from the one it is known as",
                     m.type_name());
}

std::unique_ptr<Module> clone(const Module& m) try {
  detail::require_members(kOp, m);
  std::unique_ptr<Module> copy = copy_of(m);
  detail::separate(*copy, m);
  return copy;
}
FIRN_OUT_OF_MEMORY("nn::clone")

}  // namespace firn::nn
