// Registration, names, copies, modes, freezing.
#include <array>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "firn/firn.h"
#include "firn/runtime/storage.h"
#include "message_of.h"
#include "support/catch.h"

using namespace firn;
using firn::testing::message_of;

namespace {

struct Scale : nn::Module {
  explicit Scale(std::int64_t n) : factor(ones({n})), count(tensor({std::int64_t{0}})) {}
  nn::Parameter factor;
  nn::Buffer count;
  FIRN_MEMBERS(factor, count)
  Tensor forward(const Tensor& x) override { return x * factor; }
};

struct Block : nn::Module {
  explicit Block(std::int64_t n) : fc(n, n), scale(n) {}
  nn::Linear fc;
  nn::Dropout drop{0.5};
  Scale scale;
  FIRN_MEMBERS(fc, drop, scale)
  Tensor forward(const Tensor& x) override { return scale(drop(fc(x))); }
};

struct Everything : nn::Module {
  nn::Linear first{2, 3};
  nn::Parameter own{zeros({4})};
  std::vector<Block> blocks;
  std::array<nn::Linear, 2> pair{nn::Linear(1, 1), nn::Linear(2, 2)};
  std::shared_ptr<nn::Module> shared = std::make_shared<nn::Linear>(5, 1);
  std::unique_ptr<nn::LayerNorm> unique = std::make_unique<nn::LayerNorm>(6);
  std::optional<nn::Linear> absent, present{std::in_place, 7, 1, nn::LinearOptions{.bias = false}};
  std::vector<nn::Parameter> loose{nn::Parameter(zeros({1})), nn::Parameter(zeros({2}))};
  Everything() { blocks.emplace_back(2); }
  FIRN_MEMBERS(first, own, blocks, pair, shared, unique, absent, present, loose)
};

struct Mlp : nn::Module {
  nn::Linear fc1{4, 8}, fc2{8, 3};
  FIRN_MEMBERS(fc1, fc2)
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
};

struct InTwoParts : nn::Module {
  nn::Linear fc{4, 8};
  std::vector<Scale> scales{Scale(8), Scale(8)};
  FIRN_DECLARE_MEMBERS()
  Tensor forward(const Tensor& x) override { return scales[1](scales[0](fc(x))); }
};

FIRN_DEFINE_MEMBERS(InTwoParts, fc, scales)

struct Nothing : nn::Module {};

struct Empty : nn::Module {
  FIRN_MEMBERS()
};

struct Tied : nn::Module {
  nn::Embedding in{5, 4};
  nn::Linear out{4, 5};
  Tied() { out.weight = in.weight; }
  FIRN_MEMBERS(in, out)
};

struct Shared : nn::Module {
  std::shared_ptr<nn::Linear> a = std::make_shared<nn::Linear>(2, 2), b = a;
  FIRN_MEMBERS(a, b)
};

template <class List>
std::vector<std::string> names(const List& list) {
  std::vector<std::string> all;
  for (const auto& item : list) all.push_back(item.name);
  return all;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("parameters are named and ordered as their members are listed") {
  const Mlp net;
  CHECK(names(net.named_parameters()) == Names{"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"});
  const auto named = net.named_parameters();
  CHECK(named[0].tensor.shape() == Shape{8, 4});
  CHECK(named[3].tensor.shape() == Shape{3});
  CHECK(named[0].tensor.impl() == net.fc1.weight.impl());
  CHECK(net.num_parameters() == 4 * 8 + 8 + 8 * 3 + 3);
  for (const Tensor& p : net.parameters()) CHECK(p.requires_grad());
}

TEST_CASE("every kind of member is registered, own tensors first") {
  const Everything net;
  CHECK(names(net.named_parameters()) ==
        Names{"own", "loose.0", "loose.1", "first.weight", "first.bias", "blocks.0.fc.weight",
              "blocks.0.fc.bias", "blocks.0.scale.factor", "pair.0.weight", "pair.0.bias",
              "pair.1.weight", "pair.1.bias", "shared.weight", "shared.bias", "unique.weight",
              "unique.bias", "present.weight"});
  CHECK(names(net.named_buffers()) == Names{"blocks.0.scale.count"});
}

TEST_CASE("named_modules lists each module before its sub-modules") {
  Everything net;
  const auto modules = net.named_modules();
  CHECK(names(modules) == Names{"", "first", "blocks.0", "blocks.0.fc", "blocks.0.drop",
                                "blocks.0.scale", "pair.0", "pair.1", "shared", "unique",
                                "present"});
  CHECK(modules[0].module == &net);
  CHECK(modules[3].module == &net.blocks[0].fc);
}

TEST_CASE(
    "a module that declares its members in a header and lists them in a file is as any other") {
  InTwoParts net;
  CHECK(names(net.named_parameters()) ==
        Names{"fc.weight", "fc.bias", "scales.0.factor", "scales.1.factor"});
  CHECK(names(net.named_buffers()) == Names{"scales.0.count", "scales.1.count"});
  InTwoParts own = nn::clone(net);
  CHECK(own.fc.weight.impl() != net.fc.weight.impl());
  net.eval();
  CHECK_FALSE(net.scales[1].training());
  CHECK(net.type_name() == "InTwoParts");
}

TEST_CASE("a module without members is empty") {
  CHECK(Nothing().parameters().empty());
  CHECK(Empty().named_parameters().empty());
  CHECK(Empty().named_modules().size() == 1);
}

TEST_CASE("tied weights are listed once, under their first name") {
  const Tied net;
  CHECK(names(net.named_parameters()) == Names{"in.weight", "out.bias"});
  CHECK(net.num_parameters() == 5 * 4 + 5);
}

TEST_CASE("a module reached on two paths is listed once") {
  Shared net;
  CHECK(names(net.named_modules()) == Names{"", "a"});
  CHECK(net.parameters().size() == 2);
}

TEST_CASE("a copied module holds the same parameters and its own mode") {
  Mlp a;
  Mlp b = a;
  CHECK(a.fc1.weight.impl() == b.fc1.weight.impl());
  b.eval();
  CHECK(a.training());
  CHECK(a.fc1.training());
  CHECK_FALSE(b.fc1.training());
}

TEST_CASE("a moved module keeps working, and names the members of its new place") {
  auto a = std::make_unique<Mlp>();
  const TensorImpl* weight = a->fc1.weight.impl();
  Mlp b = std::move(*a);
  a.reset();
  REQUIRE(b.named_modules()[1].module == &b.fc1);
  CHECK(b.fc1.weight.impl() == weight);
  CHECK(b(ones({2, 4})).shape() == Shape{2, 3});
  std::vector<Mlp> many;
  for (int i = 0; i < 5; ++i) many.emplace_back();  // moves the earlier ones as it grows
  for (Mlp& m : many) CHECK(m.parameters().size() == 4);
}

TEST_CASE("train and eval reach every module") {
  Everything net;
  CHECK(net.training());
  net.eval();
  for (const auto& m : net.named_modules()) CHECK_FALSE(m.module->training());
  net.train();
  for (const auto& m : net.named_modules()) CHECK(m.module->training());
  net.blocks[0].eval();
  CHECK(net.training());
  CHECK_FALSE(net.blocks[0].drop.training());
}

TEST_CASE("apply runs on sub-modules before the module that holds them") {
  Everything net;
  Names kinds;
  net.apply([&](nn::Module& m) { kinds.push_back(m.type_name()); });
  CHECK(kinds == Names{"Linear", "Linear", "Dropout", "Scale", "Block", "Linear", "Linear",
                       "Linear", "LayerNorm", "Linear", "Everything"});
  CHECK_THROWS_WITH(net.apply({}),
                    "[Module::apply] the function is empty; hint: give a function "
                    "of a Module&");
}

TEST_CASE("freezing stops gradients and unfreezing restores them") {
  Mlp net;
  net.fc1.set_requires_grad(false);
  CHECK(net.num_parameters(true) == 8 * 3 + 3);
  CHECK(net.num_parameters() == 4 * 8 + 8 + 8 * 3 + 3);
  sum(net(ones({2, 4}))).backward();
  CHECK_FALSE(net.fc1.weight.grad().defined());
  CHECK(net.fc2.weight.grad().defined());
  net.set_requires_grad(true);
  sum(net(ones({2, 4}))).backward();
  CHECK(net.fc1.weight.grad().defined());
}

TEST_CASE("zero_grad forgets gradients") {
  Mlp net;
  sum(net(ones({2, 4}))).backward();
  REQUIRE(net.fc1.weight.grad().defined());
  net.zero_grad();
  for (const Tensor& p : net.parameters()) CHECK_FALSE(p.grad().defined());
  Mlp frozen;
  frozen.set_requires_grad(false);
  CHECK_NOTHROW(frozen.zero_grad());
}

TEST_CASE("a Parameter is a copy outside the graph, accounted to weights") {
  Tensor value = ones({3});
  value.set_requires_grad();
  const Tensor doubled = value * 2.0;
  const auto before = memory_stats().of(Owner::weights).current;
  const nn::Parameter p(doubled);
  CHECK(memory_stats().of(Owner::weights).current > before);
  CHECK(p.storage()->owner() == Owner::weights);
  CHECK(p.requires_grad());
  CHECK(p.to_vector<float>() == std::vector<float>{2, 2, 2});
  CHECK(p.storage() != doubled.storage());
  sum(p * p).backward();
  CHECK_FALSE(value.grad().defined());
  CHECK(
      message_of([] { nn::Parameter(zeros({2}, i64, Device::cpu())); }) ==
      "[Parameter] [2] i64 cpu cannot have a gradient; hint: cast it to a floating dtype, or make "
      "a Buffer of it");
  CHECK(message_of([] { nn::Parameter::empty({2}, i64); }) ==
        "[Parameter] i64 cannot have a gradient; hint: give a floating dtype");
  CHECK(message_of([] { const nn::Parameter none{Tensor()}; }) ==
        "[Parameter] the tensor is undefined; hint: without a value it is Parameter()");
  CHECK(message_of([] { const nn::Buffer none{Tensor()}; }) ==
        "[Buffer] the tensor is undefined; hint: without a value it is Buffer()");
}

TEST_CASE("a Buffer takes no gradient and is not a parameter") {
  const Scale s(2);
  CHECK_FALSE(s.count.requires_grad());
  CHECK(names(s.named_parameters()) == Names{"factor"});
  CHECK(names(s.named_buffers()) == Names{"count"});
}

TEST_CASE("a module without forward says so") {
  Nothing nothing;
  const std::string text = message_of([&] { nothing(ones({1})); });
  CHECK(text.find("[Nothing] has no forward(const Tensor&)") == 0);
}

TEST_CASE("type_name is the type's name without namespaces") {
  struct Local : nn::Module {};
  CHECK(nn::Linear(1, 1).type_name() == "Linear");
  CHECK(Mlp().type_name() == "Mlp");
  CHECK(Local().type_name() == "Local");
}

TEST_CASE("copy_from copies elements by name and converts them") {
  Block a(3), b(3);
  b.to(f64);
  b.copy_from(a);
  CHECK(b.fc.weight.dtype() == f64);
  CHECK(b.fc.weight.to_vector<float>() == a.fc.weight.to_vector<float>());
  CHECK(b.fc.weight.storage() != a.fc.weight.storage());
  CHECK(b.fc.weight.requires_grad());
  {
    const NoGrad guard;
    fill_(a.scale.count, 7);
    fill_(a.scale.factor, 3);
  }
  b.copy_from(a);
  CHECK(b.scale.count.to_vector<std::int64_t>() == std::vector<std::int64_t>{7});
  CHECK(b.scale.factor.to_vector<float>() == std::vector<float>{3, 3, 3});
  CHECK_NOTHROW(b.copy_from(b));
}

TEST_CASE("copy_from names what is missing, left over or of another shape, and writes nothing") {
  nn::Sequential a{nn::Linear(2, 3), nn::LayerNorm(3)};
  nn::Sequential b{nn::Linear(2, 3, {.bias = false}), nn::LayerNorm(4), nn::Linear(1, 1)};
  const auto before = b.at<nn::Linear>(0).weight.to_vector<float>();
  const std::string text = message_of([&] { b.copy_from(a); });
  CHECK(text.find("[Module::copy_from]") == 0);
  CHECK(text.find("1.weight is [4], the source has [3]") != std::string::npos);
  CHECK(text.find("2.weight [1, 1] is missing in the source") != std::string::npos);
  CHECK(text.find("the source also has 0.bias [3]") != std::string::npos);
  CHECK(b.at<nn::Linear>(0).weight.to_vector<float>() == before);
}

TEST_CASE("printing a module shows its structure") {
  struct Model : nn::Module {
    nn::Sequential body{nn::Linear(4, 8, {.bias = false}), nn::GELU(nn::GELU::Form::tanh)};
    nn::Linear head{8, 2};
    nn::Dropout drop{0.25};
    FIRN_MEMBERS(body, head, drop)
  };
  std::ostringstream out;
  out << Model();
  CHECK(out.str() ==
        "Model(\n"
        "  body: Sequential(\n"
        "    0: Linear(4, 8, bias = false)\n"
        "    1: GELU(tanh)\n"
        "  )\n"
        "  head: Linear(8, 2)\n"
        "  drop: Dropout(0.25)\n"
        ")");
  std::ostringstream leaf;
  leaf << nn::ReLU();
  CHECK(leaf.str() == "ReLU()");
}

TEST_CASE("a module that was moved from prints that, alone and as a member") {
  struct Pair : nn::Module {
    nn::Linear a{4, 8}, b{8, 2};
    FIRN_MEMBERS(a, b)
  };
  Pair pair;
  const nn::Linear taken = std::move(pair.a);
  std::ostringstream out;
  out << pair.a << '\n' << pair;
  CHECK(out.str() ==
        "Linear(moved from)\n"
        "Pair(\n"
        "  a: Linear(moved from)\n"
        "  b: Linear(8, 2)\n"
        ")");
  CHECK(taken.extra_repr() == "4, 8");
  CHECK_NOTHROW(pair.summary());
  nn::Sequential chain{nn::Linear(4, 8), nn::ReLU()};
  const nn::Linear first = std::move(chain.at<nn::Linear>(0));
  CHECK_THROWS_WITH(chain.at<nn::ReLU>(0),
                    "[Sequential] module 0 is a Linear(moved from); hint: "
                    "name its own type in at<...>()");
}
