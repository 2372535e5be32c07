// Walking a module's members, and their names.
#include "nn/tree.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "firn/warning.h"
#include "tensor/impl.h"

namespace firn::nn::detail {

std::string next_name(std::string_view& list) {
  const std::size_t comma = list.find(',');
  std::string_view name = list.substr(0, comma);
  list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
  while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
  return std::string(name);
}

std::string short_type_name(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  if (status == -1) throw std::bad_alloc();
  const std::string full = status == 0 ? text.get() : mangled;
  // The last "::" outside of brackets: "main::Net", "(anonymous namespace)::Net", "a::Pair<b::C>".
  std::size_t start = 0;
  int depth = 0;
  for (std::size_t i = 0; i + 1 < full.size(); ++i) {
    if (full[i] == '<' || full[i] == '(' || full[i] == '{') ++depth;
    if (full[i] == '>' || full[i] == ')' || full[i] == '}') --depth;
    if (depth == 0 && full[i] == ':' && full[i + 1] == ':') start = i + 2;
  }
  return full.substr(start);
}

namespace {

class Walk final : public MemberVisitor {
 public:
  explicit Walk(Module& root) { enter("", "", root, 0); }

  void parameter(std::string_view name, Parameter& p) override {
    add(name, p, false, OnConversion::follow, false);
  }
  void buffer(std::string_view name, Buffer& b) override {
    add(name, b, true, b.on_conversion, b.of_cycle);
  }
  void generator(std::string_view name, Generator& g) override {
    tree[current_].streams.push_back({join(tree[current_].path, name), &g});
  }
  void module(std::string_view name, Module& m) override {
    const TreeModule& parent = tree[current_];
    const std::string path = join(parent.path, name);
    const int depth = parent.depth + 1;
    // The sub-module is visited after all of the parent's own tensors.
    waiting_.push_back({std::string(name), path, &m, depth, {}});
  }

  std::vector<TreeModule> tree;

 private:
  static std::string join(const std::string& path, std::string_view name) {
    return path.empty() ? std::string(name) : path + "." + std::string(name);
  }

  void enter(std::string name, std::string path, Module& m, int depth) {
    if (!seen_.insert(&m).second) return;
    const std::size_t outer = std::exchange(current_, tree.size());
    tree.push_back({std::move(name), std::move(path), &m, depth, {}});
    std::vector<TreeModule> outer_waiting = std::exchange(waiting_, {});
    m.visit_members(*this);
    for (TreeModule& sub : std::exchange(waiting_, {}))
      enter(std::move(sub.name), std::move(sub.path), *sub.module, sub.depth);
    waiting_ = std::move(outer_waiting);
    current_ = outer;
  }

  void add(std::string_view name, const Tensor& t, bool buffer, OnConversion on_conversion,
           bool of_cycle) {
    if (!t.defined()) return;
    TreeModule& m = tree[current_];
    std::string path = join(m.path, name);
    const auto [first, fresh] = paths_.try_emplace(t.impl(), path);
    m.tensors.push_back({std::string(name), std::move(path), t, buffer, on_conversion, of_cycle,
                         fresh ? std::string() : first->second});
  }

  std::size_t current_ = 0;
  std::vector<TreeModule> waiting_;
  std::unordered_set<const Module*> seen_;
  std::unordered_map<const TensorImpl*, std::string> paths_;
};

}  // namespace

std::vector<TreeModule> tree_of(Module& root) { return std::move(Walk(root).tree); }

bool is_element(std::string_view path) {
  const std::string_view last = path.substr(path.rfind('.') + 1);
  return !last.empty() && last.find_first_not_of("0123456789") == last.npos;
}

namespace {

/// "blocks" of "blocks.1"; empty for an element of the root, such as "1" of a Sequential.
std::string_view list_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == path.npos ? std::string_view() : path.substr(0, dot);
}

/// The earlier element of the same list that has all parameters of the one at `first`, whose own
/// modules end at `last`; empty if there is none.
std::string twin_of(const std::vector<TreeModule>& tree, std::size_t first, std::size_t last) {
  const std::string& path = tree[first].path;
  std::string twin;
  for (std::size_t i = first; i < last; ++i)
    for (const TreeTensor& t : tree[i].tensors) {
      if (t.buffer) continue;
      const std::string_view rest = std::string_view(t.path).substr(path.size());
      if (!t.tied_to.ends_with(rest)) return "";
      std::string other = t.tied_to.substr(0, t.tied_to.size() - rest.size());
      if (!is_element(other) || list_of(other) != list_of(path)) return "";
      if (!twin.empty() && twin != other) return "";
      twin = std::move(other);
    }
  return twin;
}

}  // namespace

std::string shared_elements(const std::vector<TreeModule>& tree) {
  std::string text, names, twin;
  const auto flush = [&] {
    if (!names.empty())
      text += fmt::format("{}{} {} all parameters with {}", text.empty() ? "" : "; ", names,
                          names.find(',') == names.npos ? "shares" : "share", twin);
    names.clear();
  };
  for (std::size_t i = 0; i < tree.size();) {
    std::size_t last = i + 1;
    while (last < tree.size() && tree[last].depth > tree[i].depth) ++last;
    std::string found = is_element(tree[i].path) ? twin_of(tree, i, last) : "";
    if (found.empty()) {
      ++i;
      continue;
    }
    if (found != twin) flush();
    twin = std::move(found);
    names += (names.empty() ? "" : ", ") + tree[i].path;
    i = last;
  }
  flush();
  return text;
}

void warn_of_shared_elements(const Module& root, const std::vector<TreeModule>& tree) {
  const std::string text = shared_elements(tree);
  if (text.empty()) return;
  static std::mutex mutex;
  static auto& said = *new std::unordered_set<std::string>;  // never destroyed
  {
    const std::lock_guard lock(mutex);
    if (!said.insert(root.type_name() + ": " + text).second) return;
  }
  warn(root.type_name(), text,
       "a copy of a module has its parameters: add each by emplace_back(), or nn::clone() it; "
       "layers that are meant to share are one, held by std::shared_ptr");
}

bool was_moved_from(const Module& m) noexcept { return static_cast<bool>(m.moved_from_); }

void require_members(const char* op, const Module& m) {
  FIRN_CHECK(!was_moved_from(m), op, "use the module that it was moved to",
             "this {} was moved from and holds nothing", m.type_name());
}

std::string repr_of(const Module& m) { return was_moved_from(m) ? "moved from" : m.extra_repr(); }

std::string described(const Module& m) { return m.type_name() + "(" + repr_of(m) + ")"; }

}  // namespace firn::nn::detail
