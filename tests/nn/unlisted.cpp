// Members that FIRN_MEMBERS leaves out are noticed in the first training calls.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;

namespace {

/// Warnings while it lives.
class Warnings {
 public:
  Warnings()
      : before_(set_warning_handler([this](const std::string& text) { all.push_back(text); })) {}
  ~Warnings() { set_warning_handler(before_); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  std::vector<std::string> all;

 private:
  WarningHandler before_;
};

struct Forgets : nn::Module {
  nn::Linear in{2, 3}, hidden{3, 3};
  nn::Parameter scale{ones({3})};
  std::vector<nn::Linear> more{nn::Linear(3, 3)};
  FIRN_MEMBERS(in)
  Tensor forward(const Tensor& x) override { return more[0](hidden(in(x))) * scale; }
};

template <class Net>
void run_training(Net& net, optim::Optimizer& opt, int steps = 5) {
  for (int i = 0; i < steps; ++i) {
    opt.backward(mse_loss(net(ones({4, 2})), zeros({4, 3})));
    opt.step();
  }
}

}  // namespace

TEST_CASE("an optimizer of a module without FIRN_MEMBERS says what to write") {
  struct Bare : nn::Module {
    nn::Linear in{2, 3};
  } net;
  CHECK_THAT(testing::error_of([&] { optim::SGD(net.parameters(), {.lr = 1}); }),
             test::contains("FIRN_MEMBERS"));
}

TEST_CASE("a member that FIRN_MEMBERS leaves out is warned of once, by what uses it") {
  const Warnings warnings;
  Forgets net;
  optim::SGD opt(net.parameters(), {.lr = 0.01});
  run_training(net, opt);
  REQUIRE(warnings.all.size() == 1);
  const std::string& text = warnings.all[0];
  INFO(text);
  CHECK(text.find("[Forgets] forward() uses parameters that FIRN_MEMBERS does not list") == 0);
  CHECK(text.find("linear [3, 3] f32") != std::string::npos);
  CHECK(text.find("of a Linear(3, 3)") != std::string::npos);
  CHECK(text.find("mul [3] f32") != std::string::npos);
  CHECK(text.find("[3, 2]") == std::string::npos);  // `in` is listed
}

TEST_CASE("a layer that forward() makes and destroys is warned of by its name", "[host]") {
  const Warnings warnings;
  struct Net : nn::Module {
    nn::Linear in{2, 3};
    FIRN_MEMBERS(in)
    Tensor forward(const Tensor& x) override {
      return (*std::make_unique<nn::Linear>(3, 3, nn::LinearOptions{.bias = false}))(in(x));
    }
  } net;
  optim::SGD opt(net.parameters(), {.lr = 0.01});
  run_training(net, opt, 1);
  REQUIRE(warnings.all.size() == 1);
  CHECK(warnings.all[0].find("linear [3, 3] f32 cpu of a Linear(3, 3, bias = false);") !=
        std::string::npos);
}

TEST_CASE("an omission deep inside, seen after calls without an optimizer") {
  const Warnings warnings;
  struct Outer : nn::Module {
    nn::Sequential body{Forgets()};
    nn::BatchNorm1d norm{3};
    FIRN_MEMBERS(body, norm)
    Tensor forward(const Tensor& x) override { return norm(body(x)); }
  } net;
  net(ones({2, 2}));  // to see the shapes
  net.eval();
  for (int i = 0; i < 10; ++i) net(ones({1, 2}));
  net.train();
  optim::SGD opt(net.parameters(), {.lr = 0.01});
  run_training(net, opt);
  CHECK(warnings.all.size() == 1);
}

TEST_CASE("no false alarms: frozen, trained elsewhere, borrowed, tied, or plain tensors") {
  const Warnings warnings;
  nn::Linear teacher(3, 3), partner(3, 3);
  teacher.set_requires_grad(false);
  optim::SGD partners(partner.parameters(), {.lr = 0.01});
  struct Net : nn::Module {
    nn::Linear in{2, 3}, out{3, 3};
    nn::Linear &teacher, &partner;
    Tensor tied = out.weight, plain = ones({3});
    Net(nn::Linear& t, nn::Linear& p) : teacher(t), partner(p) {}
    FIRN_MEMBERS(in, out)
    Tensor forward(const Tensor& x) override {
      return linear(partner(teacher(out(in(x)))), tied) * plain;
    }
  } net(teacher, partner);
  optim::SGD opt(net.parameters(), {.lr = 0.01});
  run_training(net, opt);
  {
    const NoGrad guard;
    Forgets other;
    other(ones({1, 2}));
  }
  // An optimizer for a part of the model; the rest is listed all the same.
  nn::Sequential part{nn::Linear(2, 3), nn::Linear(3, 3)};
  optim::SGD head(part[1].parameters(), {.lr = 0.01});
  run_training(part, head);
  // Input that takes a gradient, as for adversarial examples.
  const Tensor x = ones({4, 2}).set_requires_grad();
  part(x).sum().backward();
  CHECK(warnings.all.empty());
}

TEST_CASE("a module of several inputs is checked, too") {
  const Warnings warnings;
  struct Pair : nn::ModuleOf<Pair> {
    nn::Linear a{2, 3}, b{2, 3};
    FIRN_MEMBERS(a)
    Loss forward(const Tensor& x, const Tensor& y) { return mse_loss(a(x), b(y)); }
  } pair;
  optim::SGD opt(pair.parameters(), {.lr = 0.01});
  for (int i = 0; i < 3; ++i) {
    opt.backward(pair(ones({1, 2}), ones({1, 2})));
    opt.step();
  }
  CHECK(warnings.all.size() == 1);
}
