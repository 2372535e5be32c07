// Threads that train at once: each draws from a stream of its own, and gets what it gets alone.
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "semantics/spoil.h"
#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

using namespace firn;
using firn::testing::Threads;
using firn::testing::values_of;

namespace {

using Values = std::vector<double>;

/// Runs all at once, each in a thread of its own.
void at_once(const std::vector<std::function<void()>>& bodies) {
  std::vector<std::thread> threads;
  for (const auto& body : bodies) threads.emplace_back(body);
  for (std::thread& t : threads) t.join();
}

Values ten_numbers() { return values_of(rand({10}, f64)); }

struct Net : nn::Module {
  nn::Conv2d conv{2, 8, 3, {.padding = 1}};
  nn::BatchNorm2d norm{8, {.accumulation = nn::BatchNormMode::per_step}};
  nn::Dropout drop{0.3};
  nn::Linear out{8 * 6 * 6, 3};
  FIRN_MEMBERS(conv, norm, drop, out)
  Tensor forward(const Tensor& x) override { return out(drop(flatten(relu(norm(conv(x))), 1))); }
};

/// All weights and running statistics after a short training.
Values run_training(std::uint64_t seed) {
  manual_seed(seed);
  Net net;
  optim::AdamW opt(net.parameters(), {.lr = 0.01}, {.accumulate = 2});
  for (int i = 0; i < 6; ++i) {
    opt.backward(
        cross_entropy(net(randn({8, 2, 6, 6})), tensor<std::int64_t>({0, 1, 2, 0, 1, 2, 0, 1})));
    opt.step();
  }
  Values all;
  for (const nn::NamedTensor& t : io::state_of(net))
    for (const double v : values_of(t.tensor)) all.push_back(v);
  return all;
}

}  // namespace

TEST_CASE("the main thread's stream is the seed's own", "[host][threads]") {
  manual_seed(9);
  Generator g(9);
  CHECK(ten_numbers() == values_of(rand({10}, {.dtype = f64, .generator = &g})));
  CHECK(default_generator().get().offset == g.get().offset);
  CHECK(Generator::of_thread(9, 0).get().seed == 9);
}

TEST_CASE("a thread draws from a stream of its own, and changes nobody else's", "[host][threads]") {
  manual_seed(9);
  const Values expected = ten_numbers();
  manual_seed(9);
  Values first, second;
  std::thread([&] { first = ten_numbers(); }).join();
  std::thread([&] { second = ten_numbers(); }).join();
  CHECK(ten_numbers() == expected);
  Generator one = Generator::of_thread(9, 1), two = Generator::of_thread(9, 2);
  CHECK(first == values_of(rand({10}, {.dtype = f64, .generator = &one})));
  CHECK(second == values_of(rand({10}, {.dtype = f64, .generator = &two})));
  CHECK(first != second);
  CHECK(first != expected);
}

TEST_CASE("threads that name their number draw the same in whatever order they run",
          "[host][threads]") {
  manual_seed(4);
  Values drawn[3];
  for (const std::uint64_t i : {2, 0, 1})
    std::thread([&, i] {
      seed_thread(i + 1);
      drawn[i] = ten_numbers();
    }).join();
  for (const std::uint64_t i : {0, 1, 2}) {
    Generator g = Generator::of_thread(4, i + 1);
    CHECK(drawn[i] == values_of(rand({10}, {.dtype = f64, .generator = &g})));
  }
}

TEST_CASE("manual_seed in a thread gives the main thread's numbers, and leaves its seed alone",
          "[host][threads]") {
  manual_seed(7);
  const Values expected = ten_numbers();
  manual_seed(8);
  Values in_thread;
  std::thread([&] {
    manual_seed(7);
    in_thread = ten_numbers();
  }).join();
  CHECK(in_thread == expected);
  CHECK(default_generator().get().seed == 8);
  CHECK(default_generator().get().offset == 0);
}

TEST_CASE("a scope chooses the thread's generator, and scopes nest", "[host][threads]") {
  manual_seed(1);
  Generator a(5), b(6);
  {
    const GeneratorScope outer(a);
    CHECK(&default_generator() == &a);
    {
      const GeneratorScope inner(b);
      rand({8});
      CHECK(&default_generator() == &b);
    }
    rand({4});
    const Generator* other = nullptr;
    std::thread([&] { other = &default_generator(); }).join();
    CHECK(other != &a);
  }
  CHECK(a.get().offset == 1);
  CHECK(b.get().offset == 2);
  CHECK(default_generator().get().offset == 0);
}

TEST_CASE("two trainings at once, with dropout, equal the same trainings one after the other",
          "[host][threads]") {
  const Threads threads(2);
  const Values first = run_training(1), second = run_training(2);
  for (int round = 0; round < 3; ++round) {
    Values a, b;
    at_once({[&] { a = run_training(1); }, [&] { b = run_training(2); }});
    CHECK(a == first);
    CHECK(b == second);
  }
}

TEST_CASE("two trainings at once with generators that their threads choose", "[host][threads]") {
  const auto run = [](std::uint64_t seed) {
    Generator own(seed);
    const GeneratorScope scope(own);
    return run_training(seed);  // manual_seed restarts the chosen one
  };
  const Values first = run_training(1), second = run_training(2);
  Values a, b;
  at_once({[&] { a = run(1); }, [&] { b = run(2); }});
  CHECK(a == first);
  CHECK(b == second);
}

TEST_CASE("two threads save and load at once", "[host][threads]") {
  const Threads threads(2);
  const test::TempFolder folder;
  Net models[2];
  Values loaded[2];
  const auto body = [&](int i) {
    for (int round = 0; round < 10; ++round) {
      const std::string path = folder.file("model" + std::to_string(i));
      io::save_safetensors(path, io::state_of(models[i]));
      Net other;
      io::load_safetensors(path, other);
      loaded[i] = values_of(other.conv.weight);
    }
  };
  at_once({[&] { body(0); }, [&] { body(1); }});
  for (int i : {0, 1}) CHECK(loaded[i] == values_of(models[i].conv.weight));
}

TEST_CASE("a model that is evaluated by two threads at once gives both the same",
          "[host][threads]") {
  const Threads threads(2);
  manual_seed(3);
  Net net;
  net.eval();
  const Tensor x = randn({8, 2, 6, 6});
  const NoGrad guard;
  const Values expected = values_of(net(x));
  Values a, b;
  const auto evaluate = [&](Values& out) {
    const NoGrad off;
    for (int i = 0; i < 20; ++i) out = values_of(net(x));
  };
  at_once({[&] { evaluate(a); }, [&] { evaluate(b); }});
  CHECK(a == expected);
  CHECK(b == expected);
}

TEST_CASE("memory that one thread allocates is released and used again by another",
          "[host][threads]") {
  std::vector<Tensor> given;
  int wrong = 0;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 50; ++i) given.push_back(full({64 + i}, i));
    double sum = 0;
    at_once({[&] {
               for (const Tensor& t : given) sum += t[0].item();
               given.clear();
             },
             [&] {
               for (int i = 0; i < 50; ++i)
                 if (full({100}, i).sum().item() != 100 * i) ++wrong;
             }});
    CHECK(sum == 49 * 50 / 2);
  }
  CHECK(wrong == 0);
}

TEST_CASE("a trace may end in another thread while ops run", "[host][threads]") {
  const Tensor x = ones({4});
  for (int i = 0; i < 50; ++i) {
    auto trace = std::make_unique<DtypeTrace>();
    std::thread other([&] { trace.reset(); });
    for (int k = 0; k < 20; ++k) relu(x);
    other.join();
  }
  const DtypeTrace last;
  relu(x);
  CHECK(last.ops().size() == 1);
}

TEST_CASE("a dropout layer with a seed has a stream of its own", "[host][threads]") {
  const Tensor x = ones({64});
  nn::Dropout first(0.5, {.seed = 3}), second(0.5, {.seed = 3});
  manual_seed(1);
  const Values once = values_of(first(x)), twice = values_of(first(x));
  CHECK(default_generator().get().offset == 0);
  manual_seed(2);
  CHECK(values_of(second(x)) == once);
  nn::Dropout copy = second;
  CHECK(values_of(second(x)) == twice);
  CHECK(values_of(copy(x)) == twice);
  CHECK(once != twice);
  Generator g(3);
  CHECK(once == values_of(dropout(x, 0.5, true, g)));

  nn::Dropout2d maps(0.5, {.seed = 3});
  manual_seed(1);
  maps(ones({4, 8, 2, 2}));
  CHECK(default_generator().get().offset == 0);
}

TEST_CASE("[S15] a retried cycle sees the masks of a layer's own stream again", "[host][threads]") {
  const auto run = [](const optim::LossScale& scale) {
    manual_seed(1);
    nn::Sequential net{nn::Linear(8, 8), nn::Dropout(0.5, {.seed = 3}), nn::Linear(8, 1)};
    optim::SGD opt(net.parameters(), {.lr = 0.01}, {.loss_scale = scale});
    const Tensor x = ones({4, 8});
    for (int cycle = 0; cycle < 3; ++cycle)
      opt.run_cycle(2, [&](std::int64_t i) {
        const Tensor sum = square(net(x)).sum();
        const bool overflows = i == 1 && opt.loss_scale() > 256;
        return Loss{overflows ? firn::testing::spoilt(sum) : sum, full({}, 4)};
      });
    Values all;
    for (const Tensor& p : net.parameters())
      for (const double v : values_of(p)) all.push_back(v);
    return all;
  };
  CHECK(
      run(optim::LossScale::dynamic({.init = 2048, .on_overflow = optim::OverflowPolicy::retry})) ==
      run(optim::LossScale::fixed(256)));
}
