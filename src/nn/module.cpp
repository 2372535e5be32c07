// Module: state, modes, conversion.
#include "firn/nn/module.h"

#include <optional>
#include <ostream>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "autograd/batch_parts.h"
#include "autograd/node.h"
#include "base/check.h"
#include "firn/nn/init.h"
#include "firn/ops/autocast.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/rollback.h"
#include "firn/runtime/storage.h"
#include "firn/runtime/stream.h"
#include "firn/thread_context.h"
#include "nn/shown_weights.h"
#include "nn/tree.h"
#include "tensor/impl.h"

namespace firn::nn {

using detail::for_each_tensor;
using detail::require_members;
using detail::tree_of;
using detail::TreeModule;
using detail::TreeTensor;

namespace {

Tensor copy_for_weights(const char* what, const Tensor& value) {
  FIRN_CHECK(value.defined(), what, fmt::format("without a value it is {}()", what),
             "the tensor is undefined");
  const NoGrad guard;
  const OwnerScope owner(Owner::weights);
  return value.is_channels_last() && !value.is_contiguous() ? channels_last(firn::clone(value))
                                                            : firn::clone(value);
}

/// Throws, before anything is changed, if an optimizer holds a parameter of `m`.
void require_no_optimizer(const char* op, const char* hint, const Module& m) {
  for_each_tensor(tree_of(m), [&](const TreeTensor& t) {
    const autograd::Leaf* leaf = autograd::leaf_of(t.tensor);
    FIRN_CHECK(!leaf || !leaf->is_trained(), op, hint, "{} {} belongs to an optimizer", t.path,
               describe(t.tensor));
  });
}

}  // namespace

Parameter::Parameter(const Tensor& value) : Tensor(copy_for_weights("Parameter", value)) {
  FIRN_CHECK(is_floating(dtype()), "Parameter",
             "cast it to a floating dtype, or make a Buffer of it", "{} cannot have a gradient",
             describe(value));
  set_requires_grad();
}

Parameter Parameter::empty(const Shape& shape, DType dtype, Device device) {
  FIRN_CHECK(is_floating(dtype), "Parameter", "give a floating dtype", "{} cannot have a gradient",
             dtype);
  const OwnerScope owner(Owner::weights);
  Parameter p;
  static_cast<Tensor&>(p) = firn::empty(shape, dtype, device);
  p.set_requires_grad();
  return p;
}

Parameter Parameter::full(const Shape& shape, double value, DType dtype, Device device) {
  Parameter p = empty(shape, dtype, device);
  init::constant_(p, value);
  return p;
}

Buffer::Buffer(const Tensor& value, OnConversion conversion)
    : Tensor(copy_for_weights("Buffer", value)), on_conversion(conversion) {
  require_named("Buffer", "OnConversion", conversion, OnConversion::keep);
}

// ---- State ----

std::vector<Tensor> Module::parameters() const try {
  require_members("Module::parameters", *this);
  detail::show_weights(*this);
  std::vector<Tensor> all;
  const std::vector<TreeModule> tree = tree_of(*this);
  detail::warn_of_shared_elements(*this, tree);
  for_each_tensor(tree, [&](const TreeTensor& t) {
    if (!t.buffer) all.push_back(t.tensor);
  });
  return all;
}
FIRN_OUT_OF_MEMORY("the list of parameters")

std::vector<NamedTensor> Module::named_parameters() const try {
  require_members("Module::named_parameters", *this);
  detail::show_weights(*this);
  std::vector<NamedTensor> all;
  const std::vector<TreeModule> tree = tree_of(*this);
  detail::warn_of_shared_elements(*this, tree);
  for_each_tensor(tree, [&](const TreeTensor& t) {
    if (!t.buffer) all.push_back({t.path, t.tensor});
  });
  return all;
}
FIRN_OUT_OF_MEMORY("the list of parameters")

std::vector<NamedTensor> Module::named_buffers() const try {
  require_members("Module::named_buffers", *this);
  std::vector<NamedTensor> all;
  for_each_tensor(tree_of(*this), [&](const TreeTensor& t) {
    if (t.buffer) all.push_back({t.path, t.tensor});
  });
  return all;
}
FIRN_OUT_OF_MEMORY("the list of buffers")

std::vector<NamedModule> Module::named_modules() try {
  require_members("Module::named_modules", *this);
  std::vector<NamedModule> all;
  for (TreeModule& m : tree_of(*this)) all.push_back({std::move(m.path), m.module});
  return all;
}
FIRN_OUT_OF_MEMORY("the list of modules")

std::int64_t Module::num_parameters(bool trainable_only) const {
  require_members("Module::num_parameters", *this);
  std::int64_t n = 0;
  for (const Tensor& p : parameters())
    if (!trainable_only || p.requires_grad()) n += p.numel();
  return n;
}

void Module::copy_from(const Module& other) try {
  require_members("Module::copy_from", *this);
  require_members("Module::copy_from", other);
  detail::show_weights(*this);
  detail::show_weights(other);
  std::unordered_map<std::string, Tensor> sources;
  for (const TreeModule& m : tree_of(other))
    for (const TreeTensor& t : m.tensors) sources.emplace(t.path, t.tensor);

  std::vector<std::pair<Tensor, Tensor>> pairs;  // to, from
  std::string problems;
  const auto problem = [&](const std::string& text) {
    problems += (problems.empty() ? "" : "; ") + text;
  };
  for (const TreeModule& m : tree_of(*this)) {
    for (const TreeTensor& t : m.tensors) {
      if (t.of_cycle) continue;
      const auto found = sources.find(t.path);
      if (found == sources.end()) {
        problem(fmt::format("{} {} is missing in the source", t.path, t.tensor.shape()));
        continue;
      }
      const Tensor source = std::move(found->second);
      sources.erase(found);
      if (source.shape() != t.tensor.shape())
        problem(
            fmt::format("{} is {}, the source has {}", t.path, t.tensor.shape(), source.shape()));
      else if (source.impl() != t.tensor.impl())
        pairs.emplace_back(t.tensor, source);
    }
  }
  // In the order of the source, so that the message is always the same.
  for (const TreeModule& m : tree_of(other))
    for (const TreeTensor& t : m.tensors)
      if (sources.contains(t.path) && !t.of_cycle)
        problem(fmt::format("the source also has {} {}", t.path, t.tensor.shape()));
  FIRN_CHECK(problems.empty(), "Module::copy_from",
             "both modules must be made with the same structure", "{} and {} do not match: {}",
             type_name(), other.type_name(), problems);

  const NoGrad guard;
  // Convert everything first: if memory runs out, nothing has been written.
  for (auto& [to, from] : pairs) {
    from = to_device(cast(from, to.dtype()), to.device());
    if (from.storage() == to.storage()) from = firn::clone(from);
  }
  for (auto& [to, from] : pairs) {
    copy_(to, from);
    runtime::forget_change(Rollback::statistics, to.impl());
  }
}
FIRN_OUT_OF_MEMORY("Module::copy_from")

// ---- Modes ----

void Module::train(bool on) try {
  require_members("Module::train", *this);
  for (const TreeModule& m : tree_of(*this)) {
    if (auto* const part = thread_context.batch_part)
      part->changed(m.module, m.module->training_, on);
    m.module->about_to_set();
    m.module->training_ = on;
  }
}
FIRN_OUT_OF_MEMORY("Module::train")

detail::EvalScope::EvalScope(const std::vector<TreeModule>& tree, bool training) {
  for (const TreeModule& m : tree) before_.emplace_back(m.module, m.module->training_);
  for (const auto& [module, before] : before_) module->training_ = training;
}
detail::EvalScope::~EvalScope() {
  for (const auto& [module, training] : before_) module->training_ = training;
}

void Module::set_autocast(std::optional<DType> dtype) {
  require_members("Module::set_autocast", *this);
  if (dtype) const Autocast valid(*dtype);  // throws if autocast does not take it
  if (dtype) require_seen_calls("Module::set_autocast");
  about_to_set();
  autocast_ = dtype;
}

void Module::apply(const std::function<void(Module&)>& fn) try {
  require_members("Module::apply", *this);
  require_function("Module::apply", fn, "give a function of a Module&");
  const std::vector<TreeModule> tree = tree_of(*this);
  std::vector<Module*> open;  // modules whose sub-modules are being visited
  for (const TreeModule& m : tree) {
    while (open.size() > static_cast<std::size_t>(m.depth)) {
      fn(*open.back());
      open.pop_back();
    }
    open.push_back(m.module);
  }
  while (!open.empty()) {
    fn(*open.back());
    open.pop_back();
  }
}
FIRN_OUT_OF_MEMORY("Module::apply")

void Module::zero_grad() try {
  require_members("Module::zero_grad", *this);
  // Clearing gradients alone would leave the weight of the optimizer's cycle.
  require_no_optimizer("Module::zero_grad",
                       "call the optimizer's zero_grad(); its step() has done so", *this);
  for (const Tensor& p : parameters())
    if (p.requires_grad()) p.set_grad(Tensor());
}
FIRN_OUT_OF_MEMORY("Module::zero_grad")

void Module::set_requires_grad(bool on) try {
  require_members("Module::set_requires_grad", *this);
  if (!on)
    require_no_optimizer("Module::set_requires_grad",
                         "guard its calls with NoGrad, or freeze it for a while by a Freeze; for "
                         "good, destroy its optimizer first",
                         *this);
  std::vector<Tensor> changed;
  for (const auto& [name, p] : named_parameters()) {
    FIRN_CHECK(p.requires_grad() || !autograd::leaf_or_frozen(p), "Module::set_requires_grad",
               "end the scope of Freeze first", "{} {} is frozen", name, describe(p));
    if (p.requires_grad() != on) changed.push_back(p);
  }
  std::size_t done = 0;
  try {
    for (; done < changed.size(); ++done) changed[done].set_requires_grad(on);
  } catch (...) {  // no memory for a leaf: those before it as they were
    while (on && done > 0) changed[--done].set_requires_grad(false);
    throw;
  }
}
FIRN_OUT_OF_MEMORY("Module::set_requires_grad")

// ---- Conversion ----

namespace {

/// The new state of one tensor. All are made before the first tensor changes.
struct Conversion {
  TensorImpl* impl;
  autograd::Leaf* leaf;
  Tensor value;
  Tensor grad;
};

void commit(const Conversion& c) noexcept {
  // The version goes up, so that a graph which saved the old elements cannot run backward on the
  // new ones.
  const std::uint32_t version = c.impl->storage->version();
  while (c.value.storage()->version() <= version) c.value.storage()->bump_version("Module::to");
  c.impl->storage->bump_version("Module::to");
  c.impl->storage = c.value.storage();
  c.impl->strides = c.value.strides();
  c.impl->offset = c.value.storage_offset();
  c.impl->dtype = c.value.dtype();
  if (c.leaf) {
    c.leaf->dtype = c.value.dtype();
    c.leaf->format = format_of(c.impl->shape, c.impl->strides);
    c.leaf->device = c.value.device();
    c.leaf->collected = c.grad;
  }
}

void convert(Module& root, std::optional<DType> dtype, std::optional<Device> device) {
  for_each_tensor(tree_of(root), [&](const TreeTensor& t) {
    FIRN_CHECK(!runtime::dry_run() || t.tensor.storage()->is_of_plan(), "Module::to",
               "convert the module before the plan, or make it in the plan",
               "a plan cannot convert {}, whose {} was made before the plan", root.type_name(),
               t.path);
  });
  const NoGrad guard;
  std::vector<Conversion> plan;
  const auto converted = [&](const Tensor& t, DType to, Owner owner) {
    const OwnerScope scope(owner);
    Tensor y = cast(t, to);
    if (device) y = to_device(y, *device);
    return y.is_channels_last() ? y : contiguous(y);
  };
  const auto dtype_for = [&](const TreeTensor& t) {
    const DType now = t.tensor.dtype();
    if (!dtype || !is_floating(now) || t.on_conversion == OnConversion::keep) return now;
    return t.on_conversion == OnConversion::widen ? compute_dtype(*dtype) : *dtype;
  };
  for_each_tensor(tree_of(root), [&](const TreeTensor& t) {
    const DType to = dtype_for(t);
    if (t.tensor.dtype() == to && (!device || t.tensor.device() == *device)) return;
    autograd::Leaf* leaf = autograd::leaf_of(t.tensor);
    FIRN_CHECK(!leaf || !leaf->is_trained(), "Module::to",
               "convert the module first, then make the optimizer",
               "{} {} belongs to an optimizer and cannot become {}", t.path, describe(t.tensor),
               dtype ? std::string(to_string(*dtype)) : to_string(*device));
    Tensor grad;
    if (leaf && leaf->collected.defined()) grad = converted(leaf->collected, to, Owner::gradients);
    plan.push_back(
        {t.tensor.impl(), leaf, converted(t.tensor, to, Owner::weights), std::move(grad)});
  });
  for (const Conversion& c : plan) commit(c);
}

}  // namespace

void Module::to(Device device) try {
  require_members("Module::to", *this);
  require_device("Module::to", device);
  convert(*this, {}, device);
}
FIRN_OUT_OF_MEMORY("Module::to")

void Module::to(DType dtype) try {
  require_members("Module::to", *this);
  FIRN_CHECK(is_floating(dtype), "Module::to", "use f16, bf16, f32 or f64",
             "parameters cannot become {}", dtype);
  convert(*this, dtype, {});
}
FIRN_OUT_OF_MEMORY("Module::to")

std::string Module::type_name() const { return detail::short_type_name(typeid(*this).name()); }

}  // namespace firn::nn
