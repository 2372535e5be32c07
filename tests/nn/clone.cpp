// Copies, which share parameters, and clones, which have their own.
#include <array>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "firn/firn.h"
#include "firn/runtime/storage.h"
#include "message_of.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::expect_close;
using firn::testing::expect_same;
using firn::testing::message_of;
using firn::testing::values_of;

namespace {

struct Swish : nn::Module {  // without FIRN_MEMBERS
  Tensor forward(const Tensor& x) override { return silu(x); }
};

struct Net : nn::Module {
  nn::Embedding in{5, 4};
  nn::Linear out{4, 5};
  nn::Parameter scale{ones({4})};
  nn::Buffer seen{zeros({1})};
  std::vector<nn::Linear> layers{nn::Linear(4, 4)};
  std::array<nn::LayerNorm, 1> norms{nn::LayerNorm(4)};
  std::optional<nn::Linear> maybe{std::in_place, 4, 4};
  std::shared_ptr<nn::Module> shared = std::make_shared<nn::Linear>(4, 4), again = shared;
  std::shared_ptr<nn::Parameter> loose = std::make_shared<nn::Parameter>(ones({4}));
  nn::AnyModule any = nn::Residual(nn::Linear(4, 4));
  nn::Sequential tail{nn::Linear(4, 4), Swish(), nn::Dropout(0.5)};
  double factor = 2;
  Net() { out.weight = in.weight; }
  FIRN_MEMBERS(in, out, scale, seen, layers, norms, maybe, shared, again, loose, any, tail)
  Tensor forward(const Tensor& x) override {
    Tensor y = (*maybe)(norms[0](layers[0](in(x)*scale * *loose)));
    return out(tail((*any)((*again)((*shared)(y))))) * factor;
  }
};

Tensor indices() { return tensor<std::int64_t>({0, 3, 4}, {3}); }

/// Addresses of all parameters and buffers of a module.
std::unordered_set<const void*> storages(const nn::Module& m) {
  std::unordered_set<const void*> all;
  for (const auto& t : io::state_of(m)) all.insert(t.tensor.storage().get());
  return all;
}

void expect_separate(nn::Module& a, nn::Module& b) {
  const auto own = storages(a);
  for (const void* s : storages(b)) CHECK_FALSE(own.contains(s));
  const auto x = a.named_modules(), y = b.named_modules();
  REQUIRE(x.size() == y.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(x[i].name == y[i].name);
    CHECK(x[i].module != y[i].module);
    CHECK(x[i].module->training() == y[i].module->training());
    CHECK(x[i].module->autocast() == y[i].module->autocast());
  }
  const auto p = a.named_parameters(), q = b.named_parameters();
  REQUIRE(p.size() == q.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    INFO(p[i].name);
    CHECK(p[i].name == q[i].name);
    CHECK(p[i].tensor.requires_grad() == q[i].tensor.requires_grad());
    CHECK(p[i].tensor.dtype() == q[i].tensor.dtype());
    CHECK(p[i].tensor.strides() == q[i].tensor.strides());
    CHECK(q[i].tensor.storage()->owner() == Owner::weights);
    expect_same(p[i].name, values_of(p[i].tensor), values_of(q[i].tensor));
  }
}

}  // namespace

// ---- Copies ----

TEST_CASE("copies of containers hold the same parameters and have modes of their own") {
  nn::Sequential a{nn::Linear(2, 2), nn::Dropout(0.5), nn::Sequential{nn::Dropout(0.5), Swish()}};
  nn::Sequential b = a, c;
  c = a;
  CHECK(b.at<nn::Linear>(0).weight.impl() == a.at<nn::Linear>(0).weight.impl());
  a.eval();
  for (nn::Module* m : {static_cast<nn::Module*>(&b), static_cast<nn::Module*>(&c)})
    for (const auto& sub : m->named_modules()) CHECK(sub.module->training());
  for (const auto& sub : a.named_modules()) CHECK_FALSE(sub.module->training());
  const Tensor x = ones({1, 2});
  CHECK(values_of(a(x)) == values_of(a(x)));  // no dropout

  nn::Residual r(nn::Dropout(0.5), nn::Dropout(0.25)), s = r;
  s.eval();
  CHECK(r.body->training());
  CHECK(r.shortcut->training());
  CHECK_FALSE(s.body->training());
  nn::BasicBlock block(2, 2), other = block;
  other.eval();
  for (const auto& sub : block.named_modules()) CHECK(sub.module->training());
  std::vector<nn::Sequential> many(3, b);
  many[1].eval();
  CHECK(many[0][1].training());
  CHECK(many[2][1].training());
}

TEST_CASE(
    "a moved container keeps its mode, and a module put into one in evaluation mode takes it") {
  nn::Sequential a{nn::Dropout(0.5)};
  a.eval();
  nn::Sequential b = std::move(a);
  CHECK_FALSE(b.training());
  CHECK_FALSE(b[0].training());
  b.push_back(nn::Dropout(0.5));
  b.push_back(std::make_shared<nn::Dropout>(0.5));
  for (const auto& m : b.named_modules()) CHECK_FALSE(m.module->training());
  nn::Sequential training;
  nn::BatchNorm1d frozen(2);
  frozen.eval();
  training.push_back(frozen);  // a frozen layer in a training model stays frozen
  CHECK_FALSE(training[0].training());
}

TEST_CASE("a module that came as a shared_ptr is the same one in all copies") {
  const auto shared = std::make_shared<nn::Linear>(2, 2);
  nn::Sequential a;
  a.push_back(shared);
  nn::Sequential b = a;
  CHECK(&a[0] == &b[0]);
}

// ---- Clones ----

TEST_CASE("a clone has elements, modes and modules of its own, and computes the same") {
  Net net;
  net.layers[0].set_requires_grad(false);
  net.maybe->to(f32);
  net.eval();
  net.tail[0].train();
  net.tail.set_autocast(f32);
  Net copy = nn::clone(net);
  expect_separate(net, copy);
  CHECK(copy.factor == 2);
  expect_same("forward", values_of(net(indices())), values_of(copy(indices())));
  {
    const NoGrad guard;
    for (const Tensor& p : copy.parameters()) zero_(p);
  }
  CHECK(norm(net(indices())).item() > 0);
  net(indices()).sum().backward();
  for (const Tensor& p : copy.parameters()) CHECK_FALSE(p.grad().defined());
  copy.train();
  CHECK_FALSE(net.tail[2].training());
}

TEST_CASE("what is tied in a module is tied in its clone, and to nothing else") {
  const Net net;
  const Net copy = nn::clone(net);
  CHECK(copy.out.weight.impl() == copy.in.weight.impl());
  CHECK(copy.out.weight.impl() != net.in.weight.impl());
  CHECK(copy.shared == copy.again);
  CHECK(copy.shared != net.shared);
  CHECK(copy.loose != net.loose);
  CHECK(copy.num_parameters() == net.num_parameters());
}

TEST_CASE("a module that is known as its base is cloned as what it is") {
  const std::unique_ptr<nn::Module> net = std::make_unique<Net>();
  net->eval();
  const std::unique_ptr<nn::Module> copy = nn::clone(*net);
  REQUIRE(dynamic_cast<Net*>(copy.get()));
  expect_separate(*net, *copy);
  expect_same("forward", values_of((*net)(indices())), values_of((*copy)(indices())));
  for (const std::unique_ptr<nn::Module>& layer :
       {nn::clone(static_cast<const nn::Module&>(nn::BatchNorm2d(3))),
        nn::clone(static_cast<const nn::Module&>(nn::InstanceNorm1d(3, {.affine = true}))),
        nn::clone(static_cast<const nn::Module&>(nn::MaxPool2d(2))),
        nn::clone(static_cast<const nn::Module&>(nn::MLP({2, 3, 4}))),
        nn::clone(static_cast<const nn::Module&>(nn::BasicBlock(3, 4, 2)))})
    CHECK(layer != nullptr);
}

TEST_CASE("a clone keeps dtype and memory format, and trains with an optimizer of its own") {
  nn::Sequential net{nn::Conv2d(2, 3, 3, {.padding = 1}), nn::ReLU(), nn::Flatten(),
                     nn::Linear(3 * 4 * 4, 2)};
  net.to(f16);
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = 2});
  const Tensor x = ones({4, 2, 4, 4}, f16);
  const Tensor y = tensor<std::int64_t>({0, 1, 0, 1});
  opt.backward(cross_entropy(net(x), y));  // in the middle of a cycle
  opt.step();
  nn::Sequential copy = nn::clone(net);
  expect_separate(net, copy);
  const auto before = values_of(net.at<nn::Linear>(3).weight);
  optim::SGD other(copy.parameters(), {.lr = 0.1});
  other.backward(cross_entropy(copy(x), y));
  CHECK(other.step().applied());
  CHECK(values_of(net.at<nn::Linear>(3).weight) == before);
  CHECK(values_of(copy.at<nn::Linear>(3).weight) != before);
}

TEST_CASE("running statistics of a clone follow its own batches and its own optimizer") {
  for (const auto mode : {nn::BatchNormMode::per_micro_batch, nn::BatchNormMode::per_step}) {
    nn::Sequential net{nn::Linear(3, 2), nn::BatchNorm1d(2, {.accumulation = mode})};
    optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = 2});
    Generator g(1);
    const Tensor x = randn({6, 3}, {.generator = &g});
    const WarningHandler quiet = set_warning_handler({});
    const auto micro_step = [&](nn::Sequential& m, optim::SGD& o) {
      o.backward(mse_loss(m(x), zeros({6, 2})));
      o.step();
    };
    micro_step(net, opt);  // half a cycle
    nn::Sequential copy = nn::clone(net);
    auto& norm = net.at<nn::BatchNorm1d>(1);
    auto& own = copy.at<nn::BatchNorm1d>(1);
    const auto moved = values_of(own.running_mean);
    micro_step(net, opt);
    CHECK(values_of(own.running_mean) == moved);
    CHECK(values_of(norm.running_mean) != moved);
    optim::SGD other(copy.parameters(), {.lr = 0.1});
    if (own.pooled_count.defined()) CHECK(own.pooled_count.item() == 0);
    const auto after = values_of(norm.running_mean);
    micro_step(copy, other);
    CHECK(values_of(own.running_mean) != moved);
    CHECK(values_of(norm.running_mean) == after);
    set_warning_handler(quiet);
  }
}

TEST_CASE("a copy in mid-cycle, by clone or copy_from, takes nothing of the cycle along") {
  using nn::BatchNorm1d;
  const auto make_net = [] {
    return nn::Sequential{
        nn::Linear(3, 2),
        BatchNorm1d(2, {.momentum = 1.0, .accumulation = nn::BatchNormMode::per_step})};
  };
  const auto norm = [](nn::Sequential& m) -> BatchNorm1d& { return m.at<BatchNorm1d>(1); };
  const auto learn = [](nn::Sequential& m, optim::SGD& o, double offset) {
    Generator g(1);
    o.backward(mse_loss(m(randn({6, 3}, {.generator = &g}) + offset), zeros({6, 2})));
  };
  nn::Sequential net = make_net();
  optim::SGD opt(net.parameters(), {.lr = 0}, {.accumulate = 2});
  learn(net, opt, 100);
  opt.step();
  REQUIRE(norm(net).pooled_count.item() == 6);

  nn::Sequential cloned = nn::clone(net), copied = make_net();
  copied.copy_from(net);
  CHECK(values_of(copied.at<nn::Linear>(0).weight) == values_of(net.at<nn::Linear>(0).weight));
  for (nn::Sequential* m : {&cloned, &copied}) {
    CHECK(norm(*m).pooled_count.item() == 0);
    CHECK(values_of(norm(*m).pooled) == std::vector<double>(4, 0));
    optim::SGD own(m->parameters(), {.lr = 0});
    learn(*m, own, 5);
    CHECK(own.step().applied());
  }
  CHECK(values_of(norm(cloned).running_mean) == values_of(norm(copied).running_mean));
  CHECK(values_of(norm(cloned).running_var) == values_of(norm(copied).running_var));

  // The target may be in mid-cycle itself: it keeps its pool, as it keeps its gradients.
  const auto pool = values_of(norm(net).pooled);
  net.copy_from(copied);
  CHECK(norm(net).pooled_count.item() == 6);
  CHECK(values_of(norm(net).pooled) == pool);
  CHECK(values_of(norm(net).running_mean) == values_of(norm(copied).running_mean));
  learn(net, opt, 5);
  CHECK(opt.step().applied());
  CHECK(norm(net).num_batches_tracked.item() == 2);  // that of the copy, and one
}

TEST_CASE("what cannot be cloned says so, and stays as it was") {
  struct Held : nn::Module {
    std::unique_ptr<nn::Linear> fc = std::make_unique<nn::Linear>(2, 2);
    std::vector<std::unique_ptr<nn::Linear>> many;
    FIRN_MEMBERS(fc, many)
  };
  const Held held;
  CHECK(message_of([&] {
          nn::clone(static_cast<const nn::Module&>(held));
        }).find("has a member that cannot be copied") != std::string::npos);
  struct Many : nn::Module {  // std::is_copy_constructible is wrong about this one
    std::vector<std::unique_ptr<nn::Linear>> many;
    FIRN_MEMBERS(many)
  };
  nn::Sequential moved_in{Many(), nn::ReLU()};
  CHECK(message_of([&] { nn::clone(moved_in); }).find("cannot be copied") != std::string::npos);

  struct Bare : nn::Module {
    std::shared_ptr<nn::Module> inner = std::make_shared<Swish>();
    FIRN_MEMBERS(inner)
  };
  CHECK(message_of([&] { nn::clone(Bare()); }).find("Swish has no FIRN_MEMBERS of its own") !=
        std::string::npos);
  const nn::Linear& base = nn::Linear(1, 1);
  CHECK_NOTHROW(nn::clone(base));
  const nn::BasicBlock block(2, 2);
  const nn::Residual& residual = block;
  CHECK(message_of([&] { nn::clone(residual); }).find("the module is a BasicBlock") !=
        std::string::npos);

  struct Hidden : nn::Module {  // shares a member behind firn's back
    std::shared_ptr<nn::Linear> fc = std::make_shared<nn::Linear>(2, 2);
    void visit_members(nn::MemberVisitor& v) override { v.module("fc", *fc); }
  } hidden;
  const TensorImpl* weight = hidden.fc->weight.impl();
  CHECK(message_of([&] { nn::clone(hidden); }).find("shares its member \"fc\"") !=
        std::string::npos);
  CHECK(hidden.fc->weight.impl() == weight);
}

namespace {

struct Ring : nn::Module {
  nn::Linear own{2, 2};
  std::shared_ptr<Ring> next;
  FIRN_MEMBERS(own, next)
};

}  // namespace

TEST_CASE("a cycle of modules ends: its lists, its clone, and weights of a mode") {
  Ring first;
  const auto second = std::make_shared<Ring>(), third = std::make_shared<Ring>();
  first.next = second;
  second->next = third;
  third->next = second;
  optim::ScheduleFreeAdamW opt(first.parameters(), {.lr = 0.1});
  CHECK(first.named_parameters().size() == 6);
  first.eval();  // shows the averages of every call
  CHECK(first.named_modules().size() == 6);
  Ring copy = nn::clone(first);
  CHECK(copy.named_modules().size() == 6);
  CHECK_FALSE(copy.training());
  // The cycle is one of the copies, each module once.
  CHECK(copy.next != second);
  CHECK(copy.next->next != third);
  CHECK(copy.next->next->next == copy.next);
  expect_separate(first, copy);
  // A module that is held twice is cloned once.
  third->next = nullptr;
  Ring two;
  two.next = second;
  second->next = second;
  Ring again = nn::clone(two);
  CHECK(again.next->next == again.next);
  CHECK(again.next != second);
  CHECK(again.named_parameters().size() == 4);
  second->next = nullptr;  // a cycle of std::shared_ptr is never freed
  again.next->next = nullptr;
  copy.next->next = nullptr;
}
