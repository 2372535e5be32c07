// Groups of parameters: the options that each may set, the ways to give them, and the names that
// errors call parameters by.
#include <vector>

#include "optim/problem.h"

// What a user's build with -Wextra -Werror says to designated options.
#pragma GCC diagnostic error "-Wextra"
#pragma GCC diagnostic error "-Wmissing-field-initializers"

namespace firn::testing {
namespace {

using optim::Adam;
using optim::AdamW;
using optim::ParamGroup;
using optim::SGD;

// The weight after three steps with gradients 1, -2, 3 in an optimizer of two groups, where the
// group of `w` sets `group`, and in one whose options are those.
template <class Optimizer, class Options>
void check_equal(const ParamGroup& group, const Options& common, const Options& own) {
  Tensor w = parameter({1, -2}, {2}, f64), v = parameter({1, -2}, {2}, f64);
  Tensor expected_w = w.detach().clone().set_requires_grad();
  Tensor expected_v = v.detach().clone().set_requires_grad();
  ParamGroup first = group;
  first.parameters = {w};
  Optimizer both({first, {.parameters = {v}}}, common);
  Optimizer alone_w({expected_w}, own), alone_v({expected_v}, common);
  for (const double g : {1.0, -2.0, 3.0}) {
    both.backward(objective(w, {g}) + objective(v, {g}));
    alone_w.backward(objective(expected_w, {g}));
    alone_v.backward(objective(expected_v, {g}));
    REQUIRE(both.step());
    REQUIRE(alone_w.step());
    REQUIRE(alone_v.step());
  }
  CHECK(values_of(w) == values_of(expected_w));
  CHECK(values_of(v) == values_of(expected_v));
  CHECK(values_of(w) != values_of(v));
}

TEST_CASE("a group sets any option of its rule, beside groups that do not") {
  check_equal<SGD>({.momentum = 0.9}, optim::SGDOptions{.lr = 0.1},
                   optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  check_equal<SGD>({.momentum = 0.5, .nesterov = true},
                   optim::SGDOptions{.lr = 0.1, .momentum = 0.9},
                   optim::SGDOptions{.lr = 0.1, .momentum = 0.5, .nesterov = true});
  check_equal<SGD>({.dampening = 0.5}, optim::SGDOptions{.momentum = 0.9},
                   optim::SGDOptions{.momentum = 0.9, .dampening = 0.5});
  check_equal<Adam>({.beta1 = 0.5, .beta2 = 0.9, .eps = 0.5}, optim::AdamOptions{},
                    optim::AdamOptions{.beta1 = 0.5, .beta2 = 0.9, .eps = 0.5});
  check_equal<AdamW>({.weight_decay = 0.5, .beta1 = 0.1}, optim::AdamWOptions{.lr = 0.1},
                     optim::AdamWOptions{.lr = 0.1, .beta1 = 0.1, .weight_decay = 0.5});
  check_equal<optim::RMSprop>(
      {.momentum = 0.5, .alpha = 0.5, .centered = true}, optim::RMSpropOptions{.lr = 0.1},
      optim::RMSpropOptions{.lr = 0.1, .alpha = 0.5, .momentum = 0.5, .centered = true});
  check_equal<optim::Adagrad>({.lr_decay = 0.5, .initial_accumulator = 2}, optim::AdagradOptions{},
                              optim::AdagradOptions{.lr_decay = 0.5, .initial_accumulator = 2});
  check_equal<optim::NAdam>({.beta1 = 0.5, .momentum_decay = 0.5}, optim::NAdamOptions{.lr = 0.1},
                            optim::NAdamOptions{.lr = 0.1, .beta1 = 0.5, .momentum_decay = 0.5});
  check_equal<optim::RAdam>({.weight_decay = 0.5}, optim::RAdamOptions{.lr = 0.1},
                            optim::RAdamOptions{.lr = 0.1, .weight_decay = 0.5});
  check_equal<optim::Adadelta>({.eps = 0.5, .rho = 0.5}, optim::AdadeltaOptions{},
                               optim::AdadeltaOptions{.rho = 0.5, .eps = 0.5});
  check_equal<optim::LAMB>({.eps = 0.5}, optim::LAMBOptions{.lr = 0.1},
                           optim::LAMBOptions{.lr = 0.1, .eps = 0.5});
  check_equal<optim::Lion>({.weight_decay = 0.5, .beta1 = 0.1}, optim::LionOptions{.lr = 0.1},
                           optim::LionOptions{.lr = 0.1, .beta1 = 0.1, .weight_decay = 0.5});
}

TEST_CASE("a group has amsgrad by itself: a smaller gradient tells") {
  Tensor a = parameter({1}, {1}, f64), b = parameter({1}, {1}, f64), c = parameter({1}, {1}, f64);
  Adam both({{.parameters = {a}, .amsgrad = true}, {.parameters = {b}}}, {.lr = 0.1, .beta2 = 0.5});
  Adam alone({c}, {.lr = 0.1, .beta2 = 0.5, .amsgrad = true});
  for (const double gradient : {4.0, 0.5, 0.25}) {
    both.backward(objective(a, {gradient}) + objective(b, {gradient}));
    alone.backward(objective(c, {gradient}));
    REQUIRE(both.step());
    REQUIRE(alone.step());
  }
  CHECK(a.item() == c.item());
  CHECK(a.item() > b.item());
}

TEST_CASE("an option that a group's rule does not have, or that is out of range, is refused") {
  Tensor w = parameter({1}, {1});
  CHECK(mentions(error_of([&] { SGD({{.parameters = {w}, .beta1 = 0.5}}); }),
                 {"[SGD]", "group 0 sets beta1", "SGD has none"}));
  CHECK(mentions(error_of([&] { optim::Lion({{.parameters = {w}, .eps = 0.5}}); }),
                 {"[Lion]", "group 0 sets eps"}));
  CHECK(mentions(error_of([&] { Adam({{.parameters = {w}, .beta1 = 1.5}}); }),
                 {"[Adam]", "beta1 is 1.5"}));
  CHECK(mentions(error_of([&] { SGD({{.parameters = {w}, .nesterov = true}}); }),
                 {"[SGD]", "nesterov needs momentum"}));
  SGD opt({w});  // nothing was moved in
  CHECK(opt.parameters().size() == 1);
}

TEST_CASE("parameters are given as a list, in groups, or with names, with and without options") {
  nn::Linear net(3, 2);
  const std::vector<Tensor> list = net.parameters();
  const auto count = [](const optim::Optimizer& opt) { return opt.parameters().size(); };
  CHECK(count(SGD(list)) == 2);
  CHECK(count(SGD({net.weight})) == 1);
  CHECK(count(SGD({net.weight, net.bias}, {.lr = 0.1})) == 2);
  CHECK(count(SGD({{list}})) == 2);  // one group
  CHECK(count(SGD({{list}}, {.lr = 0.1})) == 2);
  CHECK(count(SGD({{{net.weight}}, {{net.bias}}}, {.lr = 0.1})) == 2);
  CHECK(count(SGD({{.parameters = list, .weight_decay = 0}}, {.lr = 0.1}, {.clip_norm = 1})) == 2);
  CHECK(count(SGD(net.named_parameters())) == 2);
  CHECK(count(SGD({{net.named_parameters()}})) == 2);
  CHECK(count(SGD({{.parameters = net.named_parameters(), .momentum = 0.5}})) == 2);
  CHECK(count(SGD(std::vector<ParamGroup>{{.parameters = list}}, {.lr = 0.1})) == 2);
  ParamGroup group{.weight_decay = 0};
  for (const NamedTensor& p : net.named_parameters()) group.parameters.push_back(p);
  CHECK(group.parameters.size() == 2);
  CHECK(group.parameters[1].name == "bias");
  CHECK(count(AdamW({group})) == 2);
}

TEST_CASE("named tensors in braces are a list of parameters") {
  nn::Linear net(3, 2);
  const std::vector<NamedTensor> named = net.named_parameters();
  const auto count = [](const optim::Optimizer& opt) { return opt.parameters().size(); };
  CHECK(count(SGD({{.parameters = {named[0]}}, {.parameters = {named[1]}, .lr_scale = 0.1}})) == 2);
  CHECK(count(SGD({named[0], named[1]}, {.lr = 0.1})) == 2);
  const ParamGroup group{.parameters = {{"w", net.weight}, {"b", net.bias}}};
  CHECK(group.parameters[1].name == "b");
  CHECK(count(SGD({{"w", net.weight}})) == 1);
  CHECK(count(SGD(optim::ParamList{{"w", net.weight}})) == 1);
}

TEST_CASE("decay_groups leaves biases and gains of norms without decay") {
  nn::Sequential net{nn::Linear(3, 4), nn::LayerNorm(4), nn::Conv1d(2, 2, 3)};
  const auto groups = optim::decay_groups(net.named_parameters(), 0.25);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].weight_decay == 0.25);
  CHECK(groups[1].weight_decay == 0.0);
  std::string names;
  for (const NamedTensor& p : groups[0].parameters) names += p.name + " ";
  for (const NamedTensor& p : groups[1].parameters) names += "/" + p.name;
  CHECK(names == "0.weight 2.weight /0.bias/1.weight/1.bias/2.bias");
  CHECK(optim::decay_groups(nn::LayerNorm(4).parameters(), 0.25).size() == 1);
  CHECK(optim::decay_groups({}, 0.25).empty());
  CHECK(mentions(error_of([&] { optim::decay_groups(net.parameters(), -1); }),
                 {"[decay_groups]", "weight_decay is -1"}));
  CHECK(mentions(error_of([&] { optim::decay_groups({Tensor()}, 1); }), {"undefined"}));

  // Frozen parameters are left out, as an optimizer takes none.
  net[0].set_requires_grad(false);
  const auto unfrozen = optim::decay_groups(net.named_parameters(), 0.25);
  REQUIRE(unfrozen.size() == 2);
  REQUIRE(unfrozen[0].parameters.size() == 1);
  CHECK(unfrozen[0].parameters[0].name == "2.weight");
  CHECK(unfrozen[1].parameters.size() == 3);
  CHECK_NOTHROW(AdamW(unfrozen));
  net.set_requires_grad(false);
  CHECK(optim::decay_groups(net.parameters(), 0.25).empty());

  // A step without gradient but for a zero: the decay alone.
  nn::Linear layer(2, 2);
  layer.bias = nn::Parameter(ones({2}));
  const std::vector<double> before = values_of(layer.weight);
  AdamW opt(optim::decay_groups(layer.named_parameters(), 0.5), {.lr = 0.1});
  opt.backward(layer.weight.sum() * 0.0 + layer.bias.sum() * 0.0, 1);
  REQUIRE(opt.step());
  for (std::size_t i = 0; i < 4; ++i) CHECK(values_of(layer.weight)[i] == Approx(0.95 * before[i]));
  CHECK(values_of(layer.bias) == std::vector<double>{1, 1});
}

TEST_CASE("a custom rule is given the weight decay of its group") {
  Tensor a = parameter({1}, {1}, f64), b = parameter({1}, {1}, f64), c = parameter({1}, {1}, f64);
  const optim::CustomOptions options{
      .lr = 0.5, .weight_decay = 0.125, .update = [](const optim::CustomInput& in) {
        return optim::CustomUpdate{in.weight - in.lr * (in.gradient + in.weight_decay * in.weight)};
      }};
  optim::Custom custom({{.parameters = {a}, .weight_decay = 0}, {.parameters = {b}}}, options);
  SGD sgd({c}, {.lr = 0.5, .weight_decay = 0.125});
  custom.backward(objective(a, {2}) + objective(b, {2}));
  sgd.backward(objective(c, {2}));
  REQUIRE(custom.step());
  REQUIRE(sgd.step());
  CHECK(a.item() == 0);
  CHECK(b.item() == c.item());
  CHECK(mentions(error_of([&] {
                   optim::Custom({parameter({1}, {1})},
                                 {.weight_decay = -1, .update = options.update});
                 }),
                 {"[Custom]", "weight_decay is -1"}));
}

TEST_CASE("errors, warnings and reports call parameters by their names") {
  nn::Linear net(3, 2);
  const double inf = std::numeric_limits<double>::infinity();
  {
    SGD opt(net.named_parameters());
    CHECK(mentions(error_of([&] { SGD(net.named_parameters()); }),
                   {"parameter 0, \"weight\", [2, 3] f32", "belongs to another optimizer"}));
    opt.backward(objective(net.bias, {1, inf}));
    const optim::StepReport report = opt.step();
    CHECK(report.culprit_name() == "1, \"bias\"");
    CHECK(mentions(to_string(report), {"parameter 1, \"bias\""}));
    net.weight.sum().backward();
    CHECK(mentions(error_of([&] { opt.step(); }), {"parameter 0, \"weight\"", "did not come"}));
    opt.zero_grad();
    Tensor stray = parameter({1}, {1});
    Warnings warnings;
    opt.backward(objective(stray, {1}));
    opt.step();
    REQUIRE(warnings.texts.size() == 1);
    CHECK(mentions(warnings.texts[0], {"\"weight\"", "\"bias\""}));
  }
  SGD opt(net.named_parameters(), {}, {.max_skips = 1});
  opt.backward(objective(net.bias, {1, 1}) * make({1.0}, {}, f32), 1);
  CHECK(opt.step().culprit_name().empty());
  const Tensor overflowing = custom(
      "overflow", {net.bias}, net.bias.detach().clone(), {},
      [&](const CustomBackward& b) { return std::vector<Tensor>{full(b.grad.shape(), inf)}; });
  opt.backward(overflowing.sum());
  CHECK(mentions(error_of([&] { opt.step(); }), {"the gradient of parameter 1, \"bias\""}));
  CHECK(mentions(error_of([&] {
                   SGD(std::vector<NamedTensor>{{"lost", Tensor()}});
                 }),
                 {"parameter 0, \"lost\" is undefined"}));
}

}  // namespace
}  // namespace firn::testing
