// How an optimizer keeps parameters: arenas, tied weights, life time, and what it refuses.
#include <cstdint>
#include <optional>

#include "optim/problem.h"

namespace firn::testing {
namespace {

using optim::Adam;
using optim::AdamW;
using optim::SGD;

TEST_CASE("slices of the arenas begin at multiples of 64 bytes") {
  std::vector<Tensor> p;
  for (const DType dtype : {f32, f16, f64, f32, bf16, f16})
    p.push_back(parameter({1, 2, 3}, {3}, dtype));
  const AdamW opt(p, {});
  int slices = 0;
  for (const optim::NamedState& s : opt.state())
    if (s.name.starts_with("parameters.")) {
      CAPTURE(s.name);
      CHECK(reinterpret_cast<std::uintptr_t>(address_of(s.tensor)) % 64 == 0);
      CHECK(s.tensor.shape() == Shape{3});
      ++slices;
    }
  CHECK(slices == 6 * 4 + 3);  // weight, gradient, two moments; a master for the 16-bit ones
  for (const Tensor& t : p) CHECK(values_of(t) == std::vector<double>{1, 2, 3});
}

TEST_CASE("arenas are accounted as weights, gradients and optimizer state") {
  const std::size_t n = 1'000'000;
  Tensor w = zeros({static_cast<std::int64_t>(n)});
  w.set_requires_grad();
  const MemoryStats before = memory_stats();
  std::optional<Adam> opt(std::in_place, std::vector<Tensor>{w});
  const MemoryStats with = memory_stats();
  const auto grown = [&](Owner o) { return with.of(o).current - before.of(o).current; };
  CHECK(grown(Owner::weights) >= 4 * n);
  CHECK(grown(Owner::gradients) >= 4 * n);
  CHECK(grown(Owner::optimizer) >= 8 * n);
  CHECK(grown(Owner::optimizer) <= 9 * n);
  // The parameter's own block was given back.
  CHECK(before.of(Owner::activations).current - with.of(Owner::activations).current >= 4 * n);
  opt.reset();
  CHECK(memory_stats().of(Owner::gradients).current == before.of(Owner::gradients).current);
  CHECK(memory_stats().of(Owner::optimizer).current == before.of(Owner::optimizer).current);
}

TEST_CASE("masters are accounted apart from the optimizer's state") {
  const std::size_t n = 100'000;
  Tensor w = zeros({static_cast<std::int64_t>(n)}, f16);
  w.set_requires_grad();
  const auto bytes = [](Owner o) { return memory_stats().of(o).current; };
  const std::size_t masters = bytes(Owner::masters), optimizer = bytes(Owner::optimizer);
  const Adam opt({w});
  CHECK(bytes(Owner::masters) - masters >= 4 * n);
  CHECK(bytes(Owner::masters) - masters <= 5 * n);
  CHECK(bytes(Owner::optimizer) - optimizer <= 9 * n);
}

TEST_CASE("handles and views made before the optimizer see its updates") {
  Tensor w = parameter({1, 2, 3, 4}, {2, 2}, f64);
  const Tensor handle = w, alias = w.detach(), column = alias.as_strided({2}, {2}, 1);
  SGD opt({w}, {.lr = 1});
  opt.backward(objective(w, {1}));
  REQUIRE(opt.step());
  CHECK(values_of(handle) == std::vector<double>{0, 1, 2, 3});
  CHECK(values_of(alias) == std::vector<double>{0, 1, 2, 3});
  CHECK(values_of(column) == std::vector<double>{1, 3});
}

TEST_CASE("a parameter that is a transposed part of a larger tensor is copied out") {
  const Tensor whole = make({0, 1, 2, 3, 4, 5, 6}, {7}, f64);
  Tensor w = whole.as_strided({3, 2}, {1, 3}, 1);
  w.set_requires_grad();
  SGD opt({w}, {.lr = 1});
  CHECK(w.is_contiguous());
  CHECK(values_of(w) == std::vector<double>{1, 4, 2, 5, 3, 6});
  opt.backward(objective(w, {1, 2, 3, 4, 5, 6}));
  REQUIRE(opt.step());
  CHECK(values_of(w) == std::vector<double>{0, 2, -1, 1, -2, 0});
  CHECK(values_of(whole) == std::vector<double>{0, 1, 2, 3, 4, 5, 6});
}

TEST_CASE("tied weights are stored once, and updated once with the sum of their gradients") {
  Tensor w = parameter({1}, {1}, f64), other = parameter({5}, {1}, f64);
  SGD opt({w, other, w}, {.lr = 0.1});
  CHECK(opt.parameters().size() == 2);
  opt.backward(objective(w, {2}) + objective(w, {3}));
  REQUIRE(opt.step());
  CHECK(w.item() == Approx(0.5));
  CHECK(other.item() == 5);
}

TEST_CASE("an empty parameter and scalars are parameters too") {
  Tensor none = parameter({}, {0, 4}), scalar = parameter({2}, {});
  AdamW opt({none, scalar}, {.lr = 0.5, .weight_decay = 0});
  opt.backward(objective(scalar, {1}));
  REQUIRE(opt.step());
  CHECK(scalar.item() == Approx(1.5));
}

TEST_CASE("grad() shows what has been accumulated in the cycle") {
  Tensor w = parameter({1, 1}, {2}), idle = parameter({1}, {1});
  SGD opt({w, idle}, {});
  CHECK(!w.grad().defined());
  opt.backward(objective(w, {1, 2}));
  opt.backward(objective(w, {1, 2}));
  CHECK(values_of(w.grad()) == std::vector<double>{2, 4});
  CHECK(!idle.grad().defined());
  REQUIRE(opt.step());
  CHECK(!w.grad().defined());
}

TEST_CASE("zero_grad drops the cycle") {
  Tensor w = parameter({1}, {1});
  SGD opt({w}, {.lr = 1});
  opt.backward(objective(w, {100}), 7);
  opt.zero_grad();
  CHECK(gradients_are_zero(opt));
  CHECK(!w.grad().defined());
  opt.backward(objective(w, {0.5}));
  const optim::StepReport report = opt.step();
  CHECK(report.weight() == 1);
  CHECK(w.item() == 0.5);
}

TEST_CASE("a parameter outlives its optimizer and can have another") {
  Tensor w = parameter({1, 2}, {2}, f64);
  {
    SGD opt({w}, {.lr = 1});
    opt.backward(objective(w, {1}));
    REQUIRE(opt.step());
    opt.backward(objective(w, {1}));  // a cycle that is never ended
  }
  CHECK(values_of(w) == std::vector<double>{0, 1});
  CHECK(!w.grad().defined());
  objective(w, {3}).backward();
  CHECK(values_of(w.grad()) == std::vector<double>{3, 3});
  Adam next({w}, {.lr = 0.5});
  CHECK(!w.grad().defined());
  next.backward(objective(w, {1}));
  REQUIRE(next.step());
  CHECK(values_of(w)[0] == Approx(-0.5));
}

TEST_CASE("an optimizer can be moved") {
  Tensor w = parameter({1}, {1}, f64);
  SGD first({w}, {.lr = 1});
  first.backward(objective(w, {1}));
  SGD second = std::move(first);
  REQUIRE(second.step());
  CHECK(w.item() == 0);
}

TEST_CASE("a graph recorded before a step cannot be run backwards after it") {
  Tensor w = parameter({1}, {1});
  SGD opt({w}, {});
  const Tensor stale = sum(square(w));
  opt.backward(sum(square(w)));
  REQUIRE(opt.step());
  CHECK(mentions(error_of([&] { opt.backward(stale); }), {"[square]", "the optimizer's step"}));
}

TEST_CASE("gradients that came by a plain backward() are refused: they carry no weight") {
  Tensor w = parameter({1}, {2 - 1}), v = parameter({1}, {1});
  SGD opt({v, w}, {.lr = 1});
  objective(w, {1}).backward();
  const std::string text = error_of([&] { opt.step(); });
  CHECK(mentions(text, {"[SGD]", "parameter 1, [1] f32", "opt.backward(loss)"}));
  CHECK(error_of([&] { opt.backward(objective(w, {1})); }) == text);
  opt.zero_grad();

  opt.backward(objective(w, {1}));
  objective(w, {1}).backward();  // one of each is found out as well
  CHECK(error_of([&] { opt.step(); }) == text);
  opt.zero_grad();

  opt.backward(objective(w, {1}));
  REQUIRE(opt.step());
  CHECK(w.item() == 0);
}

TEST_CASE("set_grad may replace what a cycle has accumulated, or drop it") {
  Tensor w = parameter({1}, {1}), v = parameter({1}, {1});
  AdamW opt({w, v}, {.lr = 0.5, .weight_decay = 0});
  opt.backward(objective(w, {1}) + objective(w, {1}) + objective(v, {1}));
  w.set_grad(make({-1}, {1}, f32));
  v.set_grad({});
  REQUIRE(opt.step());
  CHECK(w.item() == Approx(1.5));
  CHECK(v.item() == 1);
}

TEST_CASE("a cycle whose backward pass failed half-way is not applied") {
  Tensor w = parameter({1}, {1}), v = parameter({1}, {1});
  SGD opt({w, v}, {.lr = 1});
  const auto failing = [&] {
    Tensor y;
    {
      const NoGrad guard;
      y = 1.0 * w;
    }
    return custom("explode", {w}, y, {}, [](const CustomBackward&) -> std::vector<Tensor> {
      throw Error("explode", "as planned");
    });
  };
  const Tensor part = failing();
  CHECK_THROWS_AS(opt.backward(sum(part + v)), Error);
  CHECK(mentions(error_of([&] { opt.step(); }), {"[SGD]", "half-way", "zero_grad()"}));
  CHECK(mentions(error_of([&] { opt.backward(objective(w, {1})); }), {"half-way"}));
  opt.zero_grad();
  opt.backward(objective(v, {1}));
  REQUIRE(opt.step());
  CHECK(w.item() == 1);
  CHECK(v.item() == 0);
}

TEST_CASE("what cannot be a parameter is refused by index and shape") {
  Tensor ok = parameter({1}, {1});
  const auto error = [](std::vector<Tensor> p) {
    return error_of([&] { Adam(std::move(p), {}); });
  };
  CHECK(mentions(error({}), {"[Adam]", "no parameters"}));
  CHECK(mentions(error_of([] { Adam(std::vector<optim::ParamGroup>{}, {}); }), {"is empty"}));
  CHECK(mentions(error({ok, {}}), {"parameter 1", "undefined"}));
  CHECK(mentions(error({ok, zeros({2, 3})}), {"parameter 1, [2, 3] f32", "no gradient"}));
  CHECK(mentions(error({ok, ok * 2.0}), {"parameter 1, [1] f32", "made by an op"}));
  CHECK(mentions(error({ok, ok.detach().set_requires_grad()}), {"0 and 1", "same memory"}));
  CHECK(mentions(error_of([&] {
                   Adam({{.parameters = {ok}}, {.parameters = {ok}}}, {});
                 }),
                 {"parameter 1, [1] f32", "groups 0 and 1"}));
  const SGD owner({ok}, {});
  CHECK(mentions(error({ok}), {"parameter 0, [1] f32", "another optimizer"}));
  // None of this has touched the parameter.
  CHECK(ok.item() == 1);
}

TEST_CASE("a model that is converted under its optimizer is noticed") {
  nn::Linear layer(2, 1);
  SGD opt(layer.parameters(), {});
  Tensor w = layer.parameters()[0];
  CHECK(mentions(error_of([&] { w.set_requires_grad(false); }), {"belongs to an optimizer"}));
  // Either the conversion is refused, or the next use of the optimizer is.
  CHECK(mentions(error_of([&] {
                   layer.to(f64);
                   opt.backward(sum(layer.forward(ones({1, 2}, f64))));
                 }),
                 {"optimizer"}));
}

TEST_CASE("what cannot be a loss is refused, and the cycle goes on") {
  Tensor w = parameter({1, 2}, {2}), h = parameter({1}, {1}, f16);
  SGD opt({w, h}, {.lr = 1});
  opt.backward(objective(w, {1}));
  CHECK(mentions(error_of([&] { opt.backward(Tensor()); }), {"[SGD]", "undefined"}));
  CHECK(mentions(error_of([&] { opt.backward(w * 2.0); }), {"[2] f32", "scalar"}));
  CHECK(mentions(error_of([&] { opt.backward(sum(h * 2.0)); }), {"f16", "scalar"}));
  CHECK(mentions(error_of([&] { opt.backward(zeros({})); }), {"requires no gradient"}));
  CHECK(
      mentions(error_of([&] { opt.backward(objective(w, {1}), -1); }), {"weight of a loss", "-1"}));
  CHECK(mentions(error_of([&] { opt.backward(Loss{objective(w, {1}), {}}); }), {"loss's weight"}));
  const optim::StepReport report = opt.step();
  CHECK(report.weight() == 1);
  CHECK(values_of(w) == std::vector<double>{0, 1});
}

TEST_CASE("options outside their range are refused with their value") {
  Tensor w = parameter({1}, {1});
  const double nan = std::nan("");
  const auto sgd = [&](const optim::SGDOptions& o) { return error_of([&] { SGD({w}, o); }); };
  const auto adam = [&](const optim::AdamOptions& o) { return error_of([&] { Adam({w}, o); }); };
  for (const double bad : {-0.1, nan, HUGE_VAL})
    for (const std::string& text :
         {error_of([&] { SGD({w}, {.lr = bad}); }), error_of([&] { SGD({w}, {}).set_lr(bad); }),
          error_of([&] { SGD({w}, {}).set_lr(optim::Schedule(bad)); })})
      CHECK(mentions(text, {"[SGD] lr is ", "not in [0, inf); hint: 0 leaves the weights"}));
  CHECK(mentions(error_of([&] { optim::ScheduleFreeAdamW({w}, {.lr = nan, .warmup_steps = 3}); }),
                 {"[ScheduleFreeAdamW] lr is nan"}));
  CHECK(mentions(sgd({.momentum = 1}), {"momentum is 1"}));
  CHECK(mentions(sgd({.dampening = 1.5}), {"dampening is 1.5"}));
  CHECK(mentions(sgd({.nesterov = true}), {"nesterov"}));
  CHECK(mentions(sgd({.momentum = 0.9, .dampening = 0.5, .nesterov = true}), {"nesterov"}));
  CHECK(mentions(sgd({.weight_decay = -1}), {"weight_decay is -1"}));
  CHECK(mentions(error_of([&] { SGD({w}, {}, {.clip_norm = -1}); }), {"clip_norm is -1"}));
  CHECK(mentions(adam({.beta1 = 1}), {"[Adam]", "beta1 is 1"}));
  CHECK(mentions(adam({.beta2 = -0.5}), {"beta2 is -0.5"}));
  CHECK(mentions(adam({.eps = 0}), {"eps is 0"}));
  CHECK(mentions(error_of([&] { AdamW({w}, {.weight_decay = nan}); }), {"[AdamW]", "nan"}));
  CHECK(mentions(error_of([&] { SGD({{.parameters = {w}, .lr_scale = -2}}, {}); }),
                 {"lr_scale is -2"}));
  CHECK(mentions(error_of([&] { SGD({{.parameters = {w}, .weight_decay = -3.0}}, {}); }),
                 {"weight_decay is -3"}));
  SGD opt({w}, {});
  CHECK(mentions(error_of([&] { opt.set_lr(-1); }), {"lr is -1"}));
  CHECK(opt.lr() == 1e-2);
}

}  // namespace
}  // namespace firn::testing
