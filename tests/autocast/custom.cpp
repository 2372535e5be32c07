// Functions of the user's own under autocast: the backward function has the casts of the forward
// pass.
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;
using firn::testing::make;
using firn::testing::Rng;
using firn::testing::values_of;

namespace {

using Values = std::vector<double>;

/// x + sin²(x), written as autograd.h shows it.
Tensor snake(const Tensor& x) {
  Tensor y;
  {
    const NoGrad guard;
    y = x + sin(x).square();
  }
  return custom("snake", {x}, y, {x}, [](const CustomBackward& b) {
    return std::vector<Tensor>{b.grad * (1.0 + sin(2.0 * b.saved[0]))};
  });
}
/// The same of recorded ops.
Tensor recorded_snake(const Tensor& x) { return x + sin(x).square(); }
/// x·w, whose backward multiplies an f32 gradient by 16-bit factors.
Tensor scaled(const Tensor& x, const Tensor& w) {
  Tensor y;
  {
    const NoGrad guard;
    y = x * w;
  }
  return custom("scaled", {x, w}, y, {x, w}, [](const CustomBackward& b) {
    return std::vector<Tensor>{b.grad * b.saved[1], b.grad * b.saved[0]};
  });
}

/// Of `a` to `b`, in parts of b's norm.
double distance(const Values& a, const Values& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

struct Gradients {
  Values x, w;
  bool operator==(const Gradients&) const = default;
};

/// Of an f32 input and an f32 weight, with the forward pass of `run` under `lower`.
Gradients gradients(std::optional<DType> lower, bool backward_inside,
                    const std::function<Tensor(const Tensor&, const Tensor&)>& run) {
  Rng rng(5);
  const Tensor x = make(rng.uniforms(48, -1, 1), {6, 8}, f32).set_requires_grad(),
               w = make(rng.uniforms(64, -0.5, 0.5), {8, 8}, f32).set_requires_grad();
  Tensor loss;
  {
    std::optional<Autocast> guard;
    if (lower) guard.emplace(*lower);
    loss = mean(square(run(x, w)));
    if (backward_inside) loss.backward();
  }
  if (!backward_inside) loss.backward();
  CHECK(x.grad().dtype() == f32);
  CHECK(w.grad().dtype() == f32);
  return {values_of(x.grad()), values_of(w.grad())};
}

/// A chain of matrix products, custom functions and residuals, chosen by `seed`.
Tensor composed(std::uint64_t seed, const Tensor& x, const Tensor& w, bool by_hand) {
  Rng rng(seed);
  Tensor h = x;
  for (int i = 0; i < 6; ++i) {
    const Tensor before = h;
    switch (rng.below(6)) {
      case 0:
        h = matmul(h, w);
        break;
      case 1:
        h = by_hand ? snake(h) : recorded_snake(h);
        break;
      case 2:
        h = h + (by_hand ? snake(matmul(h, w)) : recorded_snake(matmul(h, w)));
        break;
      case 3:
        h = by_hand ? scaled(h, matmul(x, w)) : h * matmul(x, w);
        break;
      case 4:
        h = tanh(h.slice(1, 0, 4));
        h = cat({h, before.slice(1, 4, 8)}, 1);
        break;
      default: {
        const NoAutocast plain;
        h = by_hand ? snake(h.to(f32)) : recorded_snake(h.to(f32));
        break;
      }
    }
    if (rng.below(3) == 0) h = h + before;
  }
  return softmax(h, 1) + matmul(h, w);
}

}  // namespace

TEST_CASE("[S26] a custom function written as documented has the f32 gradient under autocast") {
  const auto run = [](const Tensor& x, const Tensor& w) { return snake(matmul(x, w)); };
  const Gradients full = gradients({}, false, run);
  for (const DType lower : {f16, bf16}) {
    const Gradients low = gradients(lower, false, run);
    INFO(to_string(lower) << " " << distance(low.x, full.x) << " " << distance(low.w, full.w));
    CHECK(distance(low.x, full.x) < 8 * epsilon_of(lower));
    CHECK(distance(low.w, full.w) < 8 * epsilon_of(lower));
    CHECK(low.x != full.x);  // it did run in 16 bits
    CHECK(gradients(lower, true, run) == low);
  }
}

TEST_CASE("[S26] random compositions of custom functions under autocast follow recorded ops") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const auto of = [seed](bool by_hand) {
      return [=](const Tensor& x, const Tensor& w) { return composed(seed, x, w, by_hand); };
    };
    for (const DType lower : {f16, bf16}) {
      const Gradients recorded = gradients(lower, false, of(false)),
                      by_hand = gradients(lower, seed % 2 == 0, of(true));
      INFO("seed " << seed << " " << to_string(lower));
      CHECK(distance(by_hand.x, recorded.x) < 16 * epsilon_of(lower));
      CHECK(distance(by_hand.w, recorded.w) < 16 * epsilon_of(lower));
    }
    const Gradients plain = gradients({}, false, of(true)),
                    recorded = gradients({}, true, of(false));
    CHECK(distance(plain.x, recorded.x) < 64 * epsilon_of(f32));
  }
}

TEST_CASE(
    "[S26] a custom function's backward has the guard of the call of custom(), and no other") {
  std::vector<std::optional<DType>> modes;
  const auto noted = [&](const Tensor& x) {
    return custom("noted", {x}, x.detach(), {}, [&](const CustomBackward& b) {
      modes.push_back(autocast_dtype());
      return std::vector<Tensor>{b.grad};
    });
  };
  const Tensor x = ones({2}).set_requires_grad();
  Tensor y = noted(x);
  {
    const Autocast outer(bf16);
    y = noted(y);
    {
      const Autocast inner(f16);
      y = noted(y);
      const NoAutocast off;
      y = noted(y);
    }
    add_hook(y, [&](const Tensor&) {
      CHECK_FALSE(autocast_dtype());
      return Tensor();
    });
    const DtypeTrace trace;
    y = sum(y);
    const std::size_t forward = trace.ops().size();
    const Autocast around(f32);
    y.backward();
    CHECK(trace.ops().size() == forward);
    CHECK(autocast_dtype() == f32);
  }
  CHECK(modes == std::vector<std::optional<DType>>{{}, f16, bf16, {}});
  CHECK_FALSE(autocast_dtype());
}

TEST_CASE("[S26] a custom backward that throws restores the mode of the thread") {
  const Tensor x = ones({2}).set_requires_grad();
  Tensor y;
  {
    const Autocast guard(bf16);
    y = custom("bad", {x}, x.detach(), {},
               [](const CustomBackward& b) { return std::vector<Tensor>{b.grad + ones({3})}; });
  }
  CHECK(error_of([&] { y.sum().backward(); }).starts_with("[add] backward of bad: "));
  CHECK_FALSE(autocast_dtype());
  const Autocast guard(f16);
  CHECK_THROWS_AS(y.sum().backward(), Error);
  CHECK(autocast_dtype() == f16);
}

TEST_CASE("mixed dtypes: Autocast is named only if it helps") {
  const Tensor x = ones({2, 2});
  const auto hint = [&](DType other) { return error_of([&] { x + ones({2, 2}, other); }); };
  for (const DType t : {f16, bf16})
    CHECK(hint(t).find("or compute under Autocast") != std::string::npos);
  for (const DType t : {f64, i32, i64, u8, boolean}) {
    const std::string text = hint(t);
    INFO(text);
    CHECK(text.find(".to(firn::f32)") != std::string::npos);
    CHECK(text.find("Autocast") == std::string::npos);
    const Autocast guard(bf16);
    CHECK(hint(t) == text);
    CHECK(error_of([&] { linear(x, ones({2, 2}, t)); }).find("Autocast") == std::string::npos);
  }
}
