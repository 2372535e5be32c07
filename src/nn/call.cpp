// What the call of a module does around forward(): autocast, hooks, paths in errors, and the check
// that FIRN_MEMBERS lists what forward() uses.
#include "firn/nn/call.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <unordered_set>
#include <utility>
#include <variant>

#include "autograd/node.h"
#include "autograd/reading.h"
#include "base/check.h"
#include "firn/memory/labels.h"
#include "firn/nn/module.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/storage.h"
#include "firn/thread_context.h"
#include "firn/warning.h"
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

// ---- Hooks ----

namespace {

constinit std::atomic<HookId> next_hook = 1;  // shared by all modules, so ids are unique

}  // namespace

struct detail::Hooks {
  struct Entry {
    HookId id;
    std::variant<ForwardPreHook, ForwardHook> hook;
  };
  std::vector<Entry> entries;

  template <class Hook>
  static std::shared_ptr<const Hooks> with(const Hooks* old, Hook hook, HookId& id) {
    auto all = old ? std::make_shared<Hooks>(*old) : std::make_shared<Hooks>();
    id = next_hook.fetch_add(1, std::memory_order_relaxed);
    all->entries.push_back({id, std::move(hook)});
    return all;
  }
};

HookId detail::HookList::add(ForwardPreHook hook) {
  HookId id;
  hooks_ = Hooks::with(hooks_.get(), std::move(hook), id);
  return id;
}
HookId detail::HookList::add(ForwardHook hook) {
  HookId id;
  hooks_ = Hooks::with(hooks_.get(), std::move(hook), id);
  return id;
}

bool detail::HookList::remove(HookId id) {
  if (!hooks_) return false;
  auto left = std::make_shared<Hooks>(*hooks_);
  if (std::erase_if(left->entries, [id](const Hooks::Entry& e) { return e.id == id; }) == 0)
    return false;
  if (left->entries.empty()) left.reset();
  hooks_ = std::move(left);
  return true;
}

void Module::require_seen_calls(const char* op) const {
  const detail::ModuleTraits* const traits = firn_traits();
  FIRN_CHECK(!traits || !traits->own_call, op,
             "derive from nn::ModuleOf and name it forward(): calls then take any arguments",
             "{} has a call operator of its own, whose calls firn does not see", type_name());
}

HookId Module::add_forward_pre_hook(ForwardPreHook hook) try {
  require_seen_calls("Module::add_forward_pre_hook");
  FIRN_CHECK(hook, "Module::add_forward_pre_hook", "give a function of the module and its inputs",
             "the hook is empty");
  about_to_set();
  return hooks_.add(std::move(hook));
}
FIRN_OUT_OF_MEMORY("Module::add_forward_pre_hook")
HookId Module::add_forward_hook(ForwardHook hook) try {
  require_seen_calls("Module::add_forward_hook");
  FIRN_CHECK(hook, "Module::add_forward_hook",
             "give a function of the module, its inputs and its outputs", "the hook is empty");
  about_to_set();
  return hooks_.add(std::move(hook));
}
FIRN_OUT_OF_MEMORY("Module::add_forward_hook")
void Module::remove_hook(HookId id) try {
  about_to_set();
  FIRN_CHECK(hooks_.remove(id), "Module::remove_hook",
             "give the id that adding it to this very module returned", "{} has no hook {}",
             type_name(), id);
}
FIRN_OUT_OF_MEMORY("Module::remove_hook")

// ---- Members that are not listed ----

/// Finds members that FIRN_MEMBERS leaves out. It notes the parameters that a training call of an
/// outermost module uses. A parameter is never trained if the tree does not list it and no
/// optimizer holds it, while an optimizer holds some of the tree.
class detail::MemberCheck final : public autograd::OpListener {
 public:
  ~MemberCheck() override { stop(); }
  /// Whether to check this call of `m`. Counts the call.
  static bool due(Module& m) noexcept {
    const std::atomic_ref<std::uint8_t> left(m.member_checks_left_);
    const std::uint8_t n = left.load(std::memory_order_relaxed);
    if (n > 0) left.store(n - 1, std::memory_order_relaxed);
    return n > 0;
  }

  void ran(const char* op, std::span<const Tensor* const> operands, const Tensor&) override {
    for (const Tensor* t : operands) {
      if (!t || !t->defined() || t->storage()->owner() != Owner::weights) continue;
      if (!autograd::leaf_of(*t) || !seen_.insert(t->impl()).second || is_trained(*t)) continue;
      const Module* const m = thread_context.call ? &thread_context.call->module() : nullptr;
      uses_.push_back({*t, op, m, m ? described(*m) : ""});
    }
  }

  void report(Module& root) {
    std::unordered_set<const TensorImpl*> listed;
    std::unordered_set<const Module*> modules;
    bool trained = false;
    for (const TreeModule& m : tree_of(root)) {
      modules.insert(m.module);
      for (const TreeTensor& t : m.tensors) {
        listed.insert(t.tensor.impl());
        trained = trained || is_trained(t.tensor);
      }
    }
    if (!trained) return;
    std::atomic_ref<std::uint8_t>(root.member_checks_left_).store(0, std::memory_order_relaxed);
    std::string text;
    for (const Use& use : uses_) {
      if (listed.contains(use.parameter.impl()) || is_trained(use.parameter)) continue;
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", use.op, describe(use.parameter));
      if (use.module && !modules.contains(use.module)) text += " of a " + use.name;
    }
    if (text.empty()) return;
    warn(root.type_name(),
         fmt::format("forward() uses parameters that FIRN_MEMBERS does not list and no optimizer "
                     "trains: {}",
                     text),
         "list every member that holds parameters in FIRN_MEMBERS, or freeze it with "
         "set_requires_grad(false)");
  }

 private:
  struct Use {
    Tensor parameter;
    const char* op;
    const Module* module;  ///< may be gone at the end of the outermost call
    std::string name;
  };

  static bool is_trained(const Tensor& t) noexcept {
    const autograd::Leaf* const leaf = autograd::leaf_of(t);
    return leaf && leaf->is_trained();
  }

  std::unordered_set<const TensorImpl*> seen_;
  std::vector<Use> uses_;
};

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
    for (const TreeModule& m : tree_of(root_)) {
      if (m.module != &module_) continue;
      const std::uint32_t label =
          runtime::module_number(root_.type_name() + (m.path.empty() ? "" : ".") + m.path);
      module_.path_label_.note(root_.path_label_, label);
      return label;
    }
  } catch (...) {  // no memory for the path
  }
  return thread_context.labels.module;  // outside of the tree: its caller's
}

detail::Call::Call(Module& m)
    : module_(m), caller_(thread_context.call), root_(caller_ ? caller_->root_ : m) {
  FIRN_CHECK(!m.moved_from_, m.type_name(), "call the module that it was moved to",
             "this module was moved from and holds nothing");
  if (!caller_ && !autograd::computing_again()) show_weights(m);
  if (m.autocast_) mode_.emplace(*m.autocast_);
  if (!caller_ && m.training_ && grad_enabled() && MemberCheck::due(m))
    check_ = std::make_unique<MemberCheck>();
  watched_ = check_ || m.hooks_ || thread_context.call_listener;
  label_ = label();
  if (thread_context.trace) [[unlikely]]
    join_trace();
  label_before_ = std::exchange(thread_context.labels.module, label_);
  if (runtime::recording_spans()) [[unlikely]]
    span_.emplace(label_);
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
  check_.reset();
  watched_ = !note.inputs.empty() || !note.outputs.empty();
  again_ = true;
  training_before_ = std::exchange(module_.training_, note.training);
}

namespace {

using Replacements = std::vector<autograd::Replacement>;

/// Runs `hooks` beside the checkpoint that is recorded, if there is one, and notes what they
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

/// What the hooks put there the first time.
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
  if (check_) check_->report(module_);
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

// ---- Modules that are found again ----

struct detail::ModuleLink::Place {
  ModuleLink* link;          ///< null if the module is gone
  std::ptrdiff_t in_module;  ///< bytes from the module to its link
};

void detail::ModuleLink::take(ModuleLink& from) noexcept {
  place_ = std::move(from.place_);
  if (place_) place_->link = this;
}
void detail::ModuleLink::cut() noexcept {
  if (place_) place_->link = nullptr;
  place_.reset();
}
detail::ModuleLink& detail::ModuleLink::operator=(const ModuleLink& from) noexcept {
  if (this != &from) cut();
  return *this;
}
detail::ModuleLink& detail::ModuleLink::operator=(ModuleLink&& from) noexcept {
  if (this == &from) return *this;
  cut();
  take(from);
  return *this;
}

std::shared_ptr<const detail::ModuleLink::Place> detail::ModuleLink::place(Module& m) {
  if (!place_)
    place_ = std::make_shared<Place>(
        Place{this, reinterpret_cast<char*>(this) - reinterpret_cast<char*>(&m)});
  return place_;
}

Module* detail::ModuleLink::find(const Place& place) noexcept {
  if (!place.link) return nullptr;
  return reinterpret_cast<Module*>(reinterpret_cast<char*>(place.link) - place.in_module);
}

Module& detail::ModuleLink::at(const Place& place) {
  Module* const m = find(place);
  FIRN_CHECK(m, "checkpoint", "keep the module until the backward pass",
             "a module whose activations are to be computed again was destroyed or assigned to");
  return *m;
}

void Module::about_to_set() {
  if (!runtime::planning()) [[likely]]
    return;
  const auto place = link_.place(*this);
  // A copy of the hooks has none: those of now come back by a move.
  const auto hooks = std::make_shared<detail::HookList>(hooks_.again());
  runtime::at_dry_end(place.get(), [place, hooks, training = training_, autocast = autocast_,
                                    checkpoint = checkpoint_] {
    Module* const m = detail::ModuleLink::find(*place);
    if (!m) return;
    m->training_ = training;
    m->autocast_ = autocast;
    m->checkpoint_ = checkpoint;
    m->hooks_ = std::move(*hooks);
  });
}

void Module::set_checkpoint(const std::optional<CheckpointOptions>& options) {
  if (options) require_seen_calls("Module::set_checkpoint");
  about_to_set();
  checkpoint_ = options;
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
