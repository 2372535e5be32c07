// Containers: parts with names, dictionaries of modules, and functions as modules, with all that
// modules can do.
#include <filesystem>
#include <sstream>

#include "firn/firn.h"
#include "message_of.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::message_of;
using firn::testing::values_of;

namespace {

std::string names_of(const nn::Module& m) {
  std::string all;
  for (const auto& p : m.named_parameters()) all += p.name + " ";
  return all;
}

nn::Sequential named() {
  return nn::Sequential{
      {"hidden", nn::Linear(3, 4)}, {"act", nn::ReLU()}, {"out", nn::Linear(4, 2)}};
}

struct Heads : nn::Module {
  nn::Sequential body{{"in", nn::Linear(3, 4)}};
  nn::ModuleDict heads{{"class", nn::Linear(4, 2)}, {"depth", nn::Linear(4, 1)}};
  FIRN_MEMBERS(body, heads)
  Tensor forward(const Tensor& x) override {
    const Tensor y = body(x);
    return cat({heads["class"](y), heads["depth"](y)}, -1);
  }
};

}  // namespace

TEST_CASE("Sequential: parts with names are found and listed by them") {
  manual_seed(1);
  nn::Sequential net = named();
  CHECK(names_of(net) == "hidden.weight hidden.bias out.weight out.bias ");
  CHECK(net.size() == 3);
  CHECK(&net["act"] == &net[1]);
  CHECK(net.at<nn::Linear>("out").weight.impl() == net.at<nn::Linear>(2).weight.impl());
  const Tensor x = ones({2, 3});
  CHECK(values_of(net(x)) == values_of(net["out"](net["act"](net["hidden"](x)))));
  net.push_back("scale", nn::Lambda([](const Tensor& t) { return 2 * t; }, "twice"));
  net.push_back(nn::Tanh());  // no name: its number
  CHECK(&net["4"] == &net[4]);
  std::ostringstream text;
  text << net;
  CHECK(text.str() ==
        "Sequential(\n  hidden: Linear(3, 4)\n  act: ReLU()\n  out: Linear(4, 2)\n"
        "  scale: Lambda(twice)\n  4: Tanh()\n)");
  CHECK(
      message_of([&] { net["none"]; }) ==
      "[Sequential] there is no module \"none\" among 5; hint: there are hidden, act, out, scale, "
      "4");
  CHECK(message_of([&] { net.at<nn::ReLU>("out"); }).find("module out is a Linear(4, 2)") !=
        std::string::npos);
}

TEST_CASE("Sequential and ModuleDict refuse names that are taken, empty or have a dot") {
  nn::Sequential net = named();
  CHECK(message_of([&] { net.push_back("out", nn::ReLU()); }) ==
        "[Sequential] the name \"out\" is taken; hint: give another name");
  CHECK(message_of([&] { net.push_back("", nn::ReLU()); }).find("empty") != std::string::npos);
  CHECK(message_of([&] { net.push_back("a.b", nn::ReLU()); }).find("\"a.b\" has a dot") !=
        std::string::npos);
  CHECK(message_of([&] { net.push_back("none", nullptr); }) ==
        "[Sequential] module none is null; hint: push a module");
  net.push_back("4", nn::ReLU());
  CHECK_THROWS_AS(net.push_back(nn::ReLU()), Error);  // it would be "4" too
  CHECK(net.size() == 4);
  CHECK_THROWS_AS((nn::Sequential{{"a", nn::ReLU()}, {"a", nn::ReLU()}}), Error);
  CHECK_THROWS_AS((nn::ModuleDict{{"a", nn::ReLU()}, {"a", nn::ReLU()}}), Error);
  CHECK_THROWS_AS((nn::ModuleDict{{"", nn::ReLU()}}), Error);
}

TEST_CASE("ModuleDict: modules by name, replaced and removed") {
  nn::ModuleDict dict{{"b", nn::Linear(2, 3)}, {"a", nn::ReLU()}};
  CHECK(dict.names() == std::vector<std::string>{"b", "a"});
  CHECK(dict.contains("a"));
  CHECK_FALSE(dict.contains("c"));
  dict.set("b", nn::Linear(2, 5));
  CHECK(dict.names() == std::vector<std::string>{"b", "a"});
  CHECK(dict.at<nn::Linear>("b").weight.shape() == Shape{5, 2});
  dict.eval();
  dict.set("c", nn::Dropout(0.5));
  CHECK_FALSE(dict["c"].training());
  dict.remove("a");
  CHECK(dict.size() == 2);
  CHECK(message_of([&] { dict.remove("a"); }) ==
        "[ModuleDict] there is no module \"a\" among 2; hint: there are b, c");
  CHECK_THROWS_AS(dict(ones({2})), Error);
  CHECK(nn::ModuleDict().empty());
  const auto outer = std::make_shared<nn::ModuleDict>();
  CHECK(message_of([&] { outer->set("self", outer); }).find("would hold the ModuleDict") !=
        std::string::npos);
}

TEST_CASE("Lambda: a function as a module") {
  nn::Sequential net{nn::Lambda([](const Tensor& x) { return x + 1; }), nn::Lambda(relu, "relu")};
  CHECK(values_of(net(tensor({-3.f, 2.f}))) == std::vector<double>{0, 3});
  CHECK(values_of(nn::clone(net)(tensor({-3.f, 2.f}))) == std::vector<double>{0, 3});
  CHECK(net.parameters().empty());
  CHECK_THROWS_AS(nn::Lambda({}), Error);
  const Tensor y = net[1](tensor({-1.f}));
  CHECK(y.item() == 0);
}

TEST_CASE("containers with names are cloned, converted, switched and summed up like others") {
  manual_seed(2);
  Heads net;
  CHECK(names_of(net) ==
        "body.in.weight body.in.bias heads.class.weight heads.class.bias heads.depth.weight "
        "heads.depth.bias ");
  const Tensor x = ones({2, 3});
  const auto before = values_of(net(x));
  CHECK(net(x).shape() == Shape{2, 3});

  Heads copy = nn::clone(net);
  {
    const NoGrad guard;
    zero_(copy.heads.at<nn::Linear>("depth").bias);
    zero_(copy.body.at<nn::Linear>("in").weight);
  }
  CHECK(values_of(net(x)) == before);
  CHECK(values_of(copy(x)) != before);
  copy.copy_from(net);
  CHECK(values_of(copy(x)) == before);
  const std::unique_ptr<nn::Module> base = nn::clone(static_cast<const nn::Module&>(net.heads));
  CHECK(base->type_name() == "ModuleDict");
  CHECK(names_of(*base) == names_of(net.heads));

  net.eval();
  for (const auto& m : net.named_modules()) CHECK_FALSE(m.module->training());
  net.to(f64);
  CHECK(net.heads.at<nn::Linear>("class").weight.dtype() == f64);
  const std::string table = copy.summary(Shape{2, 3});
  CHECK(table.find("heads") != std::string::npos);
  CHECK(table.find("class") != std::string::npos);
  CHECK(message_of([&] { copy(ones({2, 5})); }).find("body.in") != std::string::npos);
}

TEST_CASE("containers with names are saved and loaded by them", "[host]") {
  manual_seed(3);
  Heads net, other;
  const std::string path =
      (std::filesystem::temp_directory_path() / "firn_containers.safetensors").string();
  io::save_safetensors(path, io::state_of(net));
  io::load_safetensors(path, other);
  std::filesystem::remove(path);
  const Tensor x = ones({2, 3});
  CHECK(values_of(net(x)) == values_of(other(x)));
}

TEST_CASE("parts of a Sequential are blocks of checkpoint_blocks(), with a name or without") {
  nn::Sequential net{{"first", nn::Sequential(nn::Linear(2, 3), nn::ReLU())},
                     {"second", nn::Sequential(nn::Linear(3, 3), nn::ReLU())},
                     {"last", nn::Linear(3, 1)}};
  CHECK(nn::checkpoint_blocks(net) == 2);
  CHECK(net["first"].checkpoint_options());
  CHECK_FALSE(net["last"].checkpoint_options());
  const Tensor x = ones({1, 2}).set_requires_grad();
  sum(net(x)).backward();
  CHECK(x.grad().defined());
}

TEST_CASE("containers with names train") {
  manual_seed(4);
  Heads net;
  optim::Adam opt(net.parameters(), {.lr = 0.05});
  const Tensor x = randn({8, 3}), y = zeros({8, 3});
  double first = 0, last = 0;
  for (int i = 0; i < 20; ++i) {
    const Loss loss = mse_loss(net(x), y);
    if (i == 0) first = loss.item();
    last = loss.item();
    opt.backward(loss);
    opt.step();
  }
  CHECK(last < 0.5 * first);
}
