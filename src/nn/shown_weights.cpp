#include "nn/shown_weights.h"

#include "autograd/node.h"
#include "autograd/weight_modes.h"
#include "nn/tree.h"

namespace firn::nn::detail {
namespace {

/// Has the optimizers of all visited parameters show the weights of a mode.
class Show final : public MemberVisitor {
 public:
  explicit Show(bool averaged) noexcept : averaged_(averaged) {}

  void parameter(std::string_view, Parameter& p) override {
    const autograd::Leaf* const leaf = p.defined() ? autograd::leaf_or_frozen(p) : nullptr;
    autograd::WeightModes* const modes = leaf ? leaf->modes() : nullptr;
    if (!modes || modes == last_) return;
    modes->show(averaged_);
    last_ = modes;
  }
  void buffer(std::string_view, Buffer&) override {}
  void module(std::string_view, Module& m) override {
    const Open here{&m, open_};
    for (const Open* o = open_; o; o = o->outer)
      if (o->module == &m) return;  // modules that std::shared_ptr holds may form a cycle
    open_ = &here;
    m.visit_members(*this);
    open_ = here.outer;
  }

 private:
  /// A module that is being visited, and the one that holds it: a list that needs no memory.
  struct Open {
    const Module* module;
    const Open* outer;
  };

  bool averaged_;
  const Open* open_ = nullptr;
  const autograd::WeightModes* last_ = nullptr;  ///< most models have one
};

void show(const Module& root, bool averaged) {
  if (autograd::WeightModes::any() && !was_moved_from(root))
    Show(averaged).module("", const_cast<Module&>(root));
}

}  // namespace

void show_weights(const Module& root) {
  if (!called_root()) show(root, !root.training());
}

void show_training_weights(const Module& root) { show(root, false); }

}  // namespace firn::nn::detail
