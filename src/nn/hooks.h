// The hooks of one module, in the order in which they were added.
#pragma once

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "firn/nn/module.h"

namespace firn::nn {

struct detail::Hooks {
  struct Entry {
    HookId id;
    std::variant<ForwardPreHook, ForwardHook> hook;
  };
  std::vector<Entry> entries;

  /// Returns a copy of `old` (null: none) with `hook` at its end, whose id is returned in `id`.
  template <class Hook>
  static std::shared_ptr<const Hooks> with(const Hooks* old, Hook hook, HookId& id) {
    auto all = old ? std::make_shared<Hooks>(*old) : std::make_shared<Hooks>();
    id = next_id();
    all->entries.push_back({id, std::move(hook)});
    return all;
  }

 private:
  /// All modules share the numbers, so an id is unique.
  static HookId next_id() noexcept;
};

}  // namespace firn::nn
