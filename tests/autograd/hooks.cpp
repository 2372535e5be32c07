// Hooks, functions of the user's own, and anomaly mode.
#include "autograd/leaf.h"

using namespace firn;
using namespace firn::testing;

namespace {

Tensor cube(const Tensor& x) {
  Tensor y;
  {
    const NoGrad guard;
    y = x * x * x;
  }
  return custom("cube", {x}, y, {x}, [](const CustomBackward& b) {
    return std::vector<Tensor>{3.0 * b.saved[0] * b.saved[0] * b.grad};
  });
}

}  // namespace

TEST_CASE("hook: on a leaf it sees the whole gradient of one pass, once", "[autograd]") {
  Tensor x = leaf({1, 2});
  std::vector<Values> seen;
  add_hook(x, [&](const Tensor& g) {
    seen.push_back(values_of(g));
    return Tensor();
  });
  sum(x * 2 + x * 3).backward();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0] == Values{5, 5});
  sum(x).backward();
  REQUIRE(seen.size() == 2);
  CHECK(seen[1] == Values{1, 1});  // of this pass, not of both
  CHECK(values_of(x.grad()) == Values{6, 6});
}

TEST_CASE("hook: on an inner tensor", "[autograd]") {
  Tensor x = leaf({2});
  const Tensor y = x * 3;
  double seen = 0;
  add_hook(y, [&](const Tensor& g) {
    seen = g.item();
    return Tensor();
  });
  sum(y * 4 + y * 5).backward();
  CHECK(seen == 9);
  CHECK(x.grad().item() == 27);
}

TEST_CASE("hook: what it returns replaces the gradient", "[autograd]") {
  Tensor x = leaf({2}), z = leaf({2});
  const Tensor y = x * 3;
  add_hook(y, [](const Tensor& g) { return g * 10; });
  add_hook(z, [](const Tensor& g) { return g * 0.5; });
  sum(y + z).backward();
  CHECK(x.grad().item() == 30);
  CHECK(z.grad().item() == 0.5);
}

TEST_CASE("hook: several run in the order they were added", "[autograd]") {
  Tensor x = leaf({1});
  add_hook(x, [](const Tensor& g) { return g + 1; });
  add_hook(x, [](const Tensor& g) { return g * 10; });
  sum(x).backward();
  CHECK(x.grad().item() == 20);
}

TEST_CASE("hook: can be removed, once", "[autograd]") {
  Tensor x = leaf({1});
  const int a = add_hook(x, [](const Tensor& g) { return g + 1; });
  const int b = add_hook(x, [](const Tensor& g) { return g * 10; });
  CHECK(a != b);
  remove_hook(x, a);
  sum(x).backward();
  CHECK(x.grad().item() == 10);
  CHECK(holds(error_of([&] { remove_hook(x, a); }), "was removed"));
  CHECK(holds(error_of([&] { remove_hook(x, 2); }), "has no hook 2"));
}

TEST_CASE("hook: needs a tensor with a gradient, and a gradient of its shape", "[autograd][host]") {
  CHECK(holds(error_of([] { add_hook(make({1}, {1}), [](const Tensor& g) { return g; }); }),
              "requires no gradient"));
  Tensor x = leaf({1, 2});
  add_hook(x, [](const Tensor&) { return make({1}, {1}); });
  CHECK(holds(error_of([&] { sum(x * 2).backward(); }), "hook 0 returned [1] f64 cpu"));
}

TEST_CASE("hook: runs without recording, and may run a backward of its own", "[autograd]") {
  Tensor x = leaf({2}), other = leaf({3});
  bool recording = true;
  add_hook(x, [&](const Tensor&) {
    recording = grad_enabled();
    return Tensor();
  });
  sum(x * 2).backward();
  CHECK_FALSE(recording);

  const Tensor inner = sum(other * other);
  add_hook(x, [&](const Tensor&) {
    inner.backward();
    return Tensor();
  });
  sum(x * 2).backward();
  CHECK(other.grad().item() == 6);
  CHECK(x.grad().item() == 4);
}

TEST_CASE("custom: a function with its own backward", "[autograd]") {
  Tensor x = leaf({2, -1});
  sum(cube(x) * 2).backward();
  CHECK(values_of(x.grad()) == Values{24, 6});
}

TEST_CASE("custom: its gradient agrees with central differences", "[autograd]") {
  const double h = 0x1p-17;
  Tensor x = leaf({0.7});
  cube(x).backward();
  const double numeric =
      (cube(make({0.7 + h}, {1})).item() - cube(make({0.7 - h}, {1})).item()) / (2 * h);
  CHECK(x.grad().item() == Approx(numeric).epsilon(1e-8));
}

TEST_CASE("custom: several inputs, one without a gradient", "[autograd]") {
  Tensor a = leaf({2}), b = leaf({5});
  Tensor y;
  {
    const NoGrad guard;
    y = a * b;
  }
  const Tensor z = custom("scale", {a, b}, y, {b}, [](const CustomBackward& c) {
    return std::vector<Tensor>{c.saved[0] * c.grad, Tensor()};
  });
  sum(z).backward();
  CHECK(a.grad().item() == 5);
  CHECK_FALSE(b.grad().defined());
}

TEST_CASE("custom: nothing is recorded where no input requires a gradient", "[autograd]") {
  CHECK_FALSE(cube(make({2}, {1})).requires_grad());
  const NoGrad guard;
  CHECK_FALSE(cube(leaf({2})).requires_grad());
}

TEST_CASE("custom: errors name the function", "[autograd]") {
  Tensor x = leaf({2});
  const Tensor y = make({4}, {1});
  const auto wrong_count =
      custom("mine", {x}, y, {}, [](const CustomBackward&) { return std::vector<Tensor>{}; });
  CHECK(holds(error_of([&] { wrong_count.backward(); }),
              "[mine] backward returned 0 gradients for 1 inputs"));
  const auto wrong_shape = custom("mine", {x}, y, {}, [](const CustomBackward&) {
    return std::vector<Tensor>{make({1, 2}, {2})};
  });
  CHECK(holds(error_of([&] { wrong_shape.backward(); }), "[mine]"));
  CHECK(holds(error_of([&] {
                custom("mine", {x}, x * 2, {},
                       [](const CustomBackward&) { return std::vector<Tensor>{Tensor()}; });
              }),
              "[mine]"));
}

TEST_CASE("custom: an edit of what it saved is found", "[autograd]") {
  Tensor x = leaf({2});
  const Tensor y = cube(x);
  {
    const NoGrad guard;
    add_(x, 1);
  }
  const std::string message = error_of([&] { y.backward(); });
  CHECK(holds(message, "[cube]"));
  CHECK(holds(message, "add_"));
}

TEST_CASE("anomaly mode: names the op of the forward pass that made a NaN", "[autograd]") {
  Tensor x = leaf({-1});
  CHECK_NOTHROW(log(x));
  const AnomalyMode on;
  CHECK(holds(error_of([&] { exp(log(x)); }), "[log] the forward pass produced"));
  CHECK(holds(error_of([&] { x / make({0}, {1}); }), "[div] the forward pass produced -inf"));
}

TEST_CASE("anomaly mode: names the op whose backward made a non-finite gradient", "[autograd]") {
  Tensor x = leaf({0});
  const AnomalyMode on;
  const Tensor y = sqrt(x);  // finite, but its slope at 0 is not
  const std::string message = error_of([&] { sum(y * 2).backward(); });
  CHECK(holds(message, "[sqrt] the backward pass produced inf"));
}

TEST_CASE("anomaly mode: ends with its scope", "[autograd]") {
  {
    const AnomalyMode outer;
    { const AnomalyMode inner; }
    CHECK_THROWS_AS(log(make({-1}, {1})), Error);
  }
  CHECK_NOTHROW(log(make({-1}, {1})));
}
