// Policies for the modules of a model that compute their activations again.
#include "firn/nn/checkpoint.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "firn/nn/container.h"
#include "nn/checkpoint_policies.h"
#include "nn/tree.h"

namespace firn::nn {
namespace {

bool inside(std::string_view path, std::string_view outer) {
  return path.size() > outer.size() && path.substr(0, outer.size()) == outer &&
         path[outer.size()] == '.';
}

}  // namespace

std::vector<Module*> detail::blocks_of(Module& m) {
  const std::vector<TreeModule> tree = tree_of(m);
  std::vector<Module*> blocks;
  std::string_view outer;           // the path of the last block
  std::vector<const Module*> open;  // the modules that hold the present one
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const std::string& path = tree[i].path;
    open.resize(static_cast<std::size_t>(tree[i].depth));
    const bool part = !open.empty() && dynamic_cast<const Sequential*>(open.back()) != nullptr;
    open.push_back(tree[i].module);
    if ((!part && !detail::is_element(path)) || (!blocks.empty() && inside(path, outer))) continue;
    if (i + 1 == tree.size() || tree[i + 1].depth <= tree[i].depth) continue;  // a single layer
    blocks.push_back(tree[i].module);
    outer = path;
  }
  if (blocks.empty())  // without a list: the members of the model itself
    for (std::size_t i = 0; i + 1 < tree.size(); ++i)
      if (tree[i].depth == 1 && tree[i + 1].depth > 1) blocks.push_back(tree[i].module);
  FIRN_CHECK(
      !blocks.empty(), "checkpoint_blocks",
      "name modules: checkpoint_modules(net, {\"encoder\"}), or call checkpoint() in forward()",
      "{} has no list of modules with modules of their own, and no such member", m.type_name());
  return blocks;
}

std::int64_t detail::set_blocks(const std::vector<Module*>& blocks,
                                const BlockCheckpoints& policy) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const bool on = policy.every > 0 && i % static_cast<std::size_t>(policy.every) == 0;
    blocks[i]->set_checkpoint(on ? std::optional(CheckpointOptions{.keep = policy.keep})
                                 : std::nullopt);
    count += on;
  }
  return count;
}

detail::BlockSettings::BlockSettings(Module& m) : blocks_(blocks_of(m)) {
  for (Module* b : blocks_) before_.push_back(b->checkpoint_options());
  const std::vector<Tensor> parameters = m.parameters();
  device_ = parameters.empty() ? default_device() : parameters.front().device();
}

detail::BlockSettings::~BlockSettings() {
  if (!kept_)
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      if (!was_moved_from(*blocks_[i])) blocks_[i]->set_checkpoint(before_[i]);
}

std::string to_string(const BlockCheckpoints& policy) {
  if (policy.every == 0) return "every block keeps all";
  const char* const keeps = policy.keep == Keep::inputs     ? "its inputs"
                            : policy.keep == Keep::products ? "its inputs and products"
                            : policy.keep == Keep::on_host  ? "all on the host"
                                                            : "all in a file";
  if (policy.every == 1) return fmt::format("every block keeps {}", keeps);
  const char* const th = policy.every == 2 ? "nd" : policy.every == 3 ? "rd" : "th";
  return fmt::format("every {}{} block keeps {}", policy.every, th, keeps);
}

std::int64_t checkpoint_blocks(Module& m, const BlockCheckpoints& policy) try {
  FIRN_CHECK(policy.every >= 0, "checkpoint_blocks", "1 is every block, 0 none", "every = {}",
             policy.every);
  require_named("checkpoint_blocks", "Keep", policy.keep, Keep::in_file);
  detail::require_members("checkpoint_blocks", m);
  return detail::set_blocks(detail::blocks_of(m), policy);
}
FIRN_OUT_OF_MEMORY("checkpoint_blocks")

void checkpoint_modules(Module& m, const std::vector<std::string>& paths,
                        const CheckpointOptions& options) try {
  detail::require_members("checkpoint_modules", m);
  const std::vector<NamedModule> all = m.named_modules();
  std::vector<Module*> found;
  std::string missing;
  for (const std::string& path : paths) {
    const auto at = std::find_if(all.begin(), all.end(),
                                 [&path](const NamedModule& n) { return n.name == path; });
    if (at == all.end()) {
      missing += (missing.empty() ? "" : ", ") + path;
    } else {
      found.push_back(at->module);
    }
  }
  FIRN_CHECK(missing.empty(), "checkpoint_modules", "named_modules() lists the paths",
             "{} has no module {}", m.type_name(), missing);
  for (Module* part : found) part->set_checkpoint(options);
}
FIRN_OUT_OF_MEMORY("checkpoint_modules")

void checkpoint_nothing(Module& m) {
  detail::require_members("checkpoint_nothing", m);
  for (const NamedModule& part : m.named_modules())
    if (!detail::was_moved_from(*part.module)) part.module->set_checkpoint(std::nullopt);
}

BlockCheckpoints checkpoint_within(Module& m, std::size_t budget, const std::function<void()>& step,
                                   MemoryPlan* plan) try {
  require_function("checkpoint_within", step, "give a function", "the step");
  detail::require_members("checkpoint_within", m);
  detail::BlockSettings blocks(m);
  std::size_t smallest = 0;
  BlockCheckpoints best;
  for (const BlockCheckpoints& policy : detail::kFromFastest) {
    blocks.set(policy);
    MemoryPlan trial = plan_memory(step, blocks.device());
    if (smallest == 0 || trial.peak < smallest) {
      smallest = trial.peak;
      best = policy;
    }
    if (trial.peak > budget) continue;
    if (plan) *plan = std::move(trial);
    blocks.keep();
    return policy;
  }
  throw OutOfMemory(fmt::format("the step has a peak of {} bytes if {}, and the budget is {}",
                                smallest, to_string(best), budget),
                    smallest,
                    "give a larger budget, or a step of fewer samples: optim::plan_within() plans "
                    "both; with one sample, compute under Autocast or shard over ranks");
}
FIRN_OUT_OF_MEMORY("checkpoint_within")

}  // namespace firn::nn
