// Calls at a moment at which an optimizer does not take them: from a hook while its backward pass
// is running, from the function that a whole cycle is made of, and from that of a rule.
#include <exception>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/files.h"
#include "optim/problem.h"
#include "support/in_child.h"

namespace firn::testing {
namespace {

/// Calls that begin, end or drop something of a cycle, by name.
std::vector<std::pair<const char*, std::function<void(optim::Optimizer&, const Tensor&)>>> calls() {
  return {
      {"backward()", [](auto& opt, auto& w) { opt.backward(objective(w, {1})); }},
      {"backward()", [](auto& opt, auto& w) { opt.backward(mse_loss(w, zeros({1}))); }},
      {"no_samples()", [](auto& opt, auto&) { opt.no_samples(); }},
      {"step()", [](auto& opt, auto&) { opt.step(); }},
      {"flush()", [](auto& opt, auto&) { opt.flush(); }},
      {"flush()", [](auto& opt, auto&) { opt.flush(optim::Partial::drop); }},
      {"zero_grad()", [](auto& opt, auto&) { opt.zero_grad(); }},
      {"run_cycle()",
       [](auto& opt, auto& w) {
         opt.run_cycle(1, [&](std::int64_t) { return mse_loss(w, zeros({1})); });
       }},
      {"run_batch()",
       [](auto& opt, auto& w) {
         opt.run_batch(1, 1, [&](auto, auto) { return mse_loss(w, zeros({1})); });
       }},
      {"step_two_pass()",
       [](auto& opt, auto& w) {
         opt.step_two_pass(
             1, [&](std::int64_t) { return w * 1.0; },
             [](const Tensor& all) { return mse_loss(all, zeros({1})); });
       }},
  };
}

using Make = std::function<void(optim::Optimizer&, const Tensor&, const std::function<void()>&)>;

/// The calls that make a whole cycle, by name. The function given to each calls `inside` in the
/// middle of the cycle.
std::vector<std::pair<std::string, Make>> makers() {
  return {
      {"run_cycle()",
       [](auto& opt, auto& w, auto& inside) {
         opt.run_cycle(2, [&](std::int64_t i) {
           if (i == 1) inside();
           return mse_loss(w, ones({1}));
         });
       }},
      {"run_batch()",
       [](auto& opt, auto& w, auto& inside) {
         opt.run_batch(2, 1, [&](std::int64_t first, std::int64_t) {
           if (first == 1) inside();
           return mse_loss(w, ones({1}));
         });
       }},
      {"step_two_pass()",
       [](auto& opt, auto& w, auto& inside) {
         opt.step_two_pass(
             2, [&](std::int64_t) { return w * 1.0; },
             [&](const Tensor& all) {
               inside();
               return mse_loss(all, ones({2}));
             });
       }},
  };
}

TEST_CASE("in a hook, calls that change the cycle say that its backward pass is running") {
  for (const auto& [name, refused] : calls()) {
    CAPTURE(name);
    const auto call = refused;  // Clang 14 lets no lambda capture a structured binding
    Tensor w = parameter({0}, {1}), other = parameter({0}, {1});
    optim::SGD opt({w}, {.lr = 1});
    std::string said;
    const int hook = add_hook(w, [&](const Tensor&) {
      said = error_of([&] { call(opt, other); });
      return Tensor();
    });
    opt.backward(objective(w, {1}));
    CHECK(said ==
          "[SGD] a backward pass of this cycle is running; hint: call it after backward() has "
          "returned");
    remove_hook(w, hook);
    // The cycle has lost nothing, and nothing of it is left to the next one.
    opt.backward(objective(w, {2}));
    const optim::StepReport report = opt.step();
    CHECK(report.micro_steps() == 2);
    CHECK(w.item() == -1.5);
    opt.backward(objective(w, {1}));
    CHECK(opt.step().micro_steps() == 1);
    CHECK(w.item() == -2.5);
  }
}

TEST_CASE("in a hook, set_grad() of a parameter that the running pass trains is refused") {
  Tensor w = parameter({0}, {1}), b = parameter({0}, {1}), other = parameter({0}, {1});
  optim::SGD opt({w, b}, {.lr = 1});
  const optim::SGD stranger({other}, {});
  std::vector<std::string> said;
  const int hook = add_hook(w, [&](const Tensor&) {
    said.push_back(error_of([&] { b.set_grad(ones({1})); }));
    said.push_back(error_of([&] { b.set_grad({}); }));
    other.set_grad(ones({1}));
    return Tensor();
  });
  opt.backward(objective(w, {1}));
  REQUIRE(said.size() == 2);
  for (const std::string& text : said)
    CHECK(mentions(text, {"[set_grad]", "the optimizer that trains [1] f32", "is running",
                          "return the gradient from the hook"}));
  remove_hook(w, hook);
  CHECK(opt.step());
  CHECK(w.item() == -1);
  CHECK(b.item() == 0);
}

TEST_CASE("in the pass of another optimizer that runs within, the outer one is still running") {
  Tensor w = parameter({0}, {1}), v = parameter({0}, {1});
  optim::SGD outer({w}, {.lr = 1}), inner({v}, {.lr = 1});
  const test::TempFolder folder;
  std::string said, saving;
  add_hook(v, [&](const Tensor&) {
    said = error_of([&] { outer.zero_grad(); });
    saving = error_of([&] { io::save_run(folder.file("run"), {outer}); });
    return Tensor();
  });
  add_hook(w, [&](const Tensor&) {
    const EnableGrad recorded;
    inner.backward(objective(v, {1}));
    inner.step();
    return Tensor();
  });
  outer.backward(objective(w, {1}));
  CHECK(mentions(said, {"[SGD]", "a backward pass of this cycle is running"}));
  CHECK(mentions(saving, {"a backward() of its cycle is running"}));
  CHECK(v.item() == -1);
  CHECK(outer.step());
  CHECK(w.item() == -1);
}

TEST_CASE("after a pass whose hook has thrown, the cycle is broken and no pass is running") {
  Tensor w = parameter({0}, {1});
  optim::SGD opt({w}, {.lr = 1});
  const int hook = add_hook(w, [](const Tensor&) -> Tensor { throw Error("hook", "as planned"); });
  CHECK(mentions(error_of([&] { opt.backward(objective(w, {1})); }), {"as planned"}));
  remove_hook(w, hook);
  CHECK(mentions(error_of([&] { opt.step(); }), {"has failed half-way", "zero_grad()"}));
  opt.zero_grad();
  opt.backward(objective(w, {1}));
  CHECK(opt.step().micro_steps() == 1);
  CHECK(w.item() == -1);
}

TEST_CASE("the function of a whole cycle only computes: calls that change the cycle are refused") {
  for (const auto& [maker, make] : makers())
    for (const auto& [name, call] : calls()) {
      CAPTURE(maker, name);
      Tensor w = parameter({0}, {1}), other = parameter({0}, {1});
      optim::SGD opt({w}, {.lr = 0.25});
      const auto& refused = call;  // Clang 14 lets no lambda capture a structured binding
      const std::string error = error_of([&make = make, &opt, &w, &other, &refused] {
        make(opt, w, [&] { refused(opt, other); });
      });
      CHECK(mentions(error, {"[SGD]", name, "call it after "}));
      CHECK(mentions(error, {(" inside the function of " + maker).c_str()}));
      CHECK(w.item() == 0);
      // The same in a function that goes on after it: nothing is lost, and nothing counts twice.
      std::string said;
      make(opt, w, [&] { said = error_of([&refused, &opt, &other] { refused(opt, other); }); });
      CHECK(said == error);
      CHECK(opt.last_report().applied_steps() == 1);
      CHECK(opt.last_report().weight() == 2);
      CHECK(w.item() == 0.5);
    }
}

TEST_CASE("the function of a whole cycle writes no state of its optimizer") {
  for (const auto& [maker, make] : makers()) {
    CAPTURE(maker);
    Tensor w = parameter({0}, {1});
    optim::SGD opt({w}, {.lr = 0.25, .momentum = 0.5});
    make(opt, w, [] {});
    const test::TempFolder folder;
    const std::string path = folder.file("run");
    io::save_run(path, {opt});
    CHECK(w.item() == 0.5);
    make(opt, w, [] {});  // the file is of another cycle than the one that is under way
    const std::string error = error_of(
        [&make = make, &opt, &w, &path] { make(opt, w, [&] { io::load_run(path, {opt}); }); });
    if (maker == "step_two_pass()")  // its loss is computed within the pass, which refuses the load
      CHECK(mentions(error, {"a backward() of the optimizer", "is running"}));
    else
      CHECK(mentions(error, {"[SGD]", "state was written inside the function of", maker.c_str(),
                             "before or after"}));
    // The cycle was dropped, and the state is the one that was loaded.
    if (maker == "step_two_pass()") io::load_run(path, {opt});
    CHECK(w.item() == 0.5);
    CHECK(opt.cycle_position() == 0);
    make(opt, w, [] {});
    CHECK(w.item() == 1);
    // A state that is loaded between two cycles is taken over, as before.
    io::load_run(path, {opt});
    CHECK(w.item() == 0.5);
    make(opt, w, [] {});
    CHECK(w.item() == 1);
  }
}

TEST_CASE("the function of a whole cycle rolls back no point that is older than the call") {
  auto all = makers();
  all.emplace_back("run_batch()", [](auto& opt, auto& w, auto& inside) {
    opt.run_batch(2, 1, [&](std::int64_t first, std::int64_t) {
      if (first == 0) inside();  // the cycle is still empty
      return mse_loss(w, ones({1}));
    });
  });
  all.emplace_back("run_batch()", [](auto& opt, auto& w, auto& inside) {
    opt.run_batch(2, {.size = 1}, [&](std::int64_t first, std::int64_t) {
      if (first == 1) inside();
      return mse_loss(w, ones({1}));
    });
  });
  for (const auto& [name, maker] : all)
    for (const std::int64_t chunk : {0, 1}) {
      if (chunk > 0 && name != "run_batch()") continue;
      CAPTURE(name, chunk);
      const auto make = maker;  // Clang 14 lets no lambda capture a structured binding
      const Tensor w = parameter({0}, {1});
      optim::SGD opt({w}, {.lr = 0.25}, {.exact = {.chunk = chunk}});
      RollbackPoint point;
      const std::string words = "[SGD] roll_back() inside the function of " + name;
      CHECK(mentions(error_of([&] { make(opt, w, [&] { point.roll_back(); }); }), {words.c_str()}));
      CHECK(w.item() == 0);  // the cycle was dropped
      std::string said;
      bool own = false;
      make(opt, w, [&] {
        said = error_of([&] { point.roll_back(Rollback::gradients); });
        point.roll_back(Rollback::random);
        RollbackPoint inner;
        const RandomKey before = default_generator().get();
        randn({1});
        inner.roll_back();
        own = default_generator().get().offset == before.offset;
      });
      CHECK(mentions(said, {words.c_str()}));
      CHECK(own);
      CHECK(opt.last_report().weight() == 2);
      CHECK(w.item() == 0.5);
      point.roll_back();
      make(opt, w, [] {});
      CHECK(opt.last_report().weight() == 2);
      CHECK(w.item() == 0.75);
    }
}

TEST_CASE("in the function of a rule, calls of its optimizer are refused, and nothing is lost") {
  const test::TempFolder folder;
  const std::string path = folder.file("run");
  auto all = calls();
  const auto add = [&](const char* name, const std::function<void(optim::Optimizer&)>& call) {
    all.emplace_back(name, [call](auto& opt, auto&) { call(opt); });
  };
  add("step_all", [](auto& opt) { optim::step_all({&opt}); });
  add("flush_all", [](auto& opt) { optim::flush_all({&opt}); });
  add("state()", [](auto& opt) { opt.state(); });
  add("refresh_masters()", [](auto& opt) { opt.refresh_masters(); });
  add("AveragedWeights", [](auto& opt) { const optim::AveragedWeights scope(opt); });
  add("is computing its rule", [&](auto& opt) { io::save_run(folder.file("other"), {opt}); });
  add("is computing its rule", [&](auto& opt) { io::load_run(path, {opt}); });
  add("step()", [](auto& opt) { plan_memory([&] { opt.step(); }); });
  for (const auto& [name, refused] : all) {
    CAPTURE(name);
    const auto call = refused;  // Clang 14 lets no lambda capture a structured binding
    const Tensor w = parameter({0}, {1}), other = parameter({0}, {1});
    std::optional<optim::Custom> opt;
    std::string said;
    bool calls_it = false;
    const auto update = [&](const optim::CustomInput& in) -> optim::CustomUpdate {
      if (std::exchange(calls_it, false)) {
        const EnableGrad recorded;
        said = error_of([&] { call(*opt, other); });
      }
      return {in.weight - in.lr * in.gradient, {}};
    };
    opt.emplace({w}, optim::CustomOptions{.lr = 1, .update = update},
                optim::StepOptions{.ema = 0.5});
    opt->backward(objective(w, {1}));
    REQUIRE(opt->step());
    io::save_run(path, {*opt});
    calls_it = true;
    opt->backward(objective(w, {1}));
    CHECK(opt->step().applied_steps() == 2);
    CHECK(mentions(said, {name}));
    if (said.find("is computing its rule") == std::string::npos)
      CHECK(mentions(said, {"[Custom]", "inside the function of its rule", "after the step"}));
    CHECK(w.item() == -2);
    CHECK(opt->cycle_position() == 0);
    opt->backward(objective(w, {1}));
    CHECK(opt->step().applied_steps() == 3);
    CHECK(w.item() == -3);
  }
}

/// Returns the words of the error that ends a child process in which `run` is called.
std::string last_words(const std::function<void()>& run) {
  const test::TempFolder folder;
  static std::string said_at;
  said_at = folder.file("said");
  CHECK(in_child([&] {
          std::set_terminate([] {
            try {
              std::rethrow_exception(std::current_exception());
            } catch (const std::exception& e) {
              std::ofstream(said_at) << e.what();
            }
            ::_exit(0);
          });
          run();
          return std::string("it went on");
        }) == "");
  std::ifstream file(said_at);
  std::string said;
  std::getline(file, said);
  return said;
}

TEST_CASE("an optimizer that is destroyed in its own backward pass ends the program in words") {
  CHECK(last_words([] {
          const Tensor w = parameter({0}, {1});
          std::optional<optim::SGD> opt(std::in_place, {w}, optim::SGDOptions{.lr = 1});
          add_hook(w, [&](const Tensor&) {
            opt.reset();
            return Tensor();
          });
          opt->backward(objective(w, {1}));
        }) ==
        "[SGD] it is destroyed while a backward pass of its cycle is running; hint: keep the "
        "optimizer until backward() has returned");
}

TEST_CASE(
    "an optimizer that is destroyed by a function of its own call ends the program in words") {
  for (const auto& [name, make] : makers()) {
    CAPTURE(name);
    CHECK(last_words([&make = make] {
            const Tensor w = parameter({0}, {1});
            std::optional<optim::SGD> opt(std::in_place, {w}, optim::SGDOptions{.lr = 1});
            make(*opt, w, [&] { opt.reset(); });
          }) == "[SGD] it is destroyed while its " + name +
                    " is running; hint: keep the optimizer until " + name + " has returned");
  }
  CHECK(mentions(last_words([] {
                   const Tensor w = parameter({0}, {1});
                   std::optional<optim::SGD> opt(std::in_place, {w}, optim::SGDOptions{},
                                                 optim::StepOptions{.exact = {.chunk = 1}});
                   const auto loss = [&](auto, auto) { return mse_loss(w, ones({1})); };
                   opt->run_batch(2, {.size = 1, .between = [&](std::int64_t) { opt.reset(); }},
                                  loss);
                 }),
                 {"[SGD] it is destroyed while its run_batch() is running"}));
}

TEST_CASE("an optimizer that is destroyed by the function of its rule ends the program in words") {
  using Ends = std::function<void(optim::Custom&)>;
  const std::vector<std::pair<std::string, Ends>> ends = {
      {"step()", [](auto& opt) { opt.step(); }},
      {"flush()", [](auto& opt) { opt.flush(); }},
      {"step_all()", [](auto& opt) { optim::step_all({&opt}); }},
      {"flush_all()", [](auto& opt) { optim::flush_all({&opt}); }},
  };
  for (const auto& [name, end] : ends) {
    CAPTURE(name);
    CHECK(mentions(last_words([&name = name, &end = end] {
                     const Tensor w = parameter({0}, {1});
                     optim::StepOptions step;
                     if (name.ends_with("_all()"))
                       step.scaler = optim::LossScaler(optim::LossScale::dynamic({.init = 2}));
                     std::optional<optim::Custom> opt;
                     const auto update = [&](const optim::CustomInput& in) -> optim::CustomUpdate {
                       if (opt) const optim::Custom ended(std::move(*opt));  // not while it is made
                       return {in.weight, {}};
                     };
                     opt.emplace({w}, optim::CustomOptions{.update = update}, step);
                     opt->backward(objective(w, {1}));
                     end(*opt);
                   }),
                   {("[Custom] it is destroyed while its " + name + " is running").c_str()}));
  }
}

}  // namespace
}  // namespace firn::testing
