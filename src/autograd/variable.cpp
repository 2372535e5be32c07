// A tensor's place in the graph, hooks, and functions of the user's own.
#include <algorithm>
#include <memory>
#include <optional>

#include "autograd/node.h"
#include "autograd/op_attributes.h"
#include "base/check.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/spans.h"
#include "firn/thread_context.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "tensor/overlap.h"

namespace firn {

using autograd::Leaf;
using autograd::leaf_of;
using autograd::Node;
using autograd::node_of;

namespace {

Tensor copy_of(const Tensor& g, DType dtype) {
  const OwnerScope owner(Owner::gradients);
  Tensor copy = empty(g.shape(), dtype, g.device());
  kernels::copy(g.view(), copy.mutable_view(), current_stream(g.device()));
  return copy;
}

/// Registers that a tensor from before a plan of a step has its present node again at the end of
/// the plan.
void keep_node_if_planned(const Tensor& t) {
  if (!runtime::planning() || t.storage()->is_of_plan()) [[likely]]
    return;
  runtime::at_dry_end(t.impl(), [t, node = t.impl()->node] { t.impl()->node = node; });
}

}  // namespace

bool Tensor::requires_grad() const noexcept { return node_of(*this) != nullptr; }

Tensor& Tensor::set_requires_grad(bool on) try {
  require_defined("set_requires_grad", *this);
  Node* node = node_of(*this);
  if (node && !node->is_leaf()) {
    FIRN_CHECK(on, "set_requires_grad", "x.detach() takes a tensor out of its graph",
               "{} was made by {} and belongs to its graph", describe(*this), node->op);
    return *this;
  }
  FIRN_CHECK(node || !impl_->node, "set_requires_grad", "end the scope of Freeze first",
             "{} is frozen", describe(*this));
  if (on == (node != nullptr)) return *this;
  if (!on) {
    FIRN_CHECK(!leaf_of(*this)->is_trained(), "set_requires_grad",
               "use a Freeze guard, or leave the parameter out of the optimizer",
               "{} belongs to an optimizer", describe(*this));
    keep_node_if_planned(*this);
    impl_->node.reset();
    return *this;
  }
  FIRN_CHECK(is_floating(dtype()), "set_requires_grad", "cast it to a floating dtype",
             "{} cannot have a gradient", describe(*this));
  keep_node_if_planned(*this);
  auto* leaf = new Leaf;
  leaf->of_plan = runtime::planning();
  leaf->op = "leaf";
  leaf->shape = shape();
  leaf->dtype = dtype();
  leaf->device = device();
  leaf->format = format_of(shape(), strides());
  impl_->node = Ref<GraphNode>(leaf);
  return *this;
}
FIRN_OUT_OF_MEMORY("set_requires_grad")

Tensor Tensor::grad() const {
  require_defined("grad", *this);
  const Leaf* leaf = autograd::leaf_or_frozen(*this);
  FIRN_CHECK(leaf || !node_of(*this), "grad", "only leaves keep a gradient: add_hook shows others",
             "{} was made by {}", describe(*this), node_of(*this)->op);
  if (!leaf) return {};
  if (leaf->cycle) leaf->cycle->adopt_gradients();
  FIRN_CHECK(!leaf->collector() || leaf->arena.defined() || leaf->touched == 0, "grad",
             "a hook (add_hook) is given this rank's gradient; or set DistributeOptions::zero to 1",
             "the gradient of {} is sharded over ranks", describe(*this));
  if (leaf->arena.defined()) return leaf->touched ? leaf->arena : Tensor();
  return leaf->collected;
}

void Tensor::set_grad(const Tensor& g) const {
  require_defined("set_grad", *this);
  Leaf* leaf = leaf_of(*this);
  FIRN_CHECK(leaf, "set_grad", "call set_requires_grad() on it", "{} is not a leaf with a gradient",
             describe(*this));
  FIRN_CHECK(
      !g.defined() || (g.shape() == shape() && is_floating(g.dtype()) && g.device() == device()),
      "set_grad", "give a gradient of the tensor's shape and device, in a floating dtype",
      "gradient {} for tensor {}", describe(g), describe(*this));
  FIRN_CHECK(!leaf->cycle || leaf->cycle != thread_context.cycle, "set_grad",
             "return the gradient from the hook, or call it after backward() has returned",
             "the backward() of the optimizer that trains {} is running", describe(*this));
  FIRN_CHECK(!leaf->collector(), "set_grad", "set DistributeOptions::zero to 1",
             "the gradient of {} is sharded over ranks", describe(*this));
  if (leaf->cycle) leaf->cycle->adopt_gradients();  // a later call would undo this
  autograd::keep_if_planned(*leaf);
  autograd::keep_if_of_cycle(*leaf);
  if (!leaf->arena.defined()) {
    leaf->collected = !g.defined() ? g : g.dtype() == dtype() ? g.detach() : copy_of(g, dtype());
    return;
  }
  if (!g.defined()) {
    leaf->touched = 0;
  } else if (leaf->touched == 0) {
    leaf->touched = 1;
  }
  const Tensor& slice = leaf->arena;
  if (g.defined()) {
    const Tensor from = disturbs(slice.view(), g.view()) ? copy_of(g, g.dtype()) : g;
    kernels::axpby(1.0, from.view(), 0.0, slice.mutable_view(), current_stream(slice.device()));
  } else {
    zero_bytes(slice.impl()->data(), slice.device(), slice.bytes());
  }
}

void Tensor::backward() const { firn::backward(*this); }

Tensor Tensor::detach() const {
  require_defined("detach", *this);
  return Tensor(Ref<TensorImpl>(
      new TensorImpl(impl_->storage, impl_->shape, impl_->strides, impl_->offset, impl_->dtype)));
}

int add_hook(const Tensor& t, GradHook hook) try {
  require_defined("add_hook", t);
  Node* node = node_of(t);
  FIRN_CHECK(node, "add_hook", "call set_requires_grad() on it", "{} requires no gradient",
             describe(t));
  FIRN_CHECK(hook != nullptr, "add_hook", "give a function of the gradient",
             "the hook for {} is empty", describe(t));
  // A function that is computed again has added its hooks the first time, but for those of the
  // results that it makes now.
  if (autograd::computing_again() && thread_context.trace->made_before(*node))
    return node->hooks ? node->hooks->made - 1 : 0;
  if (!node->hooks) node->hooks = std::make_unique<autograd::Hooks>();
  autograd::Hooks& hooks = *node->hooks;
  std::erase_if(hooks.list, [](const auto& h) {
    return h.of_plan != 0 && h.of_plan != runtime::plan_number();  // added by a plan that has ended
  });
  hooks.list.push_back({hooks.made, autograd::passes_begun(),
                        std::make_shared<const GradHook>(std::move(hook)), runtime::plan_number()});
  return hooks.made++;
}
FIRN_OUT_OF_MEMORY("add_hook")

void remove_hook(const Tensor& t, int id) {
  require_defined("remove_hook", t);
  Node* node = node_of(t);
  if (node && autograd::computing_again() && thread_context.trace->made_before(*node)) return;
  autograd::Hooks* hooks = node ? node->hooks.get() : nullptr;
  FIRN_CHECK(hooks && id >= 0 && id < hooks->made, "remove_hook",
             "use the number that add_hook returned for this tensor", "{} has no hook {}",
             describe(t), id);
  // The hook is destroyed when the list is whole again: objects that it holds may use the list.
  const auto at = std::find_if(hooks->list.begin(), hooks->list.end(),
                               [id](const auto& h) { return h.id == id; });
  FIRN_CHECK(at != hooks->list.end() && at->counts(runtime::plan_number()), "remove_hook",
             "remove it once", "hook {} of {} was removed", id, describe(t));
  if (runtime::planning() && at->of_plan == 0) {
    at->removed_by = runtime::plan_number();
    return;
  }
  const auto removed = std::move(at->run);
  hooks->list.erase(at);
}

namespace {

struct CustomFunction {
  const char* name;  ///< kept for ever: blocks of memory and profiles point at it, too
  std::function<std::vector<Tensor>(const CustomBackward&)> backward;
  int saved_count;
  /// Autocast mode of the call of custom(). Gradients are often f32 while saved tensors have 16
  /// bits: the function needs the casts of its forward pass.
  std::optional<DType> autocast;

  std::vector<Tensor> gradients(const Tensor& grad, const std::vector<Tensor>& saved) const {
    const autograd::AutocastScope scope(autocast);
    const std::uint32_t version = grad.storage()->version();
    try {
      std::vector<Tensor> out = backward({grad, saved});
      FIRN_CHECK(
          grad.storage()->version() == version, name,
          "compute a new tensor: grad * 2.0 in place of grad *= 2.0",
          "backward wrote the gradient that it was given in place ({}), and others may share "
          "that memory",
          grad.storage()->last_writer());
      return out;
    } catch (Error& e) {
      try {
        if (e.op() != name) e.set_module(fmt::format("backward of {}", name));
      } catch (const std::bad_alloc&) {  // the error goes on as it is
      }
      throw;
    }
  }

  void operator()(autograd::Backward& b) const {
    std::vector<Tensor> saved;
    for (int i = 0; i < saved_count; ++i) saved.push_back(b.saved(i));
    const std::vector<Tensor> grads = gradients(b.grad(), saved);
    FIRN_CHECK(static_cast<int>(grads.size()) == b.input_count(), name,
               "return one gradient per input, undefined for none",
               "backward returned {} gradients for {} inputs", grads.size(), b.input_count());
    for (int i = 0; i < b.input_count(); ++i)
      if (b.needs(i) && grads[static_cast<std::size_t>(i)].defined())
        b.accumulate(i, grads[static_cast<std::size_t>(i)]);
  }
};

}  // namespace

Tensor custom(std::string name, std::vector<Tensor> inputs, const Tensor& output,
              std::vector<Tensor> saved,
              std::function<std::vector<Tensor>(const CustomBackward&)> backward) try {
  require_defined(name.c_str(), output);
  FIRN_CHECK(!output.requires_grad(), name,
             "compute it under NoGrad; if it is a tensor from outside, such as an input h, give "
             "h.detach(), or h.clone() made under NoGrad",
             "the output {} of a custom function is part of a graph already", describe(output));
  require_function(name, backward, "give a function that returns one gradient per input",
                   "the backward function of custom()");
  const char* const op = runtime::keep_name(name);
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"custom", true}});
  if (thread_context.op_mode.watched()) autograd::detail::watch(op, inputs, output);
  if (thread_context.trace) thread_context.trace->next_op(op);
  if (!autograd::detail::needs_recording(inputs)) return output;
  FIRN_CHECK(is_floating(output.dtype()), name,
             "cast it: output.to(firn::f32); or call the function under NoGrad",
             "the output {} of a custom function has no gradient, but an input requires one",
             describe(output));
  CustomFunction function{op, std::move(backward), static_cast<int>(saved.size()),
                          autograd::autocast_mode()};
  Ref<Node> node(new autograd::detail::FnNode<CustomFunction>(std::move(function)));
  Tensor result =
      output.detach();  // the caller's handle, and inputs returned as they are, stay out
  autograd::detail::attach(node, op, result, inputs, {});
  for (Tensor& t : saved)
    if (t.defined()) t = t.detach();
  autograd::save(result, saved);
  return result;
}
FIRN_OUT_OF_MEMORY("custom")

}  // namespace firn
