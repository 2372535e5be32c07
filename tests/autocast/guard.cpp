// The guard itself: nesting, exceptions, threads, backward; and the trace.
#include <stdexcept>
#include <thread>
#include <vector>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;
using firn::testing::make;
using firn::testing::Rng;

TEST_CASE("[S26] guards nest and restore the one around them") {
  CHECK(!autocast_dtype());
  {
    const Autocast outer(f16);
    CHECK(autocast_dtype() == f16);
    {
      const Autocast same(f16);
      CHECK(autocast_dtype() == f16);
    }
    CHECK(autocast_dtype() == f16);
    {
      const Autocast inner(bf16);
      CHECK(autocast_dtype() == bf16);
      {
        const NoAutocast off;
        CHECK(!autocast_dtype());
        CHECK(matmul(ones({2, 2}), ones({2, 2})).dtype() == f32);
        const Autocast again(f32);
        CHECK(autocast_dtype() == f32);
      }
      CHECK(autocast_dtype() == bf16);
      CHECK(matmul(ones({2, 2}), ones({2, 2})).dtype() == bf16);
    }
    CHECK(autocast_dtype() == f16);
    CHECK(matmul(ones({2, 2}), ones({2, 2})).dtype() == f16);
  }
  CHECK(!autocast_dtype());
}

TEST_CASE("[S26] an exception restores the mode") {
  CHECK_THROWS_AS(
      [] {
        const Autocast guard(f16);
        const Autocast inner(bf16);
        throw std::runtime_error("x");
      }(),
      std::runtime_error);
  CHECK(!autocast_dtype());
  const Autocast guard(f16);
  CHECK_THROWS_AS(
      [] {
        const NoAutocast off;
        matmul(ones({2, 2}), ones({3, 3}));
      }(),
      Error);
  CHECK(autocast_dtype() == f16);
}

TEST_CASE("[S26] a guard of another dtype throws and changes nothing") {
  for (const DType t : {f64, i32, i64, u8, boolean, static_cast<DType>(99)}) {
    CHECK(error_of([&] { const Autocast guard(t); }) ==
          std::string("[Autocast] cannot run in ") + to_string(t) +
              "; hint: take firn::f16, firn::bf16 or firn::f32");
    CHECK(!autocast_dtype());
  }
}

TEST_CASE("[S26] a guard is of its thread alone") {
  const Autocast guard(f16);
  std::optional<DType> seen = f64;
  std::thread([&] { seen = autocast_dtype(); }).join();
  CHECK(!seen);
}

TEST_CASE("[S26] backward ignores the guard, and custom functions have that of their call") {
  const auto gradient = [&](bool inside) {
    Rng same(2);
    Tensor x = make(same.uniforms(64, -1, 1), {8, 8}, f32),
           w = make(same.uniforms(64, -1, 1), {8, 8}, f32);
    x.set_requires_grad();
    w.set_requires_grad();
    Tensor y;
    std::vector<std::optional<DType>> modes;
    std::vector<DType> in_hook;
    {
      const Autocast guard(f16);
      const Tensor hidden = matmul(x, w);
      const auto note = [&](const Tensor& g) {
        modes.push_back(autocast_dtype());
        in_hook.push_back(matmul(g, g).dtype());
        return Tensor();
      };
      add_hook(hidden, note);
      y = custom("mine", {sum(hidden * hidden)}, full({}, 1), {}, [&](const CustomBackward& b) {
        modes.push_back(autocast_dtype());
        return std::vector<Tensor>{b.grad * matmul(ones({1, 1}), ones({1, 1})).reshape({})};
      });
      if (inside) {
        y.backward();
        CHECK(autocast_dtype() == f16);
      }
    }
    if (!inside) y.backward();
    CHECK(modes == std::vector<std::optional<DType>>{f16, {}});  // the function, then the hook
    CHECK(in_hook == std::vector<DType>{f16});                   // the gradient's own dtype
    return std::pair(x.grad().to_vector<float>(), w.grad().to_vector<float>());
  };
  CHECK(gradient(true) == gradient(false));
}

TEST_CASE("[S26] backward that throws restores the guard") {
  Tensor x = ones({2});
  x.set_requires_grad();
  const Autocast guard(bf16);
  add_hook(x, [](const Tensor&) -> Tensor { throw std::runtime_error("x"); });
  const Tensor y = sum(x * x);
  CHECK_THROWS_AS(y.backward(), std::runtime_error);
  CHECK(autocast_dtype() == bf16);
}

TEST_CASE("traces end in any order, in any thread, and in a hook") {
  const Tensor x = ones({2});
  auto a = std::make_unique<DtypeTrace>(), b = std::make_unique<DtypeTrace>();
  relu(x);
  a.reset();
  relu(x);
  CHECK(b->ops().size() == 2);
  auto c = std::make_unique<DtypeTrace>();
  std::thread([&] { b.reset(); }).join();
  exp(x);
  CHECK(c->text() == "exp f32 -> f32\n");
  c.reset();
  relu(x);

  // A trace of a thread that has ended.
  std::unique_ptr<DtypeTrace> left;
  std::thread([&] {
    left = std::make_unique<DtypeTrace>();
    relu(x);
  }).join();
  CHECK(left->ops().size() == 1);
  left.reset();
  relu(x);

  // In a hook, which runs in backward(): the traces of the forward pass hear nothing there.
  Tensor w = ones({2});
  w.set_requires_grad();
  auto forward = std::make_unique<DtypeTrace>();
  const DtypeTrace stays;
  std::unique_ptr<DtypeTrace> of_hook;
  const Tensor y = sum(w * w);
  add_hook(y, [&](const Tensor& g) -> Tensor {
    forward.reset();
    of_hook = std::make_unique<DtypeTrace>();
    relu(g);
    return {};
  });
  y.backward();
  exp(x);
  CHECK(of_hook->ops().front().op == "relu");
  CHECK(of_hook->ops().back().op == "exp");
  CHECK(stays.text() == "mul f32 f32 -> f32\nsum f32 -> f32\nexp f32 -> f32\n");
}

TEST_CASE("a trace lists ops with their dtypes, and nests") {
  Tensor x = ones({2, 2});
  x.set_requires_grad();
  const DtypeTrace outer;
  const Tensor h = x.to(f16);
  {
    const DtypeTrace inner;
    const Tensor y = sum(relu(h) * 2.0);
    CHECK(inner.text() == "relu f16 -> f16\nmul f16 -> f16\nsum f16 -> f16\n");
    y.backward();  // not listed
    CHECK(inner.ops().size() == 3);
  }
  Tensor z = zeros({2}, i32);
  add_(z, 1);
  argmax(z);
  lt(z, z);
  CHECK(outer.ops().size() == 7);
  CHECK(outer.ops().front() == TracedOp{"cast", {f32}, f16});
  CHECK(to_string(outer.ops()[4]) == "add_ i32 -> i32");
  CHECK(to_string(outer.ops()[5]) == "argmax i32 -> i64");
  CHECK(to_string(outer.ops()[6]) == "lt i32 i32 -> bool");
}

TEST_CASE("an in-place op is checked by anomaly mode also where it is not recorded") {
  const AnomalyMode guard;
  Tensor x = full({2}, -1);
  CHECK(error_of([&] { log_(x); }).rfind("[log_] the forward pass produced", 0) == 0);
}
