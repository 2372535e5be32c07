// Builds an optimizer from the options of one algorithm: the checked options give each group its
// rule (kernels/math/optim/).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "optim/impl.h"
#include "optim/policy/require_option.h"

namespace firn::optim {

/// To be specialised for the Options of an algorithm:
///   static constexpr const char* kName;                          for errors
///   static void take(GroupOptions& group, Options& options);     options that a group may set
///   static kernels::UpdateRule rule(const Options& options);     throws for one out of range
/// or, instead of rule(), for a rule that is not elementwise:
///   static GroupSetup setup(const Options& options);             all but parameters and lr_scale
template <class Options>
struct RuleOf;

/// Returns the rule with its states in 8 bits. Throws Error if it has no such form.
kernels::UpdateRule in_eight_bits(const kernels::UpdateRule& rule);

/// Takes over the options that a group sets, and finds those that the rule does not use.
class GroupOptions {
 public:
  GroupOptions(const char* op, std::size_t index, const ParamGroup& group);
  const ParamGroup& group() const noexcept { return group_; }

  template <class T>
  void take(const std::optional<T>& set, T& option) {
    if (!set) return;
    option = *set;
    taken_.push_back(&set);
  }
  /// Throws Error, naming the option, if the group sets one that was not taken.
  void done() const;

 private:
  const char* op_;
  std::size_t index_;
  const ParamGroup& group_;
  std::vector<const void*> taken_;
};

/// Takes over the options of rules whose states may be in 8 bits.
template <class Options>
void take_state(GroupOptions& g, Options& o) {
  g.take(g.group().state, o.state);
  g.take(g.group().min_8bit_size, o.min_8bit_size);
}

/// Returns the rule, or the two rules, of a group with these options.
template <class Options>
GroupSetup setup_rules(const char* op, const Options& o, const kernels::UpdateRule& rule) {
  GroupSetup out{.parameters = {}, .rule = rule};
  if constexpr (requires { o.min_8bit_size; }) {
    FIRN_CHECK(o.state == StatePrecision::full || o.state == StatePrecision::bits8, op,
               "give StatePrecision::full or StatePrecision::bits8", "state is {}",
               static_cast<int>(o.state));
    FIRN_CHECK(o.min_8bit_size >= 0, op, "4096 is usual, 0 leaves no parameter out",
               "min_8bit_size is {}", o.min_8bit_size);
    if (o.state == StatePrecision::bits8) {
      out.other = rule;
      out.fits = [least = o.min_8bit_size](const NamedTensor& p) {
        return p.tensor.numel() >= least;
      };
      out.rule = in_eight_bits(rule);
    }
  }
  return out;
}

/// Returns the options that are not part of the groups' rules.
template <class Options>
RunSetup setup_run(const char* op, const Options& o) {
  require_lr(op, o.lr);
  if constexpr (requires { o.weight_lr_power; }) {
    FIRN_CHECK(o.warmup_steps >= 0, op, "0 is no warm-up", "warmup_steps is {}", o.warmup_steps);
    require_option(op, "r", o.r, 0, "0 is usual");
    require_option(op, "weight_lr_power", o.weight_lr_power, 0, "2 is usual");
    return {warmup(o.warmup_steps, o.lr), {true, o.r, o.weight_lr_power}};
  } else {
    return {o.lr, {}};
  }
}

template <class Options>
std::vector<GroupSetup> setup_groups(std::vector<ParamGroup> groups, const Options& options) {
  using Rule = RuleOf<Options>;
  const auto checked = [](const Options& o) {
    if constexpr (requires { o.weight_decay; })
      require_decay(Rule::kName, "weight_decay", o.weight_decay, "0 is off");
    if constexpr (requires { Rule::setup(o); }) {
      return Rule::setup(o);
    } else {
      return setup_rules(Rule::kName, o, Rule::rule(o));
    }
  };
  checked(options);
  std::vector<GroupSetup> out;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    Options own = options;
    GroupOptions group(Rule::kName, i, groups[i]);
    if constexpr (requires { own.weight_decay; })
      group.take(groups[i].weight_decay, own.weight_decay);
    Rule::take(group, own);
    group.done();
    require_option(Rule::kName, "a group's lr_scale", groups[i].lr_scale, 0,
                   "1 leaves the learning rate as it is");
    GroupSetup& setup = out.emplace_back(checked(own));
    setup.parameters = std::move(groups[i].parameters);
    setup.lr_scale = groups[i].lr_scale;
  }
  return out;
}

inline std::vector<ParamGroup> one_group(ParamList parameters) {
  std::vector<ParamGroup> out(1);
  out[0].parameters = std::move(parameters);
  return out;
}

template <class Options>
OptimizerOf<Options>::OptimizerOf(std::vector<ParamGroup> groups, const Options& options,
                                  const StepOptions& step) try
    : Optimizer(std::make_shared<Impl>(RuleOf<Options>::kName,
                                       setup_groups(std::move(groups), options),
                                       setup_run(RuleOf<Options>::kName, options), step)) {}
FIRN_OUT_OF_MEMORY(RuleOf<Options>::kName)
template <class Options>
OptimizerOf<Options>::OptimizerOf(std::initializer_list<ParamGroup> groups, const Options& options,
                                  const StepOptions& step) try
    : OptimizerOf(std::vector<ParamGroup>(groups), options, step) {}
FIRN_OUT_OF_MEMORY(RuleOf<Options>::kName)
template <class Options>
OptimizerOf<Options>::OptimizerOf(ParamList parameters, const Options& options,
                                  const StepOptions& step) try
    : OptimizerOf(one_group(std::move(parameters)), options, step) {}
FIRN_OUT_OF_MEMORY(RuleOf<Options>::kName)

}  // namespace firn::optim
