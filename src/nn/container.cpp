// AnyModule, Sequential, ModuleDict and Lambda.
#include "firn/nn/container.h"

#include <memory>
#include <utility>

#include "base/check.h"
#include "nn/tree.h"

namespace firn::nn {

AnyModule::AnyModule(const AnyModule& other)
    : module_(other.copy_ ? std::shared_ptr<Module>(other.copy_(*other.module_)) : other.module_),
      copy_(other.copy_) {}
AnyModule::AnyModule(AnyModule&& other) noexcept
    : module_(std::move(other.module_)), copy_(std::exchange(other.copy_, nullptr)) {}
AnyModule& AnyModule::operator=(AnyModule other) noexcept {
  module_ = std::move(other.module_);
  copy_ = other.copy_;
  return *this;
}

void AnyModule::visit(MemberVisitor& visitor, const std::string& name) {
  if (!copy_) detail::take_own_copy(visitor, module_);
  if (module_) visitor.module(name, *module_);
}

void AnyModule::refuse_empty() {
  firn::detail::fail("AnyModule", "assign a module before the call, or ask with `if (module)`",
                     "it holds no module");
}

// ---- Contents of containers ----

void detail::Parts::add(const char* what, const Module& owner, NamedPart part, bool replace) try {
  require_members(what, owner);
  const std::string name = part.name.empty() ? std::to_string(parts_.size()) : part.name;
  FIRN_CHECK(part.module, what, "push a module", "module {} is null", name);
  FIRN_CHECK(name.find('.') == std::string::npos, what,
             "a dot stands between a module and its part", "the name \"{}\" has a dot", name);
  for (const TreeModule& m : tree_of(*part.module))
    FIRN_CHECK(m.module != &owner, what, "push a copy: nn::clone(module)",
               "module {} would hold the {} that it is pushed into{}{}", name, what,
               m.path.empty() ? "" : ", at its ", m.path);
  const std::size_t at = find(name);
  FIRN_CHECK(at == parts_.size() || replace, what, "give another name", "the name \"{}\" is taken",
             name);
  if (!owner.training()) part.module->eval();
  if (at == parts_.size())
    parts_.push_back(std::move(part));
  else
    parts_[at].module = std::move(part.module);
}
FIRN_OUT_OF_MEMORY(what)

Module& detail::Parts::at(const char* what, std::size_t index) const {
  FIRN_CHECK(index < parts_.size(), what, "modules count from 0", "there is no module {} among {}",
             index, parts_.size());
  return *parts_[index].module;
}

Module& detail::Parts::at(const char* what, std::string_view name) const {
  const std::size_t index = find(name);
  if (index < parts_.size()) return *parts_[index].module;
  std::string known;
  for (std::size_t i = 0; i < parts_.size(); ++i) known += (i == 0 ? "" : ", ") + name_of(i);
  firn::detail::fail(what, known.empty() ? "it is empty" : "there are " + known,
                     "there is no module \"{}\" among {}", name, parts_.size());
}

void detail::Parts::wrong_type(const char* what, std::size_t index, const Module& m) {
  firn::detail::fail(what, "name its own type in at<...>()", "module {} is a {}", index,
                     described(m));
}
void detail::Parts::wrong_type(const char* what, std::string_view name, const Module& m) {
  firn::detail::fail(what, "name its own type in at<...>()", "module {} is a {}", name,
                     described(m));
}

std::size_t detail::Parts::find(std::string_view name) const {
  std::size_t i = 0;
  while (i < parts_.size() && name_of(i) != name) ++i;
  return i;
}

std::string detail::Parts::name_of(std::size_t index) const {
  const std::string& name = parts_[index].name;
  return name.empty() ? std::to_string(index) : name;
}

void detail::Parts::erase(std::size_t index) {
  parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(index));
}

void detail::Parts::visit(MemberVisitor& visitor) {
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].module.visit(visitor, name_of(i));
}

namespace {

/// Throws for a name that would stand for a number.
NamedPart named(const char* what, std::string name, AnyModule module) {
  FIRN_CHECK(!name.empty(), what, "give a name", "the name of a module is empty");
  return {std::move(name), std::move(module)};
}

}  // namespace

// ---- Sequential ----

Sequential::Sequential(std::initializer_list<NamedPart> parts) {
  for (const NamedPart& p : parts) push_back(p.name, p.module);
}

void Sequential::push_back(std::shared_ptr<Module> module) {
  parts_.add(kName, *this, {"", AnyModule(std::move(module))});
}

void Sequential::push_back(std::string name, AnyModule module) {
  parts_.add(kName, *this, named(kName, std::move(name), std::move(module)));
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  // By index: a hook may push a module.
  for (std::size_t i = 0; i < parts_.size(); ++i) y = parts_.at(kName, i)(y);
  return y;
}

void Sequential::visit_members(MemberVisitor& visitor) { parts_.visit(visitor); }

const detail::ModuleTraits* Sequential::firn_traits() const noexcept {
  return &detail::traits_of<Sequential>();
}

// ---- ModuleDict ----

ModuleDict::ModuleDict(std::initializer_list<NamedPart> parts) {
  for (const NamedPart& p : parts) parts_.add(kName, *this, named(kName, p.name, p.module));
}

void ModuleDict::set(std::string name, AnyModule module) {
  parts_.add(kName, *this, named(kName, std::move(name), std::move(module)), true);
}

void ModuleDict::remove(std::string_view name) {
  parts_.at(kName, name);  // throws
  parts_.erase(parts_.find(name));
}

std::vector<std::string> ModuleDict::names() const {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < parts_.size(); ++i) all.push_back(parts_.name_of(i));
  return all;
}

void ModuleDict::visit_members(MemberVisitor& visitor) { parts_.visit(visitor); }

const detail::ModuleTraits* ModuleDict::firn_traits() const noexcept {
  return &detail::traits_of<ModuleDict>();
}

// ---- Lambda ----

FIRN_DEFINE_MEMBERS(Lambda)

Lambda::Lambda(std::function<Tensor(const Tensor&)> function, std::string name)
    : function_(std::move(function)), name_(std::move(name)) {
  require_function("Lambda", function_, "give a function of a tensor");
}
Tensor Lambda::forward(const Tensor& x) { return function_(x); }

}  // namespace firn::nn
