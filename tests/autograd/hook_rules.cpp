// What hooks may do: add and remove hooks, call backward(); and what they may return.
#include <memory>

#include "autograd/leaf.h"

using namespace firn;
using namespace firn::testing;

namespace {

GradHook count_into(int& calls) {
  return [&calls](const Tensor&) {
    ++calls;
    return Tensor();
  };
}

}  // namespace

TEST_CASE("hook: one that is added by a hook runs from the next backward on", "[autograd]") {
  Tensor x = leaf({1});
  int later = 0, adding = 0;
  add_hook(x, [&](const Tensor&) {
    // Many, so that the list of hooks moves in memory while it is gone through.
    if (adding++ == 0)
      for (int i = 0; i < 100; ++i) add_hook(x, count_into(later));
    return Tensor();
  });
  sum(x * 2).backward();
  CHECK(later == 0);
  CHECK(values_of(x.grad()) == Values{2});
  sum(x * 2).backward();
  CHECK(later == 100);
}

TEST_CASE("hook: on a leaf that has some of its gradient already, it waits for the next backward",
          "[autograd]") {
  Tensor x = leaf({1});
  const Tensor h = x * 3;  // runs last
  std::vector<Values> seen;
  add_hook(h, [&](const Tensor&) {
    if (seen.empty() && !x.grad().defined()) FAIL("x * x runs first");
    if (seen.empty())
      add_hook(x, [&](const Tensor& g) {
        seen.push_back(values_of(g));
        return Tensor();
      });
    return Tensor();
  });
  const Tensor loss = sum(h) + sum(x * x);
  backward(loss, {.initial_gradient = {}, .retain_graph = true});
  CHECK(seen.empty());
  CHECK(values_of(x.grad()) == Values{5});
  backward(sum(x * x + x), {});
  REQUIRE(seen.size() == 1);
  CHECK(seen[0] == Values{3});
}

TEST_CASE("hook: may remove itself, others before it and others after it", "[autograd]") {
  Tensor x = leaf({1});
  int first = 0, last = 0, self = 0;
  const int a = add_hook(x, count_into(first));
  int own = 0, b = 0;
  // The closure holds memory of its own: it must live until the call is over.
  auto held = std::make_shared<int>(7);
  own = add_hook(x, [&, held](const Tensor&) {
    remove_hook(x, a);
    remove_hook(x, own);
    remove_hook(x, b);
    self += *held;
    return Tensor();
  });
  b = add_hook(x, count_into(last));
  held.reset();
  sum(x * 2).backward();
  sum(x * 2).backward();
  CHECK(first == 1);
  CHECK(self == 7);
  CHECK(last == 0);  // removed before its turn
}

TEST_CASE("hook: its number is never given again", "[autograd]") {
  Tensor x = leaf({1});
  int calls = 0;
  const int a = add_hook(x, count_into(calls));
  remove_hook(x, a);
  const int b = add_hook(x, count_into(calls));
  CHECK(a != b);
  CHECK(holds(error_of([&] { remove_hook(x, a); }), "hook 0 of [1] f64"));
  CHECK(holds(error_of([&] { remove_hook(x, a); }), "was removed"));
  sum(x).backward();
  CHECK(calls == 1);
  CHECK(holds(error_of([&] { remove_hook(x, 17); }), "has no hook 17"));
  CHECK(holds(error_of([&] { remove_hook(x, -1); }), "has no hook -1"));
}

TEST_CASE("hook: what it returns must have the gradient's dtype and shape", "[autograd]") {
  const bool inner = GENERATE(false, true);
  const auto message = [&](const Tensor& returned) {
    Tensor x = leaf({1, 2}, f32);
    const Tensor y = x * 3;
    add_hook(inner ? y : x, [&](const Tensor&) { return returned; });
    const std::string text = error_of([&] { sum(exp(y)).backward(); });
    CHECK_FALSE(x.grad().defined());
    return text;
  };
  for (DType t : {f64, f16, i32}) {
    const std::string text = message(ones({2}, t));
    CHECK(holds(text, inner ? "[mul]" : "[leaf]"));
    CHECK(holds(text, std::string("hook 0 returned [2] ") + to_string(t)));
    CHECK(holds(text, "gradient of [2] f32"));
    CHECK(holds(text, "grad.to(firn::f32)"));
  }
  CHECK(holds(message(ones({3}, f32)), "hook 0 returned [3] f32"));
}

TEST_CASE("hook: writing the gradient in place is refused", "[autograd]") {
  Tensor x = leaf({1, 2});
  const Tensor a = x * 2, b = x * 3;
  add_hook(b, [](const Tensor& g) {
    fill_(g, 0);
    return Tensor();
  });
  // Both summands are given one and the same gradient.
  const std::string message = error_of([&] { sum(exp(a + b)).backward(); });
  CHECK(holds(message, "[mul]"));
  CHECK(holds(message, "in place (fill_)"));
}

TEST_CASE("hook: an empty one is refused with what to give", "[autograd]") {
  const std::string message = error_of([] { add_hook(leaf({2}), GradHook()); });
  CHECK(holds(message, "[add_hook] the hook for [1]"));
  CHECK(holds(message, "is empty; hint: give a function of the gradient"));
}

TEST_CASE("hook: a backward inside it may not reach what the outer one has not finished",
          "[autograd]") {
  Tensor x = leaf({2});
  const Tensor shared = x * 3;
  const Tensor other = sum(shared * 5);
  const Tensor last = shared * 7;
  add_hook(shared, [&](const Tensor&) {
    other.backward();
    return Tensor();
  });
  const std::string message = error_of([&] { sum(last).backward(); });
  CHECK(holds(message, "[mul]"));
  CHECK(holds(message, "the outer backward() has not finished"));
}

TEST_CASE("hook: runs when backward begins at the leaf itself", "[autograd]") {
  Tensor x = leaf({2});
  add_hook(x, [](const Tensor& g) { return g * 10; });
  x.backward();
  CHECK(x.grad().item() == 10);
}

TEST_CASE("custom: a backward function that writes its gradient in place is refused",
          "[autograd]") {
  const auto times = [](const Tensor& x, bool in_place) {
    Tensor y;
    {
      const NoGrad guard;
      y = x * 2.0;
    }
    return custom("times", {x}, y, {}, [in_place](const CustomBackward& b) {
      Tensor g = b.grad;
      if (in_place) {
        g *= 2.0;
      } else {
        g = g * 2.0;
      }
      return std::vector<Tensor>{g};
    });
  };
  // The gradients of both terms of the sum are one tensor.
  const auto run = [&](bool in_place) {
    const Tensor x = ones({2}).set_requires_grad(), v = ones({2}).set_requires_grad();
    const Tensor side = v * 1.0;
    const Tensor s = side + times(x, in_place);
    sum(s * s).backward();
    return values_of(v.grad());
  };
  CHECK(run(false) == std::vector<double>{6, 6});
  const std::string in_place = error_of([&] { run(true); });
  CHECK(in_place.find("[times] backward wrote the gradient that it was given in place") == 0);
  CHECK(error_of([] {
          custom("empty", {ones({1})}, ones({1}), {}, {});
        }).find("[empty] the backward function of custom() is empty") == 0);
}

TEST_CASE("custom: a gradient that is no number of floating point is refused", "[autograd]") {
  Tensor x = leaf({2}, f32);
  Tensor y;
  {
    const NoGrad guard;
    y = x * 2;
  }
  const auto function = [&](DType t) {
    return custom("mine", {x}, y, {},
                  [t](const CustomBackward&) { return std::vector<Tensor>{full({1}, 2, t)}; });
  };
  CHECK(holds(error_of([&] { function(i32).backward(); }), "[mine] gradient [1] i32"));
  CHECK_FALSE(x.grad().defined());
  function(f64).backward();  // cast
  CHECK(values_of(x.grad()) == Values{2});
  CHECK(x.grad().dtype() == f32);
}
