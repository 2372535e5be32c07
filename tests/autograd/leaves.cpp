// Leaves: marking tensors, gradients and what is refused.
#include "autograd/leaf.h"

using namespace firn;
using namespace firn::testing;

TEST_CASE("leaf: set_requires_grad on and off", "[autograd]") {
  Tensor x = make({1, 2}, {2});
  CHECK_FALSE(x.requires_grad());
  CHECK(&x.set_requires_grad() == &x);
  CHECK(x.requires_grad());
  CHECK_FALSE(x.grad().defined());
  x.set_requires_grad(false);
  CHECK_FALSE(x.requires_grad());
}

TEST_CASE("leaf: all handles of a tensor see its gradient", "[autograd]") {
  Tensor x = make({1, 2}, {2});
  const Tensor other = x;
  x.set_requires_grad();
  CHECK(other.requires_grad());
  sum(other * 3).backward();
  CHECK(values_of(x.grad()) == std::vector<double>{3, 3});
  CHECK(address_of(x.grad()) == address_of(other.grad()));
}

TEST_CASE("leaf: integer tensors have no gradient", "[autograd]") {
  for (DType t : {i32, i64, u8, boolean}) {
    Tensor x = zeros({2}, t);
    CHECK(error_of([&] { x.set_requires_grad(); }) ==
          std::string("[set_requires_grad] [2] ") + to_string(t) + " " +
              to_string(default_device()) +
              " cannot have a gradient; hint: cast it to a floating dtype");
  }
}

TEST_CASE("leaf: a computed tensor cannot be taken out of its graph by flag", "[autograd]") {
  Tensor x = make({1}, {1});
  x.set_requires_grad();
  Tensor y = exp(x);
  CHECK(holds(error_of([&] { y.set_requires_grad(false); }), "made by exp"));
  CHECK_NOTHROW(y.set_requires_grad());
}

TEST_CASE("leaf: only leaves keep a gradient", "[autograd]") {
  Tensor x = make({1}, {1});
  x.set_requires_grad();
  const Tensor y = exp(x);
  CHECK(holds(error_of([&] { y.grad(); }), "only leaves keep a gradient"));
  CHECK_FALSE(make({1}, {1}).grad().defined());
}

TEST_CASE("leaf: set_grad checks shape and leafness", "[autograd]") {
  Tensor x = make({1, 2}, {2});
  CHECK(holds(error_of([&] { x.set_grad(make({1, 2}, {2})); }), "[set_grad]"));
  x.set_requires_grad();
  CHECK(holds(error_of([&] { x.set_grad(make({1}, {1})); }), "[set_grad]"));
  CHECK(holds(error_of([&] { x.set_grad(zeros({2}, i64)); }), "[set_grad]"));
}

TEST_CASE("leaf: a gradient has the leaf's shape, dtype and row-major order", "[autograd]") {
  for (DType t : {f16, bf16, f32, f64}) {
    Tensor x = make({1, 2, 3, 4, 5, 6}, {2, 3}, t, firn::testing::Layout::transposed);
    x.set_requires_grad();
    sum(x * 2).backward();
    CHECK(x.grad().dtype() == t);
    CHECK(x.grad().shape() == Shape{2, 3});
    CHECK(x.grad().is_contiguous());
    CHECK(values_of(x.grad()) == std::vector<double>(6, 2.0));
  }
}

TEST_CASE("leaf: a gradient is accounted to gradients, what backward makes besides is not",
          "[autograd]") {
  Tensor x = zeros({1 << 16});
  x.set_requires_grad();
  const auto before = memory_stats().of(Owner::gradients).current;
  sum(exp(exp(x))).backward();
  CHECK(memory_stats().of(Owner::gradients).current - before == (1 << 16) * 4);
}
