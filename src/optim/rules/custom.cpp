// Custom: a rule that is a user's function, which gets copies of the tensors that it may read.
#include "firn/optim/rules/custom.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/copy.h"
#include "optim/rules/rule.h"

namespace firn::optim {
namespace {

constexpr const char* kCustom = "Custom";

bool is_taken(const std::string& name) {
  for (const char* word : {"weight", "gradient", "master", "ema"})
    if (name == word) return true;
  return false;
}

void check(const CustomOptions& o) {
  require_function(kCustom, o.update, "set CustomOptions::update", "the function of the update");
  for (std::size_t i = 0; i < o.states.size(); ++i) {
    const std::string& name = o.states[i].name;
    FIRN_CHECK(!name.empty() && name.find('.') == std::string::npos && !is_taken(name), kCustom,
               "give it a name such as \"momentum\"", "state {} is called \"{}\"", i, name);
    for (std::size_t j = 0; j < i; ++j)
      FIRN_CHECK(o.states[j].name != name, kCustom, "give each its own name",
                 "states {} and {} are both called \"{}\"", j, i, name);
  }
}

/// Throws Error unless `got` can replace `like`.
void require_like(const Tensor& got, const Tensor& like, const std::string& what,
                  const std::string& label) {
  FIRN_CHECK(got.defined() && got.shape() == like.shape() && got.dtype() == like.dtype() &&
                 got.device() == like.device(),
             kCustom, "return a tensor like the one that the function was given",
             "the function's {} of {}, is {}, not {} {} {}", what, label,
             got.defined() ? firn::describe(got) : "undefined", to_string(like.shape()),
             to_string(like.dtype()), to_string(like.device()));
}

class CustomRule final : public NonElementwiseRule {
 public:
  explicit CustomRule(const CustomOptions& options) : options_(options) {}

  std::vector<State> states(const NamedTensor& parameter, const std::string& label) const override {
    std::vector<State> out;
    for (const CustomState& s : options_.states) {
      const Shape& weight = parameter.tensor.shape();
      const Shape shape = s.shape ? s.shape(weight) : weight;
      for (const std::int64_t n : shape)
        FIRN_CHECK(n >= 0, kCustom, "return sizes of 0 or more", "state \"{}\" of {}, has shape {}",
                   s.name, label, shape);
      out.push_back({s.name, shape, s.initial});
    }
    return out;
  }

  std::string options() const override {  // leaves out the function, which cannot be compared
    if (options_.weight_decay == 0) return "";
    return fmt::format("weight_decay {}", options_.weight_decay);
  }

  std::vector<RuleNumber> numbers() const override {
    return {{"weight_decay", options_.weight_decay}};
  }

  void compute(const NonElementwiseStep& s) const override {
    const Stream stream = current_stream(s.weight.device());
    CustomInput in{.weight = s.weight,
                   .gradient = s.gradient,
                   .states = {},
                   .lr = s.lr,
                   .t = s.t,
                   .weight_decay = options_.weight_decay,
                   .parameter = static_cast<std::int64_t>(s.index),
                   .name = s.name};
    for (const Tensor& state : s.states) {
      const Tensor copy = empty({state.numel()}, state.dtype(), state.device())
                              .as_strided(state.shape(), state.strides());
      kernels::copy(state.view(), copy.mutable_view(), stream);
      in.states.push_back(copy);
    }
    const CustomUpdate out = options_.update(in);
    require_like(out.weight, s.next_weight, "weight", s.label);
    FIRN_CHECK(out.states.size() == s.states.size(), kCustom,
               "return as many as CustomOptions::states, in their order",
               "the function returns {} states of {}, which has {}", out.states.size(), s.label,
               s.states.size());
    for (std::size_t i = 0; i < s.states.size(); ++i)
      require_like(out.states[i], s.states[i], fmt::format("state \"{}\"", options_.states[i].name),
                   s.label);
    kernels::copy(out.weight.view(), s.next_weight.mutable_view(), stream);
    for (std::size_t i = 0; i < s.states.size(); ++i)
      kernels::copy(out.states[i].view(), s.next_states[i].mutable_view(), stream);
  }

  bool may_throw() const noexcept override { return true; }

 private:
  const CustomOptions options_;
};

}  // namespace

template <>
struct RuleOf<CustomOptions> {
  static constexpr const char* kName = kCustom;
  static void take(GroupOptions&, CustomOptions&) {}
  static GroupSetup setup(const CustomOptions& o) {
    check(o);
    return {
        .parameters = {}, .rule = math::Replace{}, .whole = std::make_shared<const CustomRule>(o)};
  }
};

template class OptimizerOf<CustomOptions>;

}  // namespace firn::optim
