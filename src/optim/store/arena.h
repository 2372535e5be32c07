// The arenas of a ParamStore: groups of parameters with one rule and one dtype, the place of each
// parameter, and the elements that this process keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "autograd/node.h"
#include "base/share.h"
#include "firn/optim/param_list.h"
#include "kernels/optim.h"
#include "optim/policy/require_option.h"
#include "optim/store/non_elementwise.h"

namespace firn::optim {

/// A group and its rule, as an optimizer's constructor has derived it. Parameters for which `fits`
/// is false have the rule `other`. If `whole` is set, `rule` is math::Replace.
struct GroupSetup {
  ParamList parameters;
  kernels::UpdateRule rule;
  double lr_scale = 1;
  kernels::UpdateRule other = {};
  std::function<bool(const NamedTensor&)> fits = {};
  NonElementwiseRulePtr whole = {};
  double other_lr_scale = 1;    ///< further factor for parameters with `other`
  std::string other_name = {};  ///< name of `other`, if it is an optimizer of its own
};

/// Returns true if the rule of any parameter computes in `type`, f32 or f64. Only rules of f64
/// parameters compute in f64.
bool any_in(DType type, const ParamList& parameters);
/// Throws Error if the number is infinite in the type, or becomes 0 there without being 0, or 1
/// although it is `not_one`.
void require_seen(const std::string& op, DType type, const char* name, double value,
                  bool not_one = false);
/// Throws Error if the type cannot express a number of the group's rules.
void require_options(const std::string& op, const GroupSetup& group, DType type);
/// Returns the learning rates that all of these weights can use.
RateRange rates_of(std::span<const kernels::OptimizerArena> arenas, const math::StepPolicy& policy);

/// Returns true if the rule keeps its states in 8 bits.
inline bool is_eight_bit(const kernels::UpdateRule& rule) {
  return std::visit([](const auto& r) { return math::kIsEightBit<std::decay_t<decltype(r)>>; },
                    rule);
}

inline bool is_schedule_free(const kernels::UpdateRule& rule) {
  return std::holds_alternative<math::ScheduleFree>(rule);
}

/// Bytes at multiples of which parameters begin: a cache line, and a vector register.
constexpr std::int64_t kArenaAlignment = 64;

/// A parameter and its place.
struct StoredParameter {
  Tensor tensor;
  std::string name;  ///< empty: not known
  Ref<autograd::Leaf> leaf;
  Ref<Storage> storage;  ///< storage in the arena
  std::size_t arena = 0;
  std::int64_t begin = 0;     ///< first element in its arena
  Tensor gradient;            ///< this parameter's part of Arena::grad
  std::uint32_t version = 0;  ///< version of the weight when its master last followed it
};

/// Consecutive parameters of an arena. Processes shard each run by itself.
struct ArenaRun {
  Share range;                       ///< elements of the arena
  std::vector<std::int64_t> bounds;  ///< between the processes' shards; empty: not sharded
  /// Elements whose master, average and states are here: all, or this process's shard.
  Share kept;
  std::int64_t at = 0;                ///< begin of `kept` in master, average and states
  std::int64_t chunks = 0;            ///< number of chunks in the tables, which cover `kept`
  Ref<Storage> chunk_pieces, pieces;  ///< tables of kernels/optim.h
  Ref<Storage> trust_partials, trust_ratios;  ///< only for rules with a trust ratio

  /// Returns the place of a kept element in master, average and states.
  std::int64_t place_of(std::int64_t element) const noexcept { return at + element - kept.first; }
};

struct Arena {
  Arena(DType t, const GroupSetup& g, bool is_first)
      : dtype(t),
        rule(is_first ? g.rule : g.other),
        whole(is_first ? g.whole : nullptr),
        of_first_rule(is_first),
        lr_scale(is_first ? g.lr_scale : g.lr_scale * g.other_lr_scale) {}
  DType dtype;
  kernels::UpdateRule rule;
  NonElementwiseRulePtr whole;  ///< null: the rule is elementwise
  bool of_first_rule;           ///< true for its group's `rule`, false for `other`
  double lr_scale;
  std::int64_t elements = 0;
  std::vector<std::size_t> parameters;
  Tensor weight, grad;
  /// Has at least one run. The runs cover all elements, in ascending order.
  std::vector<ArenaRun> runs;
  Tensor master, ema;
  std::vector<Tensor> states;
  std::vector<Tensor> scales;  ///< scales of states in 8 bits
};

/// The elements that this process keeps of each arena, if other processes keep the rest.
struct ShardPlan {
  std::vector<std::vector<ArenaRun>> runs;  ///< for each arena, with bounds and without tables
  bool gradients = false;                   ///< true if gradients are sharded too
  bool weights = false;                     ///< true if weights are sharded too
};

/// Returns true if the rule is elementwise, so that a process may have a shard of a parameter.
bool is_elementwise(const Arena& arena) noexcept;
/// Returns the number of elements of which parameters begin at multiples.
std::int64_t unit_of(const Arena& arena) noexcept;

/// Returns the run of a parameter of this arena.
const ArenaRun& run_of(const Arena& arena, const StoredParameter& p) noexcept;
/// Returns the rank in whose shard the parameter begins.
int owner_of(const Arena& arena, const StoredParameter& p) noexcept;
/// Returns true if the parameter begins in this process's shard, or nothing is sharded.
bool is_here(const Arena& arena, const StoredParameter& p) noexcept;
/// Returns the kept elements of p, as elements of the arena.
Share kept_of(const ArenaRun& run, const StoredParameter& p) noexcept;
/// Returns the begin in Arena::grad of the gradient of a parameter that is_here().
std::int64_t grad_place(const Arena& arena, const StoredParameter& p) noexcept;
/// Returns the elements `here` of the arena in a tensor of kept elements.
Tensor kept_part(const Tensor& kept, const ArenaRun& run, const Share& here);
/// Returns the elements `here` in the arena's weights.
Tensor weight_part(const Arena& arena, const ArenaRun& run, const Share& here);

}  // namespace firn::optim
