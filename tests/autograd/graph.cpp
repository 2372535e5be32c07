// The walk: order, accumulation, freeing, and graphs of any length.
#include <functional>

#include "autograd/leaf.h"

using namespace firn;
using namespace firn::testing;

TEST_CASE("backward: a chain of 100,000 nodes neither overflows nor loses a gradient",
          "[autograd][long]") {
  Tensor x = leaf({3});
  Tensor y = x;
  for (int i = 0; i < 100'000; ++i) y = y + 1;
  CHECK(y.item() == 100'003);
  y.backward();
  CHECK(x.grad().item() == 1);
}

TEST_CASE("graph: a chain of 100,000 nodes is destroyed without backward", "[autograd][long]") {
  Tensor x = leaf({3});
  Tensor y = x;
  for (int i = 0; i < 100'000; ++i) y = neg(y);
  y = Tensor();
  CHECK(x.requires_grad());
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("backward: a diamond adds both ways", "[autograd]") {
  Tensor x = leaf({2});
  const Tensor a = x * 3.0, b = square(x);
  sum(a * b).backward();  // 3 x^3
  CHECK(x.grad().item() == 36);
}

TEST_CASE("backward: wide and nested diamonds", "[autograd]") {
  Tensor x = leaf({1.5});
  Tensor y = x;
  for (int i = 0; i < 20; ++i) y = y + y;  // 2^20 paths
  y.backward();
  CHECK(x.grad().item() == 1 << 20);

  Tensor z = leaf({2});
  Tensor s = z * 0.0;
  for (int i = 1; i <= 50; ++i) s = s + z * static_cast<double>(i);
  s.backward();
  CHECK(z.grad().item() == 1275);
}

TEST_CASE("backward: one tensor as both operands", "[autograd]") {
  Tensor x = leaf({3, -2});
  sum(x * x).backward();
  CHECK(values_of(x.grad()) == Values{6, -4});
  Tensor y = leaf({3, -2});
  sum(y - y).backward();
  CHECK(values_of(y.grad()) == Values{0, 0});
  Tensor z = make({1, 2, 3, 4}, {2, 2});
  z.set_requires_grad();
  sum(matmul(z, z)).backward();
  CHECK(values_of(z.grad()) == Values{3 + 4, 7 + 4, 3 + 6, 7 + 6});
}

TEST_CASE("backward: the same graph gives the same bits, for any number of threads", "[autograd]") {
  const auto gradient = [] {
    firn::testing::Rng rng(5);
    Tensor x = make(rng.uniforms(64 * 129, -1, 1), {64, 129}, f32);
    Tensor w = make(rng.uniforms(65 * 129, -1, 1), {65, 129}, f32);
    Tensor b = make(rng.uniforms(65, -1, 1), {65}, f32);
    w.set_requires_grad();
    b.set_requires_grad();
    const Tensor h = tanh(linear(x, w, b));
    sum(log_softmax(h) * h).backward();
    Values all = values_of(w.grad());
    const Values more = values_of(b.grad());
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const int threads = num_threads();
  set_num_threads(1);
  const Values one = gradient();
  CHECK(gradient() == one);
  for (int n : {2, 3, 4}) {
    set_num_threads(n);
    INFO(n << " threads");
    CHECK(gradient() == one);
  }
  set_num_threads(threads);
}

TEST_CASE("NoGrad: nothing is recorded, scopes nest", "[autograd]") {
  Tensor x = leaf({2});
  CHECK(grad_enabled());
  {
    const NoGrad outer;
    CHECK_FALSE(grad_enabled());
    { const NoGrad inner; }
    CHECK_FALSE(grad_enabled());
    CHECK_FALSE((x * 2).requires_grad());
  }
  CHECK(grad_enabled());
  CHECK((x * 2).requires_grad());
}

TEST_CASE("detach: the same elements outside the graph", "[autograd]") {
  Tensor x = leaf({2});
  const Tensor y = x * 3;
  const Tensor d = y.detach();
  CHECK_FALSE(d.requires_grad());
  CHECK(address_of(d) == address_of(y));
  sum(y * d).backward();
  CHECK(x.grad().item() == 18);  // d counts as a constant
}

TEST_CASE("backward: a second pass without retain_graph names the op and the way out",
          "[autograd]") {
  Tensor x = leaf({2});
  const Tensor y = square(x);
  y.backward();
  const std::string message = error_of([&] { y.backward(); });
  CHECK(holds(message, "[square]"));
  CHECK(holds(message, "earlier backward()"));
  CHECK(holds(message, "retain_graph = true"));
  CHECK(x.grad().item() == 4);
}

TEST_CASE("backward: with retain_graph the pass can be repeated and adds up", "[autograd]") {
  Tensor x = leaf({2});
  const Tensor y = exp(square(x));
  backward(y, {.initial_gradient = {}, .retain_graph = true});
  const double once = x.grad().item();
  backward(y, {.initial_gradient = {}, .retain_graph = true});
  CHECK(x.grad().item() == 2 * once);
  y.backward();
  CHECK(x.grad().item() == 3 * once);
  CHECK_THROWS_AS(y.backward(), Error);
}

TEST_CASE("backward: a part shared by two losses is freed by the first", "[autograd]") {
  Tensor x = leaf({2});
  const Tensor h = exp(x);
  const Tensor a = h * 2, b = h * 3;
  a.backward();
  CHECK(holds(error_of([&] { b.backward(); }), "[exp]"));
}

TEST_CASE("backward: a graph that failed can go on being used", "[autograd]") {
  Tensor x = leaf({2});
  Tensor bad =
      custom("bad", {x * 1.0}, make({1}, {1}), {},
             [](const CustomBackward&) -> std::vector<Tensor> { throw Error("bad", "no"); });
  CHECK(holds(error_of([&] { bad.backward(); }), "[bad] no"));
  sum(x * 5).backward();
  CHECK(x.grad().item() == 5);
}

TEST_CASE("backward: a non-scalar needs a seed of its shape", "[autograd][host]") {
  Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  CHECK(error_of([&] { y.backward(); }) ==
        "[backward] [2] f64 cpu is not a scalar; hint: reduce it to a scalar, or give an initial "
        "gradient");
  CHECK(holds(error_of([&] { backward(y, {.initial_gradient = make({1}, {1})}); }),
              "initial gradient [1] f64 cpu"));
  backward(y, {.initial_gradient = make({1, 10}, {2})});
  CHECK(values_of(x.grad()) == Values{2, 20});
}

TEST_CASE("backward: what requires no gradient is refused", "[autograd]") {
  const Tensor x = make({1}, {1});
  CHECK(holds(error_of([&] { x.backward(); }), "requires no gradient"));
  CHECK(holds(error_of([&] { (x * 2).backward(); }), "requires no gradient"));
  CHECK(holds(error_of([] { Tensor().backward(); }), "[backward]"));
}

TEST_CASE("backward: gradients of two passes add up, set_grad starts anew", "[autograd]") {
  Tensor x = leaf({1, 2});
  sum(x * 2).backward();
  sum(x * 3).backward();
  CHECK(values_of(x.grad()) == Values{5, 5});
  x.set_grad({});
  CHECK_FALSE(x.grad().defined());
  x.set_grad(make({10, 20}, {2}));
  sum(x * 3).backward();
  CHECK(values_of(x.grad()) == Values{13, 23});
}

TEST_CASE("backward: a gradient handed out earlier is not changed by the next pass", "[autograd]") {
  Tensor x = leaf({1, 2});
  sum(x * 2).backward();
  const Tensor first = x.grad();
  const Tensor given = make({10, 20}, {2});
  sum(x * 3).backward();
  CHECK(values_of(first) == Values{2, 2});
  x.set_grad(given);
  sum(x * 3).backward();
  CHECK(values_of(given) == Values{10, 20});
}

TEST_CASE("backward: the seed is not changed", "[autograd]") {
  Tensor x = leaf({1, 2});
  const Tensor seed = make({3, 4}, {2});
  const Tensor y = x + x;
  backward(y, {.initial_gradient = seed});
  CHECK(values_of(seed) == Values{3, 4});
  backward(x, {.initial_gradient = seed});  // a leaf itself
  CHECK(values_of(x.grad()) == Values{9, 12});
  CHECK(values_of(seed) == Values{3, 4});
}

TEST_CASE("backward: an unused leaf has no gradient, not a zero one", "[autograd]") {
  Tensor x = leaf({1}), unused = leaf({1});
  const Tensor side = unused * 2;  // recorded, but not part of the result
  (x * 2).backward();
  CHECK(x.grad().defined());
  CHECK_FALSE(unused.grad().defined());
}

TEST_CASE("backward: views in the middle of a graph", "[autograd]") {
  Tensor x = make({0, 1, 2, 3, 4, 5}, {2, 3});
  x.set_requires_grad();
  const Tensor y = x * 2;
  const Tensor a = transpose(y, 0, 1)[1], b = slice(y, 1, 0, 3, 2);
  (sum(a * a) + sum(b)).backward();
  CHECK(values_of(x.grad()) == Values{2, 2 * 2 * 2 * 1, 2, 2, 2 * 2 * 2 * 4, 2});
}

TEST_CASE("backward: overlapping and expanded views add up", "[autograd]") {
  Tensor x = leaf({1, 2, 3});
  const Tensor wide = expand(x, {4, 3});
  sum(wide * make(Values(12, 2.0), {4, 3})).backward();
  CHECK(values_of(x.grad()) == Values{8, 8, 8});
  x.set_grad({});
  sum(slice(x, 0, 0, 2) * slice(x, 0, 1, 3)).backward();  // x0 x1 + x1 x2
  CHECK(values_of(x.grad()) == Values{2, 4, 2});
}

TEST_CASE("backward: into casts, through 16 bits and back", "[autograd]") {
  Tensor x = leaf({0.1, 0.2}, f32);
  const Tensor y = cast(cast(x, f16) * 3.0, f32);
  sum(y).backward();
  CHECK(x.grad().dtype() == f32);
  CHECK(values_of(x.grad()) == Values{3, 3});
  CHECK_FALSE(cast(x, i64).requires_grad());
}

TEST_CASE("backward: through comparisons and argmax no gradient flows", "[autograd]") {
  Tensor x = leaf({0.1, 0.2});
  CHECK_FALSE(gt(x, make({0, 1}, {2})).requires_grad());
  CHECK_FALSE(argmax(x).requires_grad());
}

TEST_CASE("memory: what was saved is freed as backward passes it", "[autograd]") {
  const std::int64_t n = 1 << 16;
  Tensor x = zeros({n});
  x.set_requires_grad();
  const auto before = memory_stats().total.current;
  Tensor y = x;
  for (int i = 0; i < 8; ++i) y = exp(y);  // each saves its output
  CHECK(memory_stats().total.current - before >= 8 * n * 4);
  const Tensor loss = sum(y);
  y = Tensor();
  loss.backward();
  // Left: the gradient of x and the loss, each of at most two pages more than its size.
  CHECK(memory_stats().total.current - before <= n * 4 + 16384);
}

TEST_CASE("memory: dropping the result drops the graph", "[autograd]") {
  Tensor x = zeros({1 << 16});
  x.set_requires_grad();
  const auto before = memory_stats().total.current;
  { const Tensor y = sum(exp(exp(exp(x)))); }
  CHECK(memory_stats().total.current == before);
}

TEST_CASE("memory: a training loop holds the same bytes after every step", "[autograd]") {
  Tensor w = zeros({64, 64});
  w.set_requires_grad();
  const Tensor x = ones({32, 64});
  std::size_t after_first = 0;
  for (int i = 0; i < 20; ++i) {
    sum(square(tanh(matmul(x, w)))).backward();
    w.set_grad({});
    if (i == 0) after_first = memory_stats().total.current;
  }
  CHECK(memory_stats().total.current == after_first);
}
