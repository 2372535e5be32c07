// The call of a module around forward(): autocast, hooks, and paths in errors.
#include "firn/nn/call.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "autograd/node.h"
#include "autograd/reading.h"
#include "base/check.h"
#include "firn/memory/labels.h"
#include "firn/nn/module.h"
#include "firn/ops/autocast.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/spans.h"
#include "firn/runtime/storage.h"
#include "firn/thread_context.h"
#include "firn/warning.h"
#include "nn/hooks.h"
#include "nn/member_check.h"
#include "nn/shown_weights.h"
#include "nn/tree.h"

namespace firn::nn {

namespace {

const detail::Call* outermost_call() noexcept {
  const detail::Call* call = thread_context.call;
  while (call && call->caller()) call = call->caller();
  return call;
}

}  // namespace

void CallTensors::add(Tensor& t) { tensors_.push_back(&t); }

Tensor& CallTensors::operator[](std::size_t index) const {
  FIRN_CHECK(index < tensors_.size(), "CallTensors", "they count from 0",
             "there is no tensor {} among {}", index, tensors_.size());
  return *tensors_[index];
}

void detail::refuse_checkpoint(const Module& m) {
  throw Error(m.type_name(),
              "set_checkpoint() needs arguments that can be copied and are not written to",
              "call checkpoint() inside of forward()");
}

void detail::out_of_memory(const char* what) { firn::detail::out_of_memory(what); }

// ---- Listeners ----

detail::CallListener::CallListener() noexcept
    : previous_(std::exchange(thread_context.call_listener, this)) {}
detail::CallListener::~CallListener() { thread_context.call_listener = previous_; }
detail::CallListener* detail::CallListener::current() noexcept {
  return thread_context.call_listener;
}

Module* detail::called_root() noexcept {
  const Call* const call = outermost_call();
  return call ? &call->module() : nullptr;
}

std::string detail::path_in_call(const Module& m) {
  if (Module* const root = called_root())
    for (const NamedModule& part : root->named_modules())
      if (part.module == &m) return part.name;
  return {};
}

// ---- Calls ----

detail::PathLabel::PathLabel() noexcept {
  static constinit std::atomic<std::uint32_t> next{1};
  number_ = next.fetch_add(1, std::memory_order_relaxed);
}

std::uint32_t detail::Call::label() const noexcept {
  const std::uint32_t known = module_.path_label_.under(root_.path_label_);
  if (known) [[likely]]
    return known;
  try {
    // Label the whole tree, since its other modules are called next.
    for (const TreeModule& m : tree_of(root_)) {
      PathLabel& label = m.module->path_label_;
      if (label.under(root_.path_label_)) continue;
      label.note(root_.path_label_,
                 runtime::module_number(root_.type_name() + (m.path.empty() ? "" : ".") + m.path));
    }
    if (const std::uint32_t label = module_.path_label_.under(root_.path_label_)) return label;
  } catch (...) {  // no memory for the path
  }
  return thread_context.labels.module;  // outside of the tree: the caller's label
}

/// Objects that a few calls need, alive while the call runs.
struct detail::Call::Scopes {
  std::optional<Autocast> mode;       ///< set by Module::set_autocast()
  std::optional<MemberCheck> check;   ///< set in the first training calls of an outermost module
  std::optional<runtime::Span> span;  ///< set if a profile is recorded
};

detail::Call::Scopes& detail::Call::scopes() {
  if (!scopes_) scopes_ = std::make_shared<Scopes>();
  return *scopes_;
}

detail::Call::Call(Module& m)
    : module_(m), caller_(thread_context.call), root_(caller_ ? caller_->root_ : m) {
  FIRN_CHECK(!m.moved_from_, m.type_name(), "call the module that it was moved to",
             "this module was moved from and holds nothing");
  if (!caller_ && !autograd::computing_again()) show_weights(m);
  if (m.autocast_) scopes().mode.emplace(*m.autocast_);
  if (!caller_ && m.training_ && grad_enabled() && MemberCheck::due(m)) scopes().check.emplace();
  watched_ = (scopes_ && scopes_->check) || m.hooks_ || thread_context.call_listener;
  label_ = label();
  if (thread_context.trace) [[unlikely]]
    join_trace();
  label_before_ = std::exchange(thread_context.labels.module, label_);
  if (runtime::recording_spans()) [[unlikely]]
    scopes().span.emplace(label_);
  thread_context.call = this;
  if (thread_context.reading) [[unlikely]] {
    thread_context.reading->begin();
    reads_ = true;
  }
}

detail::Call::~Call() {
  if (reads_) [[unlikely]]
    thread_context.reading->end();
  thread_context.call = caller_;
  thread_context.labels.module = label_before_;
  if (again_) module_.training_ = training_before_;
}

void detail::Call::join_trace() {
  autograd::Trace& trace = *thread_context.trace;
  note_ = trace.next_call(module_.training_, label_);
  if (trace.recording()) return;
  const autograd::CallNote& note = trace.call(note_);
  label_ = note.label;
  if (scopes_) scopes_->check.reset();
  watched_ = !note.inputs.empty() || !note.outputs.empty();
  again_ = true;
  training_before_ = std::exchange(module_.training_, note.training);
}

namespace {

using Replacements = std::vector<autograd::Replacement>;

/// Runs `hooks` outside of any checkpoint that is being recorded, and notes the tensors that they
/// replace.
template <class Run>
void run_hooks(const CallTensors& tensors, std::size_t note,
               Replacements autograd::CallNote::*replaced, const Run& run) {
  autograd::Trace* const trace = thread_context.trace;
  if (!trace) [[likely]]
    return run();
  std::vector<Tensor> before;
  for (std::size_t i = 0; i < tensors.size(); ++i) before.push_back(tensors[i]);
  {
    const autograd::OutsideOfTrace outside;
    run();
  }
  Replacements& list = trace->call(note).*replaced;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].impl() != before[i].impl()) list.emplace_back(i, tensors[i]);
}

/// Puts in the tensors that the hooks put there the first time.
void put_in(const CallTensors& tensors, const Replacements& replaced) {
  for (const autograd::Replacement& r : replaced) tensors[r.index()] = r.tensor();
}

}  // namespace

void detail::Call::before(const CallTensors& inputs) {
  if (again_) return put_in(inputs, thread_context.trace->call(note_).inputs);
  if (!module_.hooks_) return;
  const std::shared_ptr<const Hooks> hooks = module_.hooks_.all();
  run_hooks(inputs, note_, &autograd::CallNote::inputs, [&] {
    for (const Hooks::Entry& e : hooks->entries)
      if (const auto* hook = std::get_if<ForwardPreHook>(&e.hook)) (*hook)(module_, inputs);
  });
}

void detail::Call::after(const CallTensors& inputs, const CallTensors& outputs) {
  if (again_) return put_in(outputs, thread_context.trace->call(note_).outputs);
  if (module_.hooks_) {
    const std::shared_ptr<const Hooks> hooks = module_.hooks_.all();
    run_hooks(outputs, note_, &autograd::CallNote::outputs, [&] {
      for (const Hooks::Entry& e : hooks->entries)
        if (const auto* hook = std::get_if<ForwardHook>(&e.hook)) (*hook)(module_, inputs, outputs);
    });
  }
  if (thread_context.call_listener) thread_context.call_listener->called(module_, outputs);
  if (scopes_ && scopes_->check) scopes_->check->report(module_);
}

void detail::Call::failed(Error& e) const noexcept {
  if (!e.module().empty() || (!caller_ && !again_)) return;
  try {
    if (again_) {  // the outermost module is not being called
      const std::string_view path = runtime::module_path(label_);
      return e.set_module(
          fmt::format("{} ({})", path.substr(path.find('.') + 1), module_.type_name()));
    }
    // A module outside the tree is named after its nearest caller in the tree.
    std::string inside;
    Module& root = *called_root();
    const std::vector<TreeModule> tree = tree_of(root);
    for (const Call* call = this; call; call = call->caller()) {
      const Module* const m = &call->module();
      const auto found = std::find_if(tree.begin(), tree.end(),
                                      [m](const TreeModule& t) { return t.module == m; });
      if (found == tree.end()) {
        if (inside.empty())
          inside = fmt::format("{}, which is no member of {}", described(*m), root.type_name());
        continue;
      }
      if (found->path.empty()) return inside.empty() ? void() : e.set_module(inside);
      const std::string path = fmt::format("{} ({})", found->path, m->type_name());
      return e.set_module(inside.empty() ? path : fmt::format("{}: {}", path, inside));
    }
  } catch (...) {  // no memory for the path: keep the error itself
  }
}

Tensor Module::forward(const Tensor&) {
  throw Error(type_name(), "has no forward(const Tensor&)",
              "override Tensor forward(const Tensor& x); a module with other inputs derives from "
              "nn::ModuleOf and is called as its own type");
}

bool detail::Call::checkpointed() const noexcept { return module_.checkpoint_ && grad_enabled(); }
const CheckpointOptions& detail::Call::checkpoint_options() const noexcept {
  return *module_.checkpoint_;
}

void Module::set_checkpoint(const CheckpointOptions& options) {
  detail::require_members("Module::set_checkpoint", *this);
  require_seen_calls("Module::set_checkpoint");
  about_to_set();
  checkpoint_ = options;
}

void Module::set_checkpoint(std::nullopt_t) {
  detail::require_members("Module::set_checkpoint", *this);
  about_to_set();
  checkpoint_.reset();
}

Tensor Module::operator()(const Tensor& x) try {
  detail::Call call(*this);
  const auto run = [&](const Tensor& input) {
    if (!call.checkpointed()) [[likely]]
      return forward(input);
    return firn::checkpoint(call.checkpoint_options(), detail::ForwardOf<Module>(*this), input);
  };
  try {
    if (!call.watched()) [[likely]]
      return run(x);
    Tensor input = x;
    const CallTensors inputs = detail::tensors_in(input);
    call.before(inputs);
    Tensor y = run(input);
    call.after(inputs, detail::tensors_in(y));
    return y;
  } catch (Error& e) {
    call.failed(e);
    throw;
  }
}
FIRN_OUT_OF_MEMORY("a module")

}  // namespace firn::nn
